"""Print the numbers of docs/walkthrough.md: one sentence, followed through the demo's model.

    python docs/walkthrough.py         after `make demo`; on the CPU, in a few seconds

Each function prints one section of the page. The model is the plain one of model.py, in fp32, with one thread.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.utils import clip_grad_norm_  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from config import Config  # noqa: E402
from dataset import Batch, causal_mask, collate  # noqa: E402
from decoding.attention import cross_attention  # noqa: E402
from decoding.search import beam_search, greedy_search  # noqa: E402
from decoding.steps import plain_step  # noqa: E402
from model import (  # noqa: E402
    DecoderCache,
    EncoderBlock,
    MaskedAttention,
    ResidualConnection,
    Transformer,
    attention_weights,
)
from tapis.config import BOS, EOS  # noqa: E402
from tapis.lengths import PAPERS_EXTRA_LENGTH  # noqa: E402
from tapis.search import Search, length_penalty  # noqa: E402
from tapis.system.cli import run_command  # noqa: E402
from tapis.text.tokenizer import Tokenizer  # noqa: E402
from training.objective import BatchLoss, label_smoothed_cross_entropy  # noqa: E402
from training.optimizers import learning_rate, make_optimizers  # noqa: E402

SOURCE, TARGET = "The cat sits on the mat.", "Le chat est assis sur le tapis."
SHORT_SOURCE, SHORT_TARGET = (
    "My dog is tired.",
    "Mon chien est fatigué.",
)  # a second pair, so that the batch has padding
NAMES = {BOS: "<s>", EOS: "</s>"}


@dataclass(frozen=True)
class Demo:
    """The demo's model, and the batch of the two pairs."""

    config: Config
    tokenizer: Tokenizer
    model: Transformer
    steps: int
    """Steps of its training"""
    batch: Batch

    @classmethod
    def load(cls, run: str) -> "Demo":
        """Load a run by its name or path, with its plain model in evaluation mode."""
        folder = RunFolder.find(run)
        config, tokenizer, model = folder.load_model(torch.device("cpu"))
        sources = tokenizer.encode([SOURCE, SHORT_SOURCE])
        targets = tokenizer.encode([TARGET, SHORT_TARGET])
        return cls(config, tokenizer, model, folder.load_metrics()["batches"]["steps"], collate(sources, targets))

    @property
    def src(self) -> Tensor:
        """(1, S) the ids of SOURCE and EOS."""
        return self.batch.src[:1]

    @property
    def src_mask(self) -> Tensor:
        """(1, 1, 1, S) the mask of src."""
        return self.batch.src_mask[:1]

    def names(self, ids: Sequence[int]) -> list[str]:
        """Each token as text; BOS and EOS by the names that they have in the vocabulary."""
        return [NAMES.get(i) or self.tokenizer.pieces([i])[0] for i in ids]


def title(text: str) -> None:
    print(f"\n--- {text}\n")


def vectors(heading: str, rows: Sequence[tuple[str, Tensor]]) -> None:
    """Print the first entries of named vectors (D) and the norm of each."""
    print(f"{heading:28}{f'first four of {rows[0][1].numel()}':>36}{'norm':>12}")
    for name, vector in rows:
        print(f"{name:28}" + "".join(f"{entry:9.3f}" for entry in vector[:4].tolist()) + f"{vector.norm():12.3f}")


def table(corner: str, columns: Sequence[str], rows: Sequence[tuple[str, Tensor]], digits: int = 2) -> None:
    """Print named rows of numbers under named columns."""
    width = max(len(name) for name, _ in rows) + 2
    print(f"{corner:{width}}" + "".join(f"{name:>9}" for name in columns))
    for name, values in rows:
        print(f"{name:{width}}" + "".join(f"{value:9.{digits}f}" for value in values.tolist()))


# The input


def tokens(demo: Demo) -> None:
    title("1. Tokens")
    config, tokenizer = demo.config, demo.tokenizer
    n_parameters = sum(parameter.numel() for parameter in demo.model.parameters())
    print(
        f"V = {len(tokenizer)}   D = {config.d_model}   H = {config.n_heads}   K = {config.d_model // config.n_heads}"
    )
    print(f"{n_parameters:,} parameters")
    for text in (SOURCE, TARGET):
        (ids,) = tokenizer.encode([text])
        print(f"\n{text}")
        print("".join(f"{piece:>8}" for piece in tokenizer.pieces(ids)))
        print("".join(f"{i:8}" for i in ids))


def batch_and_masks(demo: Demo) -> None:
    title("2. The batch and its masks")
    batch = demo.batch
    for name in ("src", "tgt", "labels"):
        ids = getattr(batch, name)
        print(f"{name:7} {tuple(ids.shape)}")
        for row in ids.tolist():
            print("        " + "".join(f"{i:5}" for i in row))
    for name in ("src_mask", "tgt_mask"):
        mask = getattr(batch, name)
        print(f"\n{name} {tuple(mask.shape)}; of the second pair:")
        for row in mask[1, 0].int().tolist():
            print("        " + " ".join("·1"[allowed] for allowed in row))
    print(f"\ntarget tokens to predict: {batch.n_tgt}")


def embeddings_and_positions(demo: Demo) -> Tensor:
    """Return the encoder's input (1, S, D)."""
    title("3. Embeddings and positions")
    model, src = demo.model, demo.src
    rows = model.src_embed.embedding(src)
    embedded = model.src_embed(src)
    x = model.src_position(embedded)
    sinusoids = model.src_position.table[: src.size(1)]
    print(f"√D = {math.sqrt(demo.config.d_model):.3f}")
    for t, name in enumerate(demo.names(src[0, :2].tolist())):
        print()
        vectors(
            f"{name} at position {t}",
            [
                ("  row of the matrix", rows[0, t]),
                ("  times √D", embedded[0, t]),
                ("  sines and cosines", sinusoids[t]),
                ("  sum", x[0, t]),
            ],
        )
    return x


# The encoder


def normalized(block: EncoderBlock, i: int, x: Tensor) -> Tensor:
    """Return what the i-th sublayer of a block reads, with pre-norm."""
    residual = block.residuals[i]
    assert isinstance(residual, ResidualConnection)
    return residual.norm(x)


def one_head(demo: Demo, x: Tensor) -> None:
    title("4. One attention head")
    block, names = demo.model.encoder.blocks[0], demo.names(demo.src[0].tolist())
    assert isinstance(block, EncoderBlock)
    y = normalized(block, 0, x)
    attention = block.self_attention
    query = attention.split_heads(attention.w_q(y))  # (1, H, S, K)
    key = attention.split_heads(attention.w_k(y))
    weights = attention_weights(query, key, demo.src_mask)
    print(f"query {tuple(query.shape)}   key {tuple(key.shape)}   weights {tuple(weights.shape)}")

    # Of the four heads, show the one in which "The" looks at "cat" most.
    head = int(weights[0, :, 0, 1].argmax())
    scores = query[0, head] @ key[0, head].T / math.sqrt(query.size(-1))
    print(f"\nencoder layer 1, head {head + 1}, the row of {names[0]}:\n")
    exponentials = scores[0].exp()
    table("", names, [("q·k / √K", scores[0]), ("exp", exponentials), ("divided by the sum", weights[0, head, 0])])
    print(f"{'sum of exp':20}{exponentials.sum():9.2f}")
    print("\nall its rows (each token attends to the tokens above):\n")
    table("", names, list(zip(names, weights[0, head], strict=True)))


def through_the_encoder(demo: Demo, x: Tensor) -> Tensor:
    """Return the memory (1, S, D)."""
    title("5. Through the encoder")
    model, mask = demo.model, demo.src_mask
    rows = [("embedding + position", x[0, 1])]
    n_active = []
    for i, block in enumerate(model.encoder.blocks, start=1):
        assert isinstance(block, EncoderBlock)
        y = normalized(block, 0, x)
        attended = block.self_attention(y, y, MaskedAttention(mask))
        x = x + attended
        rows += [(f"layer {i}: attention adds", attended[0, 1]), ("         sum", x[0, 1])]
        y = normalized(block, 1, x)
        fed = block.feed_forward(y)
        n_active.append(int((block.feed_forward.linear_1(y)[0, 1] > 0).sum()))
        x = x + fed
        rows += [("         feed-forward adds", fed[0, 1]), ("         sum", x[0, 1])]
    memory = model.encoder.norm(x)
    rows.append(("normalized: the memory", memory[0, 1]))
    torch.testing.assert_close(memory, model.encode(demo.src, MaskedAttention(mask)))

    names = demo.names(demo.src[0].tolist())
    vectors(names[1], rows)
    print(f"\nactive units of the feed-forward blocks, of {demo.config.d_ff}: {', '.join(map(str, n_active))}")

    print()
    vectors(f"memory {tuple(memory.shape)}", list(zip(names, memory[0], strict=True)))

    # The second sentence alone, without its padding, has the same memory.
    n = int(demo.batch.src_mask[1].sum())
    alone = model.encode(demo.batch.src[1:, :n], MaskedAttention(demo.batch.src_mask[1:, ..., :n]))
    batched = model.encode(demo.batch.src, MaskedAttention(demo.batch.src_mask))[1:, :n]
    print(f"\npadding changes the memory of {SHORT_SOURCE!r}: {not torch.allclose(alone, batched, atol=1e-4)}")
    return memory


# The decoder


def first_step(demo: Demo, memory: Tensor) -> None:
    title("6. The first step of the decoder")
    tgt = torch.tensor([[BOS]])
    x = demo.model.decode(tgt, memory, MaskedAttention(causal_mask(1)), MaskedAttention(demo.src_mask))
    logits = demo.model.project(x)
    print(f"tgt {tuple(tgt.shape)}   vectors {tuple(x.shape)}   logits {tuple(logits.shape)}\n")
    probabilities = logits.softmax(dim=-1)[0, 0]
    best = logits[0, 0].topk(5)
    for name, i, logit in zip(demo.names(best.indices.tolist()), best.indices, best.values, strict=True):
        print(f"{name:8} logit {logit:7.3f}   exp {logit.exp():12.1f}   probability {probabilities[i]:.4f}")
    print(f"{'':8} sum of exp over all {len(probabilities)} {logits.exp().sum():9.1f}")


def greedy(demo: Demo, memory: Tensor) -> list[int]:
    """Return the ids of the translation."""
    title("7. Greedy search")
    ids = [BOS]
    print("step  after       the three most probable tokens")
    while ids[-1] != EOS:
        tgt = torch.tensor([ids])
        x = demo.model.decode(tgt, memory, MaskedAttention(causal_mask(len(ids))), MaskedAttention(demo.src_mask))
        best = demo.model.project(x[:, -1]).softmax(dim=-1)[0].topk(3)
        shown = zip(demo.names(best.indices.tolist()), best.values.tolist(), strict=True)
        print(f"{len(ids):4}  {demo.names(ids)[-1]:8}" + "".join(f"{name:>11} {p:.4f}" for name, p in shown))
        ids.append(int(best.indices[0]))

    (text,) = demo.tokenizer.decode([ids[1:-1]])
    print(f"\n{text}")
    (searched,) = greedy_search(
        plain_step(demo.model, demo.src), torch.tensor([demo.src.size(1) + PAPERS_EXTRA_LENGTH])
    )
    print(f"greedy_search finds the same: {searched == ids[1:-1]}")
    return ids[1:-1]


def alignment(demo: Demo, translation: list[int]) -> None:
    title("8. What the decoder attends to")
    (source,) = demo.tokenizer.encode([SOURCE])
    weights = torch.from_numpy(cross_attention(demo.model, source, translation)[0])  # (H, T + 1, S + 1)
    head = int(weights.amax(dim=-1).mean(dim=-1).argmax())
    print(f"decoder layer 1, head {head + 1}, the sharpest of its heads:\n")
    rows = zip(demo.names([*translation, EOS]), weights[head], strict=True)
    table("to predict", demo.names(demo.src[0].tolist()), list(rows))


def cache(demo: Demo, memory: Tensor, translation: list[int]) -> None:
    title("9. The key-value cache")
    tgt = torch.tensor([[BOS, *translation]])
    whole = demo.model.decode(tgt, memory, MaskedAttention(causal_mask(tgt.size(1))), MaskedAttention(demo.src_mask))
    store = DecoderCache()
    steps = [demo.model.decode(tgt[:, [t]], memory, *store.next_step(demo.src_mask)) for t in range(tgt.size(1))]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)
    content = next(iter(store.of_self_attention.values())).content
    assert content is not None
    key, n = content[0], tgt.size(1)
    print(f"keys of layer 1 after {n} steps {tuple(key.shape)}")
    print(f"positions computed with the cache: {n}; without it: {n * (n + 1) // 2}; the vectors are equal")


def beam(demo: Demo) -> None:
    title("10. Beam search")
    search = Search(beam=5, n_best=5)
    limits = torch.tensor([demo.src.size(1) + PAPERS_EXTRA_LENGTH])
    (hypotheses,) = beam_search(plain_step(demo.model, demo.src), limits, search)
    print("  score    log P  penalty")
    for hypothesis in hypotheses:
        penalty = float(length_penalty(len(hypothesis.ids) + 1, search.length_penalty))  # its length counts EOS
        (text,) = demo.tokenizer.decode([hypothesis.ids])
        print(f"{hypothesis.score:7.3f}  {hypothesis.score * penalty:7.3f}  {penalty:7.3f}  {text}")


# Training


def loss_of_the_sentence(demo: Demo) -> None:
    title("11. The loss of the sentence")
    smoothing, batch = demo.config.label_smoothing, demo.batch
    logits = demo.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)[:1]
    labels = batch.labels[:1]
    log_p = logits.log_softmax(dim=-1)
    of_label = log_p.gather(-1, labels[..., None]).squeeze(-1)[0]
    mean = log_p.mean(dim=-1)[0]
    losses = -(1 - smoothing) * of_label - smoothing * mean
    rows = list(zip(of_label.exp(), -of_label, -mean, losses, strict=True))
    print("reads     must predict      P   −log P   mean of −log P   smoothed loss")
    for tgt, label, (p, nll, spread, loss) in zip(
        demo.names(batch.tgt[0].tolist()), demo.names(labels[0].tolist()), rows, strict=True
    ):
        print(f"{tgt:8}  {label:10} {p:9.4f} {nll:8.4f} {spread:16.3f} {loss:15.4f}")
    total, plain = label_smoothed_cross_entropy(logits, labels, smoothing)
    torch.testing.assert_close(total, losses.sum())
    n_tgt = labels.numel()
    print(f"{'mean':20} {'':9} {plain / n_tgt:8.4f} {'':16} {total / n_tgt:15.4f}")

    others = len(demo.tokenizer) - 1
    q, q_other = 1 - smoothing + smoothing / (others + 1), smoothing / (others + 1)
    print(f"\nthe lowest possible loss: {-q * math.log(q) - others * q_other * math.log(q_other):.4f}, at P = {q:.4f}")


def one_training_step(demo: Demo) -> None:
    title("12. One training step")
    config, batch = demo.config, demo.batch
    torch.manual_seed(config.seed)
    model = Transformer(len(demo.tokenizer), config)
    objective = BatchLoss(model, config.label_smoothing)
    optimizers = make_optimizers(model, config, "fp32")

    def loss_without_dropout() -> float:
        with torch.no_grad():
            return float(objective.eval()(batch)[0]) / batch.n_tgt

    print(
        f"an untrained model: loss {loss_without_dropout():.3f} a token; log V is {math.log(len(demo.tokenizer)):.3f}"
    )
    loss, _ = objective.train()(batch)
    (loss / batch.n_tgt).backward()
    norm = clip_grad_norm_(model.parameters(), config.clip_norm)
    rate = learning_rate(1, demo.steps, config.warmup_steps, config)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    print(f"with dropout {loss.item() / batch.n_tgt:.3f}; gradient norm {norm:.2f}, clipped to {config.clip_norm:.0f}")
    print(f"after a step at the rate of step 1, {rate:.6f}: {loss_without_dropout():.3f}")


def main(args: Sequence[str]) -> None:
    torch.set_num_threads(1)
    demo = Demo.load(args[0] if args else str(ROOT / "weights" / "demo"))
    with torch.no_grad():
        tokens(demo)
        batch_and_masks(demo)
        x = embeddings_and_positions(demo)
        one_head(demo, x)
        memory = through_the_encoder(demo, x)
        first_step(demo, memory)
        translation = greedy(demo, memory)
        alignment(demo, translation)
        cache(demo, memory, translation)
        beam(demo)
        loss_of_the_sentence(demo)
    one_training_step(demo)


if __name__ == "__main__":
    run_command(main)
