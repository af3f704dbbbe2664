"""Who attends to whom: the numbers are those of the translation, and the pictures show them."""

import itertools
import re
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import Command
from torch import Tensor

import model as model_module
from decoding.attention import END, Attention, cross_attention, draw, to_html
from decoding.search import Search
from text.tokenizer import Tokenizer
from translate import Translator

SENTENCE = "The cat is sitting on the mat."


def test_every_row_sums_to_one(translator: Translator) -> None:
    translation, found = translator.attention(SENTENCE)
    config = translator.config
    assert translation.text == translator([SENTENCE])[0]
    assert found.weights.shape == (config.n_decoder_layers, config.n_heads, len(found.target), len(found.source))
    assert found.source[-1] == found.target[-1] == END
    assert "".join(found.source[:-1]).replace("▁", " ") == " " + SENTENCE
    torch.testing.assert_close(found.weights.sum(dim=-1), torch.ones(found.weights.shape[:-1]))


def test_the_weights_are_those_of_the_translation(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cross-attention computes while the search goes on, step by step."""
    real, steps = model_module.attention_weights, list[Tensor]()

    def noted(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        weights = real(query, key, mask)
        steps.append(weights)
        return weights

    monkeypatch.setattr(model_module, "attention_weights", noted)
    translator([SENTENCE])
    monkeypatch.undo()
    _, found = translator.attention(SENTENCE)
    layers, _, n_target, n_source = found.weights.shape
    decoding = steps[translator.config.n_encoder_layers :]
    of_a_step = 2 * layers  # to itself, then to the source, in each layer
    assert len(decoding) == of_a_step * n_target
    for layer in range(layers):
        rows = [decoding[of_a_step * t + 2 * layer + 1] for t in range(n_target)]
        torch.testing.assert_close(found.weights[layer], torch.cat(rows, dim=2)[0])
        assert rows[0].size(-1) == n_source


def test_a_word_is_looked_at_when_it_is_translated(translator: Translator) -> None:
    """The demo learns the diagonal: in the mean over heads of some layer, `chat` looks at `cat`."""
    _, found = translator.attention(SENTENCE)
    mean = found.weights.mean(dim=1)[:, found.target.index("▁chat")]
    assert found.source.index("▁cat") in mean.argmax(dim=-1).tolist()


def test_beam_searchs_translation_is_the_one_that_is_shown(translator: Translator) -> None:
    search = Search(beam=4)
    assert translator.attention(SENTENCE, search)[0] == translator.n_best([SENTENCE], search)[0][0]


def test_tokens_of_all_kinds_can_be_read(translator: Translator, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(["Tu dors, né 猫\t🙂"])[0]
    pieces = tokenizer.pieces(ids)
    assert all(piece.isprintable() and piece for piece in pieces)
    shown = b"".join(
        bytes.fromhex(piece[1:-1]) if piece[0] == "⟨" else piece.replace("▁", " ").encode() for piece in pieces
    )
    assert shown.decode() == " Tu dors, né 猫 🙂"
    found = cross_attention(translator.model, translator.tokenizer, [50, 51], [])
    assert found.weights.shape[2:] == (1, 3) and found.target == [END]


def maps(n_target: int, n_source: int, n_heads: int = 4) -> Attention:
    weights = torch.rand(2, n_heads, n_target, n_source).softmax(dim=-1)
    return Attention(weights, [f"s<{i}>" for i in range(n_source)], [f"t&{i}" for i in range(n_target)])


def test_one_head_or_all_and_their_mean() -> None:
    found = maps(3, 4)
    named = found.maps(1)
    assert [name for name, _ in named] == ["mean of the heads", "head 1", "head 2", "head 3", "head 4"]
    torch.testing.assert_close(named[0][1], torch.stack([values for _, values in named[1:]]).mean(dim=0))
    ((name, values),) = found.maps(0, head=2)
    assert name == "head 3" and torch.equal(values, found.weights[0, 2])


@pytest.mark.parametrize("size", [5, 40])
def test_no_label_touches_another(size: int) -> None:
    """What readable means: every token's label stands in the figure, apart from its neighbours."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    found = maps(size, size)
    figure = draw(found.maps(0), found.source, found.target, "a title")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    (plane,) = figure.axes
    assert [image.get_array().shape for image in plane.images] == [(size, size)] * 5  # type: ignore[union-attr]
    assert plane.texts[0].get_text() == "a title"
    labels = iter(plane.texts[1:])
    for _ in range(5):
        next(labels)  # the name
        for tokens, side in ((found.source, "x"), (found.target, "y")):
            texts = [next(labels) for _ in tokens]
            assert [text.get_text() for text in texts] == tokens
            boxes = [text.get_window_extent() for text in texts]
            spans = sorted((box.x0, box.x1) if side == "x" else (box.y0, box.y1) for box in boxes)
            assert all(one[1] <= other[0] + 0.5 for one, other in itertools.pairwise(spans))
            assert all(figure.bbox.contains(box.x0, box.y0) and figure.bbox.contains(box.x1, box.y1) for box in boxes)
    assert not list(labels)


def test_the_page_tells_every_weight_and_escapes_what_it_shows() -> None:
    found = maps(2, 3)
    page = to_html(found.maps(0), found.source, found.target, "<script>")
    assert page.count("<table>") == 5 and page.count("<td ") == 5 * 2 * 3
    assert "<script>" not in page and "s<0>" not in page and "s&lt;0&gt;" in page
    told = [float(share) for share in re.findall(r"← s&lt;\d&gt;: ([\d.]+)%", page)]
    assert sum(told) == pytest.approx(100 * 5 * 2, abs=0.5)


Trained = subprocess.CompletedProcess[str]


def test_the_command_draws(trained: Trained, called: Command) -> None:
    run = ["--run", f"{trained.args[0]}/weights/demo"]
    plain = called("translate.py", *run, SENTENCE)
    for name, more in (("a.png", []), ("b.html", ["--layer", "1", "--head", "2", "--beam", "3"])):
        done = called("translate.py", *run, SENTENCE, "--attention", name, *more)
        assert done.returncode == 0, done.stderr
        assert done.stdout == plain.stdout and name in done.stderr
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    page = Path("b.html").read_text(encoding="utf-8")
    assert page.count("<table>") == 1 and "head 2" in page and "layer 1 of 2" in page


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([SENTENCE, "--attention", "a.pdf"], ".png or .html"),
        ([SENTENCE, "--attention", "a.png", "--layer", "3"], "--layer is 3"),
        ([SENTENCE, "--attention", "a.png", "--head", "-1"], "--head is -1"),
        (["One is here. Two are there.", "--attention", "a.png"], "one sentence"),
        (["", "--attention", "a.png"], "one sentence"),
        (["2. 1914", "--attention", "a.png"], "one sentence"),
    ],
)
def test_what_cannot_be_drawn_is_said(trained: Trained, called: Command, args: list[str], says: str) -> None:
    done = called("translate.py", "--run", f"{trained.args[0]}/weights/demo", *args)
    assert done.returncode == 2 and says in done.stderr and len(done.stderr.splitlines()) <= 2
    assert not Path("a.png").exists() and done.stdout == ""
