"""Who attends to whom: the decoder's attention to the source, as numbers and as pictures.

`cross_attention` reads the weights off a model that is given a source and its translation, which are those with which
it was translated, token by token. `draw` makes the heat maps that TensorBoard and `translate.py --attention` show,
`to_html` a page on which every weight can be read.
"""

import html
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from config import BOS
from dataset import causal_mask, pad, padding_mask
from model import DecoderBlock, MultiHeadAttentionBlock, Transformer
from text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

END = "⟨end⟩"  # EOS, in pictures


@dataclass(frozen=True)
class Attention:
    """Where the decoder looks in the source as it says each token of a translation."""

    weights: Tensor
    """(layers, H, T + 1, S + 1); every row sums to 1"""
    source: list[str]
    """The S tokens of the source, and END"""
    target: list[str]
    """The T tokens of the translation, and END"""

    def maps(self, layer: int, head: int | None = None) -> list[tuple[str, Tensor]]:
        """The named maps (T + 1, S + 1) of a layer, counted from 0: the mean of its heads and each of them, or one."""
        heads = self.weights[layer]
        if head is not None:
            return [(f"head {head + 1}", heads[head])]
        return [("mean of the heads", heads.mean(dim=0)), *((f"head {i + 1}", x) for i, x in enumerate(heads))]


@torch.no_grad()
def cross_attention(model: Transformer, tokenizer: Tokenizer, source: list[int], target: list[int]) -> Attention:
    """The ids of a source and of its translation, both without EOS and BOS → who attended to whom."""
    device = model.src_embed.embedding.weight.device
    src, tgt = pad([source]).to(device), pad([target], before=[BOS], after=()).to(device)
    mask = padding_mask(src)
    with _noted(model) as found:
        model.decode(tgt, model.encode(src, mask), mask, causal_mask(tgt.size(1), device))
    weights = torch.cat(found).float().cpu()
    return Attention(weights, [*tokenizer.pieces(source), END], [*tokenizer.pieces(target), END])


@contextmanager
def _noted(model: Transformer) -> Iterator[list[Tensor]]:
    """Notes the weights (B, H, T, S) of each layer's cross-attention, as it happens."""
    found: list[Tensor] = []

    def note(block: nn.Module, args: tuple[Any, ...]) -> None:
        assert isinstance(block, MultiHeadAttentionBlock)
        query, key, _, mask = args[:4]
        found.append(block.weights(query, key, mask))

    blocks = [block for block in model.decoder.blocks if isinstance(block, DecoderBlock)]
    hooks = [block.cross_attention.register_forward_pre_hook(note) for block in blocks]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def draw(maps: Sequence[tuple[str, Tensor]], source: Sequence[str], target: Sequence[str], title: str) -> "Figure":
    """The named maps (T, S) and their tokens → a figure, the tokens of the source along the top.

    All of it stands on one plane, in pixels: axes with ticks for every map would take more than twice as long.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - half a second, which translating does without

    columns = min(len(maps), 3)
    rows = -(-len(maps) // columns)
    # In pixels, 100 to an inch: what a map of so many tokens takes, and what its labels take, at 7 points.
    above, beside = (20 + 6.5 * max(map(len, texts)) for texts in (source, target))
    width, height = (max(120, 15 * len(texts)) for texts in (source, target))
    whole = columns * (width + beside + 10) + 10, rows * (height + above + 40) + 30
    figure = Figure(figsize=(whole[0] / 100, whole[1] / 100), dpi=100)
    plane = figure.add_axes((0, 0, 1, 1))
    plane.set_axis_off()
    plane.text(10, 20, title, fontsize=8)
    for i, (name, values) in enumerate(maps):
        left = (i % columns) * (width + beside + 10) + beside + 10
        top = (i // columns) * (height + above + 40) + above + 30
        edges = (left, left + width, top + height, top)
        plane.imshow(values.numpy(), cmap="Blues", vmin=0, vmax=1, extent=edges)
        plane.text(left + width / 2, top + height + 6, name, fontsize=7, ha="center", va="top")
        for j, token in enumerate(source):
            x = left + (j + 0.5) * width / len(source)
            plane.text(x, top - 3, token, fontsize=7, rotation=90, ha="center", va="bottom")
        for j, token in enumerate(target):
            plane.text(left - 3, top + (j + 0.5) * height / len(target), token, fontsize=7, ha="right", va="center")
    plane.set(xlim=(0, whole[0]), ylim=(whole[1], 0), aspect="auto")
    return figure


@contextmanager
def quiet() -> Iterator[None]:
    """For saving such figures: without what matplotlib says of every character that its font lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def to_html(maps: Sequence[tuple[str, Tensor]], source: Sequence[str], target: Sequence[str], title: str) -> str:
    """The named maps (T, S) and their tokens → a whole page."""
    return _PAGE.format(title=html.escape(title), style=STYLE, tables=tables(maps, source, target))


def tables(maps: Sequence[tuple[str, Tensor]], source: Sequence[str], target: Sequence[str]) -> str:
    """A table of each map; every cell tells its weight. They look as STYLE says."""
    head = "".join(f"<th><span>{html.escape(token)}</span></th>" for token in source)

    def row(said: str, weights: list[float]) -> str:
        cells = (
            f'<td style="--w:{weight:.3f}" title="{html.escape(said)} ← {html.escape(token)}: {weight:.1%}"></td>'
            for token, weight in zip(source, weights, strict=True)
        )
        return f"<tr><th>{html.escape(said)}</th>{''.join(cells)}</tr>\n"

    found = []
    for name, values in maps:
        rows = "".join(row(*both) for both in zip(target, values.tolist(), strict=True))
        found.append(f"<table><caption>{name}</caption>\n<tr><th></th>{head}</tr>\n{rows}</table>\n")
    return f'<div class="attention">{"".join(found)}</div>'


STYLE = """
.attention table { display: inline-block; margin: 0 2em 2em 0; border: 0; border-collapse: collapse; width: auto; }
.attention caption { text-align: left; font-weight: bold; padding: .5em 0; }
.attention tr { border: 0; background: none; }
.attention th { font: 12px system-ui, sans-serif; text-align: right; white-space: pre; padding: 0 .4em 0 0; border: 0; }
.attention tr:first-child th span { writing-mode: vertical-rl; transform: rotate(180deg); }
.attention td { min-width: 17px; height: 17px; padding: 0; border: 1px solid #8882; }
.attention td { background: rgb(8 81 156 / var(--w)); }
"""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>body {{ font: 13px system-ui, sans-serif; margin: 1em; }} h1 {{ font-size: 1.1em; }}{style}</style>
<h1>{title}</h1>
{tables}</html>
"""
