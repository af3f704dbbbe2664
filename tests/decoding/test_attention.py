"""Cross-attention weights are those of the translation, and the pictures show every one of them."""

import io
import itertools
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Command
from numpy.typing import NDArray
from torch import Tensor

import model as model_module
from checkpoint import RunFolder
from decoding.attention import attentions, cross_attention
from decoding.torch_searcher import TorchSearcher
from decoding.translator import Translator
from model import Transformer
from pairs.corpus import Corpus
from tapis.attention import END, START, Attention, draw, quiet, to_html, word_alignment
from tapis.config import ConfigError
from tapis.search import Search
from tapis.text.tokenizer import Tokenizer
from tapis.translator import ALIGNED_TOGETHER

SENTENCE = "The cat is sitting on the mat."


def test_each_row_of_weights_sums_to_one(translator: Translator) -> None:
    translation, attention = translator.attention(SENTENCE)
    config = translator.config
    assert translation.text == translator([SENTENCE])[0]
    shape = (config.n_decoder_layers, config.n_heads, len(attention.target), len(attention.source))
    assert attention.weights.shape == shape
    assert attention.source[-1] == attention.target[-1] == END
    assert "".join(attention.source[:-1]).replace("▁", " ") == " " + SENTENCE
    np.testing.assert_allclose(attention.weights.sum(axis=-1), np.ones(shape[:-1]), rtol=1e-5)


def test_weights_equal_those_computed_during_the_search(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Record every call of `attention_weights` while the translator searches.
    attention_weights, calls = model_module.attention_weights, list[Tensor]()

    def recording(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        weights = attention_weights(query, key, mask)
        calls.append(weights)
        return weights

    monkeypatch.setattr(model_module, "attention_weights", recording)
    translator([SENTENCE])
    monkeypatch.undo()
    _, attention = translator.attention(SENTENCE)
    layers, _, n_target, n_source = attention.weights.shape

    # The encoder calls it once per layer; each decoding step once per layer for itself and once for the source.
    n_encoder = translator.config.n_encoder_layers
    encoder_calls, decoder_calls = calls[:n_encoder], calls[n_encoder:]
    calls_per_step = 2 * layers
    assert len(decoder_calls) == calls_per_step * n_target
    for layer in range(layers):
        steps = [decoder_calls[calls_per_step * t + 2 * layer + 1] for t in range(n_target)]  # (1, H, 1, S + 1)
        np.testing.assert_allclose(attention.weights[layer], torch.cat(steps, dim=2)[0].numpy(), rtol=1e-4, atol=1e-6)
        assert steps[0].size(-1) == n_source

    _, of_encoder = translator.attention(SENTENCE, of="encoder")
    assert of_encoder.source == of_encoder.target == attention.source
    for of_layer, call in zip(of_encoder.weights, encoder_calls, strict=True):
        np.testing.assert_allclose(of_layer, call[0].numpy(), rtol=1e-4, atol=1e-6)

    _, of_decoder = translator.attention(SENTENCE, of="decoder")
    assert of_decoder.source == [START, *attention.target[:-1]] and of_decoder.target == attention.target
    for layer in range(layers):
        for t in range(n_target):  # a token attends to START and to those before it
            row, call = of_decoder.weights[layer, :, t], decoder_calls[calls_per_step * t + 2 * layer]
            np.testing.assert_allclose(row[:, : t + 1], call[0, :, 0].numpy(), rtol=1e-4, atol=1e-6)
            assert not row[:, t + 1 :].any()


def test_weights_of_a_batch_are_those_of_each_pair_alone(model: Transformer, tokenizer: Tokenizer) -> None:
    pairs = [
        ("The cat.", "Le chat."),
        ("A very long sentence, with many words.", "x"),
        ("x", "Une longue phrase."),
        ("", "a"),
    ]
    sources, targets = (tokenizer.encode(side) for side in zip(*pairs, strict=True))
    for together, source, target in zip(attentions(model, sources, targets), sources, targets, strict=True):
        alone = cross_attention(model, source, target)
        np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)


def test_weights_of_another_thread_are_not_recorded(model: Transformer, tokenizer: Tokenizer) -> None:
    """As in a server, whose two threads use one model."""
    sources = tokenizer.encode([f"The cat number {i} is here." for i in range(40)])
    alone = [cross_attention(model, source, source) for source in sources]
    with ThreadPoolExecutor(4) as pool:
        for one, expected in zip(
            pool.map(lambda source: cross_attention(model, source, source), sources), alone, strict=True
        ):
            np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-6)


def test_a_target_word_attends_most_to_its_source_word(translator: Translator) -> None:
    """The demo learns to align words: in the mean over heads of some layer, `chat` attends most to `cat`."""
    _, attention = translator.attention(SENTENCE)
    of_chat = attention.weights.mean(axis=1)[:, attention.target.index("▁chat")]  # (layers, S + 1)
    assert attention.source.index("▁cat") in of_chat.argmax(axis=-1).tolist()


def test_attention_is_that_of_a_sentence_without_its_line_end(translator: Translator) -> None:
    assert translator.attention(f"{SENTENCE}\r\n")[0] == translator.attention(SENTENCE)[0]
    with pytest.raises(ConfigError, match="blank"):
        translator.attention(" \n")


def test_attention_of_a_beam_search_is_that_of_its_best_translation(translator: Translator) -> None:
    search = Search(beam=4)
    assert translator.attention(SENTENCE, search)[0] == translator.n_best([SENTENCE], search)[0][0]


def test_tokens_of_any_characters_are_printable(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(["Tu dors, né 猫\t🙂"])[0]
    pieces = tokenizer.pieces(ids)
    assert all(piece.isprintable() and piece for piece in pieces)
    joined = b"".join(
        bytes.fromhex(piece[1:-1]) if piece[0] == "⟨" else piece.replace("▁", " ").encode() for piece in pieces
    )
    assert joined.decode() == " Tu dors, né 猫 🙂"


def test_an_empty_translation_has_one_row_of_weights(translator: Translator) -> None:
    assert isinstance(translator.searcher, TorchSearcher)
    weights = cross_attention(translator.searcher.model, [50, 51], [])
    assert weights.shape[2:] == (1, 3)
    assert Attention.of(weights, translator.tokenizer, [50, 51], []).target == [END]


def random_attention(n_target: int, n_source: int, n_heads: int = 4) -> Attention:
    weights = torch.rand(2, n_heads, n_target, n_source).softmax(dim=-1).numpy()
    return Attention(weights, [f"s<{i}>" for i in range(n_source)], [f"t&{i}" for i in range(n_target)])


def test_the_weights_of_pairs_that_are_aligned_together_are_bounded(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = Translator.load(run_folder.path, "cpu", "fp32")
    pairs = [("The cat sleeps. " * i, "Le chat dort. " * (5 - i)) for i in (1, 4, 3, 2)] + [("a", "b")] * 40
    expected = translator.alignments(pairs)
    attention, batches = translator.searcher.attention, []

    def noted(*args: Any) -> list[NDArray[np.float32]]:
        batches.append(attention(*args))
        return batches[-1]

    monkeypatch.setattr(translator.searcher, "attention", noted)
    for most in (10_000_000, 5_000):
        batches.clear()
        monkeypatch.setattr("tapis.translator.MOST_WEIGHTS", most)
        for one, other in zip(translator.alignments(pairs), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
        assert sum(map(len, batches)) == len(pairs) and max(map(len, batches)) <= ALIGNED_TOGETHER
        assert all(sum(one.size for one in batch) <= most for batch in batches if len(batch) > 1)


def test_threads_share_the_alignments(translator: Translator, demo: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [*demo.test[:70]]
    alignments = translator.alignments(pairs)
    assert [one.shape for one in alignments] == [(len(t.split()), len(s.split())) for s, t in pairs]
    alone = [translator.alignments([pair])[0] for pair in pairs[::10]]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    for one, other in zip(translator.alignments(pairs)[::10], alone, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_word_may_begin_with_a_part_of_a_character() -> None:
    """Such as ⟨20 e2 80⟩, the token of a space and the beginning of a quotation mark."""
    tokenizer = Tokenizer.train(["“a” … – École Ça à"] * 5, 264)
    source, target = "“Yes”, he says … – at school", "“Oui”, dit-il … – à l'École. Ça va"
    (source_ids, target_ids) = tokenizer.encode([source, target])
    begins_word = [piece.startswith("⟨20 ") for piece in tokenizer.pieces(target_ids)]
    assert sum(begins_word) >= 5
    weights = random_attention(len(target_ids) + 1, len(source_ids) + 1).weights
    attention = Attention.of(weights, tokenizer, source_ids, target_ids)
    assert word_alignment(attention).shape == (len(target.split()), len(source.split()))
    goes_on, *_ = tokenizer.word_borders
    assert not goes_on[np.array(target_ids)[begins_word]].any()


def test_maps_are_one_head_or_the_mean_and_all_heads() -> None:
    attention = random_attention(3, 4)
    maps = attention.maps(1)
    assert [name for name, _ in maps] == ["mean of the heads", "head 1", "head 2", "head 3", "head 4"]
    np.testing.assert_allclose(maps[0][1], np.mean([weights for _, weights in maps[1:]], axis=0), rtol=1e-6)
    ((name, weights),) = attention.maps(0, head=2)
    assert name == "head 3" and np.array_equal(weights, attention.weights[0, 2])


@pytest.mark.parametrize("size", [5, 40])
def test_labels_fit_the_figure_and_do_not_overlap(size: int) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    attention = random_attention(size, size)
    figure = draw(attention.maps(0), attention.source, attention.target, "a title")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    (axes,) = figure.axes
    assert [image.get_array().shape for image in axes.images] == [(size, size)] * 5  # type: ignore[union-attr]

    # The title, then for each of five maps its name, the source tokens and the target tokens.
    assert axes.texts[0].get_text() == "a title"
    labels_per_map = 1 + 2 * size
    assert len(axes.texts) == 1 + 5 * labels_per_map
    for first in range(1, len(axes.texts), labels_per_map):
        source_labels = axes.texts[first + 1 : first + 1 + size]
        target_labels = axes.texts[first + 1 + size : first + labels_per_map]
        for tokens, labels, axis in ((attention.source, source_labels, "x"), (attention.target, target_labels, "y")):
            assert [label.get_text() for label in labels] == tokens
            boxes = [label.get_window_extent() for label in labels]
            spans = sorted((box.x0, box.x1) if axis == "x" else (box.y0, box.y1) for box in boxes)
            assert all(one[1] <= other[0] + 0.5 for one, other in itertools.pairwise(spans))
            assert all(figure.bbox.contains(box.x0, box.y0) and figure.bbox.contains(box.x1, box.y1) for box in boxes)


@pytest.mark.parametrize("text", ["C$ 5% more than A$ 4", r"$^^$ \frac{", "$$", "\0\ue000\U0001f600", "$" * 99])
def test_any_text_is_drawn_as_it_is(text: str, recwarn: pytest.WarningsRecorder) -> None:
    """Two dollar signs enclose mathematics in matplotlib, where nothing tells it that they do not."""
    figure = draw([(text, np.eye(2, dtype=np.float32))], [text, END], [text, END], text)
    with quiet():
        figure.savefig(io.BytesIO(), format="png")
    assert not recwarn.list


def test_html_contains_every_weight_and_is_escaped() -> None:
    attention = random_attention(2, 3)
    page = to_html(attention.maps(0), attention.source, attention.target, "<script>")
    assert page.count("<table>") == 5 and page.count("<td ") == 5 * 2 * 3
    assert "<script>" not in page and "s<0>" not in page and "s&lt;0&gt;" in page
    percentages = [float(percentage) for percentage in re.findall(r"← s&lt;\d&gt;: ([\d.]+)%", page)]
    assert sum(percentages) == pytest.approx(100 * 5 * 2, abs=0.5)


Trained = subprocess.CompletedProcess[str]


def test_the_command_writes_png_and_html(trained: Trained, called: Command) -> None:
    run = ["--run", f"{trained.args[0]}/weights/demo"]
    plain = called("translate.py", *run, SENTENCE)
    for name, options in (
        ("a.png", []),
        ("b.html", ["--layer", "1", "--head", "2", "--beam", "3"]),
        ("c.html", ["--attention-of", "encoder"]),
    ):
        done = called("translate.py", *run, SENTENCE, "--attention", name, *options)
        assert done.returncode == 0, done.stderr
        assert done.stdout == plain.stdout and name in done.stderr
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    page = Path("b.html").read_text(encoding="utf-8")
    assert page.count("<table>") == 1 and "head 2" in page and "layer 1 of 2" in page
    assert "encoder layer 2 of 2" in Path("c.html").read_text(encoding="utf-8")


def test_a_picture_needs_matplotlib(trained: Trained, called: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the package tapis comes without."""
    monkeypatch.setattr("tapis.commands.translate.find_spec", lambda name: None)
    run = ["--run", f"{trained.args[0]}/weights/demo", SENTENCE]
    done = called("translate.py", *run, "--attention", "a.png")
    assert done.returncode == 2 and "pip install matplotlib, or name an .html file" in done.stderr
    assert called("translate.py", *run, "--attention", "a.html").returncode == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([SENTENCE, "--attention", "a.pdf"], ".png or .html"),
        ([SENTENCE, "--attention", "a.png", "--layer", "3"], "--layer is 3"),
        ([SENTENCE, "--attention", "a.png", "--head", "-1"], "--head is -1"),
        (["One is here. Two are there.", "--attention", "a.png"], "one sentence"),
        (["", "--attention", "a.png"], "one sentence"),
        ([SENTENCE, "--attention", "a.png", "--attention-of", "decoder", "--precision", "int8"], "--precision fp32"),
        (["2. 1914", "--attention", "a.png"], "one sentence"),
        ([SENTENCE, "--layer", "1"], "--layer is for --attention FILE"),
        ([SENTENCE, "--attention-of", "encoder"], "--attention-of is for --attention FILE"),
    ],
)
def test_attention_that_cannot_be_drawn_is_an_error(
    trained: Trained, called: Command, args: list[str], message: str
) -> None:
    done = called("translate.py", "--run", f"{trained.args[0]}/weights/demo", *args)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) <= 2
    assert not Path("a.png").exists() and done.stdout == ""
