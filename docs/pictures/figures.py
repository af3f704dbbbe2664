"""Draw transformer.svg, the model with the shapes of the walkthrough, and batch.svg, the way of a batch.

    python docs/pictures/figures.py

The shapes are those that a model of the demo's size has, with two sentences of 8 and 9 tokens: hooks record them.
"""

import html
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from config import PRESETS  # noqa: E402
from dataset import collate  # noqa: E402
from model import MultiHeadAttentionBlock, Transformer  # noqa: E402

PICTURES = Path(__file__).parent
V, S, T = 1000, 8, 9  # of the walkthrough
COLORS = {
    "attention": "#ffe0b8",
    "feed-forward": "#c9e4ff",
    "norm": "#fff6bf",
    "embedding": "#ffd6dd",
    "output": "#d8f0d2",
    "data": "#eef1f5",
}
INK, FAINT = "#1f2933", "#66727f"


@dataclass
class Drawing:
    """Shapes and texts of an SVG. Positions are in pixels, from the upper left."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, text: str, kind: str, note: str = "") -> None:
        """Add a box with a text, and a smaller one below it, in the color of a kind."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{COLORS[kind]}" stroke="{INK}"/>'
        )
        middle = y + height / 2
        self.text(x + width / 2, middle + (5 if not note else -2), text)
        if note:
            self.text(x + width / 2, middle + 13, note, small=True)

    def frame(self, x: float, y: float, width: float, height: float, text: str) -> None:
        """Add a dashed frame with a text in its upper right corner."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="none" stroke="{FAINT}" '
            'stroke-dasharray="5 4"/>'
        )
        self.text(x + width - 10, y + 17, text, anchor="end", small=True)

    def text(self, x: float, y: float, text: str, *, anchor: str = "middle", small: bool = False) -> None:
        """Add a text, whose baseline is at y."""
        color, size = (FAINT, 12) if small else (INK, 14)
        self.parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}" font-size="{size}">{html.escape(text)}</text>'
        )

    def arrow(self, *points: tuple[float, float], label: str = "") -> None:
        """Add an arrow through these points, with a text to the right of the middle of its first line."""
        line = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(f'<polyline points="{line}" fill="none" stroke="{INK}" marker-end="url(#head)"/>')
        if label:
            (x, y), (to_x, to_y) = points[:2]
            self.text((x + to_x) / 2 + 8, (y + to_y) / 2 + 4, label, anchor="start", small=True)

    def plus(self, x: float, y: float) -> None:
        """Add the circle of a sum."""
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="9" fill="white" stroke="{INK}"/>')
        self.text(x, y + 5, "+")

    def svg(self) -> str:
        """Return the file's text."""
        parts = "\n".join(self.parts)
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui,sans-serif" role="img">
<title>{html.escape(self.title)}</title>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker></defs>
<rect width="100%" height="100%" rx="8" fill="white"/>
{parts}
</svg>
"""


def recorded_shapes() -> dict[str, str]:
    """Return the shape of what each part of a model of the demo's size gives, by its name in model.py."""
    model = Transformer(V, PRESETS["demo"]).eval()
    shapes: dict[str, str] = {}

    def record(name: str, module: nn.Module) -> None:
        def hook(_: nn.Module, __: object, output: Tensor) -> None:
            shapes[name] = str(tuple(output.shape))

        module.register_forward_hook(hook)

    for name, module in model.named_modules():
        record(name, module)
        if isinstance(module, MultiHeadAttentionBlock):
            module.w_q.register_forward_hook(
                lambda _, __, output, name=name, block=module: shapes.update(
                    {f"{name}.heads": str(tuple(block.split_heads(output).shape))}
                )
            )
    batch = collate([list(range(4, 4 + S - 1)), [4, 5]], [list(range(4, 4 + T - 1)), [4, 5]])
    with torch.inference_mode():
        model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    for name in ("src", "tgt", "src_mask", "tgt_mask", "labels"):
        shapes[name] = str(tuple(getattr(batch, name).shape))
    return shapes


def transformer(shapes: Mapping[str, str]) -> Drawing:
    """Draw figure 1 of the paper with these shapes, in pre-norm order, from the bottom to the top."""
    drawing = Drawing(770, 900, "The Transformer of model.py with the shapes of the walkthrough")
    width, height = 220, 36

    def stack(left: float, side: str, sublayers: Sequence[tuple[str, str, str]], n: int) -> float:
        """Draw the embeddings and the blocks of one side; return the y of what leaves them."""
        middle = left + width / 2
        drawing.text(middle, 880, f"{side} {shapes[side]}")
        drawing.arrow((middle, 862), (middle, 840))
        drawing.box(left, 804, width, height, "InputEmbeddings · √D", "embedding")
        drawing.arrow((middle, 804), (middle, 782), label=shapes[f"{side}_embed"])
        drawing.box(left, 746, width, height, "PositionalEncoding", "embedding", "and dropout")
        y = 746.0
        bottom = y - 14
        for text, kind, note in sublayers:
            # From the bottom to the top: the branch, the normalization, the sublayer, the sum.
            drawing.arrow((middle, y), (middle, y - 40))
            drawing.box(left, y - 66, width, 26, "LayerNormalization", "norm")
            drawing.arrow((middle, y - 66), (middle, y - 80))
            drawing.box(left, y - 120, width, 40, text, kind, note)
            drawing.arrow((middle, y - 120), (middle, y - 134))
            drawing.plus(middle, y - 143)
            drawing.arrow((middle, y - 20), (left - 14, y - 20), (left - 14, y - 143), (middle - 10, y - 143))
            y -= 152
        drawing.frame(left - 28, y - 6, width + 56, bottom - y + 6, f"{n} blocks")
        drawing.arrow((middle, y), (middle, y - 30))
        drawing.box(left, y - 56, width, 26, "LayerNormalization", "norm")
        return y - 56

    config = PRESETS["demo"]
    attention, decoder = "encoder.blocks.0.self_attention", "decoder.blocks.0"
    top = stack(
        70,
        "src",
        [
            ("Self-attention", "attention", f"{shapes[f'{attention}.heads']}, mask {shapes['src_mask']}"),
            ("FeedForwardBlock", "feed-forward", f"{config.d_model} → {config.d_ff} → {config.d_model}"),
        ],
        config.n_encoder_layers,
    )
    end = stack(
        490,
        "tgt",
        [
            (
                "Masked self-attention",
                "attention",
                f"{shapes[f'{decoder}.self_attention.heads']}, mask {shapes['tgt_mask']}",
            ),
            (
                "Attention to the source",
                "attention",
                f"{shapes[f'{decoder}.cross_attention.heads']}, mask {shapes['src_mask']}",
            ),
            ("FeedForwardBlock", "feed-forward", f"{config.d_model} → {config.d_ff} → {config.d_model}"),
        ],
        config.n_decoder_layers,
    )
    # The memory goes to the second sublayer of each decoder block.
    attends = 746 - 152 - 100
    drawing.arrow((180, top), (180, top - 26), (400, top - 26), (400, attends), (490, attends))
    drawing.text(290, top - 34, f"memory {shapes['encoder']}", small=True)
    drawing.arrow((600, end), (600, end - 26), label=shapes["decoder"])
    drawing.box(490, end - 62, width, height, "ProjectionLayer", "output", "the matrix of the embeddings")
    drawing.arrow((600, end - 62), (600, end - 88), label=shapes["projection"])
    drawing.text(600, end - 96, f"logits; the loss compares them with labels {shapes['labels']}")
    drawing.text(70, 40, "The Transformer of model.py", anchor="start")
    drawing.text(70, 62, "with the demo's sizes, two sentences of 8 and 9 tokens", anchor="start", small=True)
    drawing.text(70, 82, "and normalization before each sublayer (pre-norm)", anchor="start", small=True)
    return drawing


def batch() -> Drawing:
    """Draw what happens between the files of pairs and a translation."""
    drawing = Drawing(900, 452, "The way of a batch: from files of pairs to weights, and to a translation")
    width, height, gap = 190, 56, 36
    columns = [20 + i * (width + gap) for i in range(4)]

    def row(y: float, boxes: Sequence[tuple[str, str, str]], labels: Sequence[str]) -> None:
        for x, (text, note, kind) in zip(columns, boxes, strict=True):
            drawing.box(x, y, width, height, text, kind, note)
        for x, label in zip(columns, labels, strict=False):
            drawing.arrow((x + width, y + height / 2), (x + width + gap, y + height / 2))
            drawing.text(x + width + gap / 2, y + height / 2 - 8, label, small=True)

    drawing.text(20, 30, "Once, before the first step", anchor="start", small=True)
    row(
        40,
        [
            ("readers, cleaning", "pairs/", "data"),
            ("split by a hash", "pairs/selection.py", "data"),
            ("BPE vocabulary", "tapis/text/tokenizer.py", "embedding"),
            ("ids, sorted by length", "dataset.py: batches", "data"),
        ],
        ["", "", ""],
    )
    drawing.text(20, 136, "Each step", anchor="start", small=True)
    row(
        146,
        [
            ("batch", "dataset.py: collate; fast/", "data"),
            ("forward", "model.py", "attention"),
            ("loss, gradients", "training/objective.py", "output"),
            ("clip, Adam or Muon", "train.py: eager_step", "feed-forward"),
        ],
        ["ids", "", ""],
    )
    x, y = columns[3] + width / 2, 40 + height
    drawing.arrow((x, y), (x, y + 22), (columns[0] + width / 2, y + 22), (columns[0] + width / 2, 146))
    drawing.text(20, 252, "Each epoch", anchor="start", small=True)
    row(
        262,
        [
            ("validate", "training/trainer.py", "output"),
            ("translate", "decoding/", "attention"),
            ("BLEU, chrF", "tapis/scoring.py", "output"),
            ("save, if it is the best", "checkpoint.py", "data"),
        ],
        ["", "", ""],
    )
    y = 146 + height
    drawing.arrow((x, y), (x, y + 22), (columns[0] + width / 2, y + 22), (columns[0] + width / 2, 262))
    drawing.text(20, 358, "Afterwards, from weights/NAME", anchor="start", small=True)
    row(
        368,
        [
            ("text to sentences", "tapis/text/", "data"),
            ("search", "tapis/engine/, decoding/", "attention"),
            ("form restored", "tapis/text/, documents/", "data"),
            ("translation", "commands, server, Python", "output"),
        ],
        ["ids", "", ""],
    )
    return drawing


def figures() -> dict[str, str]:
    """Return the files, by their names."""
    return {"transformer.svg": transformer(recorded_shapes()).svg(), "batch.svg": batch().svg()}


if __name__ == "__main__":
    for name, text in figures().items():
        (PICTURES / name).write_text(text, encoding="utf-8")
