"""Which parts of model.py fast forms replace, and whether a user has edited them.

Training and torch's searches call most of model.py directly. They replace the parts in `REPLACED` by faster forms that
compute the same. If a user edits one of these parts, they call the plain parts instead, so that the edit takes effect.
Comments, docstrings and blank lines do not count as edits.

This module does not import torch.
"""

import ast
import hashlib
import io
import textwrap
import tokenize
from functools import cache
from pathlib import Path

MODEL = Path(__file__).parent.parent / "model.py"

# A digest of the lines of each class, each function, and each method of `Transformer`. A test fails when model.py
# changes, and prints the new digests. Make the fast forms compute what the new lines do before you copy them here.
WRITTEN_FOR = {
    "InputEmbeddings": "7240f26b003a",
    "PositionalEncoding": "18679944cc8c",
    "LayerNormalization": "4d41b8333b14",
    "FeedForwardBlock": "d47a0d3da615",
    "attention_weights": "714be46ef2de",
    "scaled_dot_product_attention": "10d521fb0e0c",
    "Attend": "8ad74e849972",
    "MultiHeadAttentionBlock": "dc844d3de1ab",
    "MaskedAttention": "9f0f2c1ef98a",
    "KeyValueCache": "f609ebcf9926",
    "DecoderCache": "df1644c4565d",
    "CachedSelfAttention": "6639b92a03f8",
    "CachedSourceAttention": "d0d22a985600",
    "ResidualConnection": "fb8883338353",
    "EncoderBlock": "aee110c4ed19",
    "Encoder": "40110fa8734a",
    "DecoderBlock": "5b93d4619cfe",
    "Decoder": "021fd8d7b5c1",
    "ProjectionLayer": "98e22ac26975",
    "Transformer.__init__": "baa155dcd8f0",
    "Transformer.encode": "7170d2898981",
    "Transformer.decode": "275a85703579",
    "Transformer.project": "74cf27c1d003",
    "Transformer.forward": "1bd975fba664",
}

REPLACED = (
    "LayerNormalization",
    "attention_weights",
    "scaled_dot_product_attention",
    "MultiHeadAttentionBlock",
    "MaskedAttention",
    "KeyValueCache",
    "DecoderCache",
    "CachedSelfAttention",
    "CachedSourceAttention",
    "ProjectionLayer",
    "Transformer.encode",
    "Transformer.decode",
    "Transformer.project",
    "Transformer.forward",
)

_LAYOUT = {tokenize.NEWLINE: "\n", tokenize.INDENT: "{", tokenize.DEDENT: "}"}
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}


def digests(text: str) -> dict[str, str]:
    """Return a digest of each class and function of a module; of each method of `Transformer`, by Transformer.NAME."""
    lines = text.splitlines(keepends=True)
    found = {}
    for node in ast.parse(text).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        parts = {node.name: node}
        if node.name == "Transformer":
            parts = {f"Transformer.{part.name}": part for part in node.body if isinstance(part, ast.FunctionDef)}
        for name, part in parts.items():
            first = min([part.lineno, *(decorator.lineno for decorator in part.decorator_list)])
            found[name] = _digest("".join(lines[first - 1 : part.end_lineno]))
    return found


def _digest(text: str) -> str:
    """Return a digest of lines, without their comments, docstrings, blank lines and common indentation."""
    read = io.StringIO(textwrap.dedent(text)).readline
    words = [word for word in tokenize.generate_tokens(read) if word.type not in _NO_CODE]
    code = hashlib.sha256()
    previous = tokenize.NEWLINE
    for word, following in zip(words, [*words[1:], None], strict=True):
        is_docstring = (
            word.type == tokenize.STRING
            and previous in _LAYOUT
            and (following is None or following.type == tokenize.NEWLINE)
        )
        previous = word.type
        if not is_docstring:
            code.update(_LAYOUT.get(word.type, word.string).encode() + b" ")
    return code.hexdigest()[:12]


@cache
def edited_parts() -> tuple[str, ...]:
    """Return the parts of model.py that a user has edited, removed or added."""
    try:
        found = digests(MODEL.read_text(encoding="utf-8"))
    except SyntaxError:  # importing it will say what is wrong
        found = {}
    return tuple(name for name in found | WRITTEN_FOR if found.get(name) != WRITTEN_FOR.get(name))


def edited_replaced_parts() -> tuple[str, ...]:
    """Return the edited parts that fast forms would replace."""
    return tuple(name for name in edited_parts() if name in REPLACED)
