"""Holds the Triton kernels of fast/ to the plain formulas, by Triton's interpreter, on a CPU.

test_ranges.py starts it with TRITON_INTERPRET=1, which must be set before Triton is imported.
"""

import sys
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from plain_kernels import (  # noqa: E402
    plain_attend,
    plain_attend_backward,
    plain_attend_to_slots,
    plain_logit_statistics,
    plain_losses_and_gradient,
)

from fast.attention import RangeLayout, query_key_value  # noqa: E402
from fast.attention_kernels import attend_in_ranges, write_gradients  # noqa: E402
from fast.loss_kernel import losses_of_rows  # noqa: E402
from fast.slot_attention_kernel import attend  # noqa: E402
from fast.topk import WIDTH  # noqa: E402
from fast.topk_kernel import statistics_of_rows  # noqa: E402
from tapis.config import PAD  # noqa: E402

SOURCES, TARGETS = np.array([3, 17, 1, 40, 9, 100, 2, 5]), np.array([4, 12, 2, 44, 8, 90, 1, 70])


def check_attention() -> None:
    torch.manual_seed(1)
    layout = RangeLayout.of(SOURCES, TARGETS, unit=256)
    forms = {"encoder": layout.encoder, "decoder": layout.decoder, "source": layout.source}
    for (name, form), (dtype, tolerance), (n_heads, size) in product(
        forms.items(), [(torch.float32, 1e-5), (torch.float16, 5e-3)], [(2, 16), (3, 48), (1, 64)]
    ):
        # Random rows, of which all numbers must be written.
        n, m, width = len(form.ranges.first), len(form.ranges.first_reader), n_heads * size
        rows = torch.randn(n, 3 * width if form.is_self else width).to(dtype)
        memory = None if form.is_self else torch.randn(m, 2 * width).to(dtype)
        output_gradient = torch.randn(n, width).to(dtype)
        into = torch.full_like(rows, torch.nan), None if memory is None else torch.full_like(memory, torch.nan)

        # The kernels, and the formula.
        output, log_sum = attend_in_ranges(*query_key_value(rows, memory), *form.ranges[:2], n_heads)
        parts, gradients = query_key_value(rows, memory), query_key_value(*into)
        write_gradients(*parts, output, log_sum, output_gradient, form.ranges, gradients)
        expected, expected_sum = plain_attend(rows, memory, *form.ranges, n_heads)
        of_rows, of_memory = plain_attend_backward(output_gradient, expected, expected_sum, rows, memory, *form.ranges)
        pairs = [(output, expected), (into[0], of_rows)]
        if into[1] is not None:
            pairs.append((into[1], of_memory))
        for found, right in pairs:
            error = float((found.float() - right.float()).norm() / right.float().norm())
            assert error < tolerance, (name, dtype, n_heads, size, error)


def check_losses() -> None:
    for n, vocab_size, width, dtype in ((7, 11, 16, torch.float32), (5, 9000, 9024, torch.float16)):
        logits = torch.nn.functional.pad(torch.randn(n, vocab_size), (0, width - vocab_size)).to(dtype)
        labels = torch.randint(1, vocab_size, (n,))
        labels[3] = PAD
        right = logits.float().clone()
        expected = plain_losses_and_gradient(right, labels, 0.1, vocab_size)
        torch.testing.assert_close(losses_of_rows(logits, labels, 0.1, vocab_size), expected, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(logits.float(), right, rtol=1e-3, atol=1e-5)


def check_statistics() -> None:
    for (n, vocab_size), dtype in product([(3, 50), (2, 4096), (5, 9001)], [torch.float32, torch.float16]):
        logits = 3 * torch.randn(n, vocab_size + 7).to(dtype)[:, :vocab_size]  # rows need not be side by side
        logits[0, : vocab_size // 2] = -torch.inf
        logits[1, 1:] = -torch.inf
        torch.testing.assert_close(statistics_of_rows(logits, WIDTH), plain_logit_statistics(logits))


def check_slots() -> None:
    shapes = [(1, 2, 16), (1, 1, 64), (4, 3, 48), (5, 1, 64), (17, 2, 16)]
    for (n_hypotheses, n_heads, size), (dtype, tolerance) in product(
        shapes, [(torch.float32, 1e-5), (torch.float16, 5e-3)]
    ):
        n_sentences, longest, now = 2, 48, 20
        query = torch.randn(n_sentences, n_hypotheses, 3, n_heads, size).to(dtype)[:, :, 0]  # beside other numbers
        slots = torch.randn(n_sentences, longest * n_hypotheses, 2, n_heads, size).to(dtype)

        # Each hypothesis attends to a slot of each position, the last of the first sentence to its own slot alone.
        mask = torch.full((n_sentences, n_hypotheses, longest, n_hypotheses), -torch.inf, dtype=dtype)
        ancestors = torch.randint(n_hypotheses, (n_sentences, n_hypotheses, now + 1, 1))
        mask[:, :, : now + 1].scatter_(3, ancestors, 0.0)
        mask[0, -1, :now] = -torch.inf
        mask = mask.flatten(2)
        slots[:, (now + 1) * n_hypotheses :] = torch.nan  # which nothing may read

        # The mask of a source is one for all hypotheses.
        source_mask = torch.full((n_sentences, 1, len(slots[0])), -torch.inf, dtype=dtype)
        for sentence, length in enumerate((1, longest)):
            source_mask[sentence, :, :length] = 0.0
        source = torch.randn_like(slots, dtype=torch.float32).to(dtype)
        for memory, added, position in (
            (slots, mask, torch.tensor([now])),
            (slots, mask, None),
            (source, source_mask, None),
        ):
            found = attend(query, memory, added.expand(-1, n_hypotheses, -1), position)
            expected = plain_attend_to_slots(query, memory.nan_to_num(), added, position)
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


if __name__ == "__main__":
    check_attention()
    check_losses()
    check_statistics()
    check_slots()
