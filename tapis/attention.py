"""What tokens attend to: the decoder's attention to the source, and the encoder's and the decoder's own.

A searcher computes the weights with which it chose a translation, token by token (`Searcher.attention`). `draw` makes
the heat maps that TensorBoard and `translate.py --attention` show. `to_html` and `tables` make HTML in which every
weight can be read.
"""

import html
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tapis.search import AttentionOf
from tapis.text.tokenizer import BEGINS_WORD, Tokenizer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float32]

START, END = "⟨start⟩", "⟨end⟩"  # BOS and EOS, in pictures
# Arguments of matplotlib's texts: no text is mathematics or LaTeX, whatever it has between dollar signs.
AS_IT_IS: dict[str, Any] = {"parse_math": False, "usetex": False}


@dataclass(frozen=True)
class Attention:
    """What each token attended to. By default, a token of a translation in the source."""

    weights: Floats
    """(layers, H, T + 1, S + 1); every row sums to 1"""
    source: list[str]
    """What is attended to, the columns: the S tokens of the source, and END"""
    target: list[str]
    """What attends, the rows: the T tokens of the translation, and END"""

    @classmethod
    def of(
        cls, weights: Floats, tokenizer: Tokenizer, source: list[int], target: list[int], of: AttentionOf = "source"
    ) -> "Attention":
        """Return the weights with the tokens of a source and of its translation, both given as ids.

        Of the encoder's own attention, (layers, H, S + 1, S + 1), both are the tokens of the source; of the decoder's,
        (layers, H, T + 1, T + 1), those of the translation, each of which attends to START and to those before it.
        """
        source_pieces, target_pieces = tokenizer.pieces(source), tokenizer.pieces(target)
        columns = [START, *target_pieces] if of == "decoder" else [*source_pieces, END]
        rows = [*source_pieces, END] if of == "encoder" else [*target_pieces, END]
        return cls(weights, columns, rows)

    def maps(self, layer: int, head: int | None = None) -> list[tuple[str, Floats]]:
        """Return named maps (T + 1, S + 1) of a layer: one head's, or the mean of its heads and then each head's.

        Layers and heads count from 0; the names count heads from 1.
        """
        heads = self.weights[layer]
        if head is not None:
            return [(f"head {head + 1}", heads[head])]
        return [("mean of the heads", heads.mean(axis=0)), *((f"head {i + 1}", x) for i, x in enumerate(heads))]


def word_alignment(attention: Attention) -> NDArray[np.float64]:
    """(words of the translation, words of the source): how much each comes from each, by the last layer's attention.

    Of its heads and layers, their mean in the last one says best where a word comes from. A word is a token that begins
    with a space, and the tokens after it that do not. A token before the first of them, such as a tag of the target
    language, belongs to none.
    """
    weights = attention.weights[-1].mean(axis=0)[:-1, :-1].astype(np.float64)
    for axis, pieces in enumerate((attention.target[:-1], attention.source[:-1])):
        words = np.cumsum([piece.startswith(BEGINS_WORD) for piece in pieces]) - 1
        of_word = words[None, :] == np.arange(words.max(initial=-1) + 1)[:, None]  # (words, tokens)
        weights = of_word @ weights if axis == 0 else weights @ of_word.T
    return weights


def draw(maps: Sequence[tuple[str, Floats]], source: Sequence[str], target: Sequence[str], title: str) -> "Figure":
    """Draw named maps (T, S) in rows of up to three, with the source tokens above each and the target tokens beside it.

                     source tokens    label_height
    target tokens  [      map      ]  map_height
                          name
     label_width      map_width
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - importing it takes half a second

    columns = min(len(maps), 3)
    rows = -(-len(maps) // columns)  # rounded up

    # Sizes in pixels, at 100 to an inch. A character of a 7-point label takes about 6.5 pixels.
    label_height, label_width = (20 + 6.5 * max(map(len, tokens)) for tokens in (source, target))
    map_width, map_height = (max(120, 15 * len(tokens)) for tokens in (source, target))
    cell_width, cell_height = label_width + map_width + 10, label_height + map_height + 40
    width, height = columns * cell_width + 10, rows * cell_height + 30

    # One pair of axes covers the figure, in pixels from the top left. Axes with ticks for each map take twice as long.
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.text(10, 20, title, fontsize=8, **AS_IT_IS)

    for i, (name, weights) in enumerate(maps):
        left = i % columns * cell_width + label_width + 10
        top = i // columns * cell_height + label_height + 30
        _draw_map(axes, name, weights, source, target, edges=(left, left + map_width, top + map_height, top))

    axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")  # imshow has changed both
    return figure


def _draw_map(
    axes: "Axes",
    name: str,
    weights: Floats,
    source: Sequence[str],
    target: Sequence[str],
    *,
    edges: tuple[float, float, float, float],
) -> None:
    """Draw one map and its labels. `edges` are left, right, bottom and top, in pixels."""
    left, right, bottom, top = edges
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, extent=edges)
    axes.text((left + right) / 2, bottom + 6, name, fontsize=7, ha="center", va="top", **AS_IT_IS)

    for j, token in enumerate(source):
        x = left + (j + 0.5) * (right - left) / len(source)
        axes.text(x, top - 3, token, fontsize=7, rotation=90, ha="center", va="bottom", **AS_IT_IS)

    for j, token in enumerate(target):
        y = top + (j + 0.5) * (bottom - top) / len(target)
        axes.text(left - 3, y, token, fontsize=7, ha="right", va="center", **AS_IT_IS)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence matplotlib's warnings about characters that its font lacks, while a figure is saved."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def to_html(maps: Sequence[tuple[str, Floats]], source: Sequence[str], target: Sequence[str], title: str) -> str:
    """Return a complete HTML page with a table of each named map (T, S)."""
    return _PAGE.format(title=html.escape(title), style=STYLE, tables=tables(maps, source, target))


def tables(maps: Sequence[tuple[str, Floats]], source: Sequence[str], target: Sequence[str]) -> str:
    """Return an HTML element with a table of each named map (T, S). It needs STYLE; a cell's tooltip is its weight."""
    source_cells = "".join(f"<th><span>{html.escape(token)}</span></th>" for token in source)

    def row(target_token: str, weights: list[float]) -> str:
        label = html.escape(target_token)
        cells = (
            f'<td style="--w:{weight:.3f}" title="{label} ← {html.escape(source_token)}: {weight:.1%}"></td>'
            for source_token, weight in zip(source, weights, strict=True)
        )
        return f"<tr><th>{label}</th>{''.join(cells)}</tr>\n"

    def table(name: str, weights: Floats) -> str:
        rows = "".join(row(token, values) for token, values in zip(target, weights.tolist(), strict=True))
        return f"<table><caption>{name}</caption>\n<tr><th></th>{source_cells}</tr>\n{rows}</table>\n"

    return f'<div class="attention">{"".join(table(name, weights) for name, weights in maps)}</div>'


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
