"""Sentences in, sentences out: the number of lines, the order, and that a batch changes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Command

from checkpoint import RunFolder
from config import Config
from dataset import collate, pad
from decoding.search import NEVER, Hypothesis, Search, beam_search
from model import Transformer
from system.devices import choose_device
from text.corpus import Corpus
from text.tokenizer import Tokenizer
from translate import Translator, model_step

CPU = torch.device("cpu")


@pytest.fixture
def untrained(model: Transformer, tokenizer: Tokenizer, tiny: Config) -> Translator:
    return Translator(model, tokenizer, tiny, CPU, "fp32")


SENTENCES = ["The cat.", "", "A very long sentence, with many words in it, and then some more.", "x", "  ", "The cat."]


@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
def test_batched_is_one_by_one(untrained: Translator, batch_tokens: int) -> None:
    one_by_one = [untrained([sentence])[0] for sentence in SENTENCES]
    assert untrained(SENTENCES, batch_tokens=batch_tokens) == one_by_one
    assert one_by_one[1] == one_by_one[4] == ""
    assert untrained([]) == []


def test_threads_change_nothing(untrained: Translator) -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(untrained(SENTENCES * 5, Search(beam=2), batch_tokens=60))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] and len(set(found[0])) > 2


def test_batched_is_one_by_one_when_trained(translator: Translator, demo: Corpus) -> None:
    sources = [source for source, _ in demo.test[:40]]
    assert translator(sources) == [translator([source])[0] for source in sources]


def test_a_step_gives_the_logits_of_the_whole_model(model: Transformer) -> None:
    src = torch.tensor([[50, 51, 3], [52, 3, 0]])
    step = model_step(model, src)
    step(torch.tensor([[2], [2]]), None)
    logits = step(torch.tensor([[60]]), torch.tensor([[1]]))[:, 0]
    memory_mask = (src[1:, :2] != 0)[:, None, None]
    tgt = torch.tensor([[2, 60]])
    whole = model(src[1:, :2], tgt, memory_mask, torch.ones(2, 2, dtype=torch.bool).tril())
    torch.testing.assert_close(logits, whole[:, 1])


def test_the_demo_learns_the_tutorials_sentence(translator: Translator) -> None:
    forms = ["The cat sits on the mat.", "The cat is sitting on the mat."]
    assert translator(forms) == ["Le chat est assis sur le tapis."] * 2


def test_lines_in_are_lines_out(run_folder: RunFolder, command: Command) -> None:
    text = "One.\n\nTwo\u2028still two.\r\n \x0b\n\x00\ud7ff</s>\nlast, with no end of line"
    done = command("translate.py", "--device", "cpu", text=text)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert len(lines) == 6 + 1 and lines[6] == ""
    assert lines[1] == lines[3] == ""
    assert done.stderr == "run tiny\n"


def test_arguments_are_one_line_each(run_folder: RunFolder, called: Command) -> None:
    done = called("translate.py", "--run", "tiny", "One.", "Two\nlines.", "")
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 3, "")


def test_a_closed_pipe_ends_quietly(run_folder: RunFolder) -> None:
    import subprocess
    import sys

    from conftest import ROOT

    process = subprocess.Popen(
        [sys.executable, str(ROOT / "translate.py"), "--run", "tiny"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(b"a\n" * 10)
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--run", "nope", "x"], 1, "no run 'nope'"),
        (["--rnu", "x"], 2, "did you mean --run"),
        (["--device", "cuda", "x"], 2, "--device cuda"),
    ],
)
def test_errors_are_two_lines(run_folder: RunFolder, command: Command, args: list[str], code: int, says: str) -> None:
    if "cuda" in args and choose_device("auto").type == "cuda":
        pytest.skip("there is a GPU here")
    done = command("translate.py", *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_input_that_is_not_utf8_is_an_error(run_folder: RunFolder) -> None:
    import subprocess
    import sys

    from conftest import ROOT

    done = subprocess.run(
        [sys.executable, str(ROOT / "translate.py"), "--run", "tiny"], input=b"\xff\n", capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"not UTF-8" in done.stderr and b"Traceback" not in done.stderr


def test_text_is_translated_by_the_sentence(translator: Translator) -> None:
    lines = [
        "The cat is sitting on the mat. The queen is tired! Is the dog sleeping?",
        "",
        "- The cat is sitting on the mat.",
        "2. The queen is tired!",
        "...",
        "   ",
        "1914",
    ]
    sentences = translator(["The cat is sitting on the mat.", "The queen is tired!", "Is the dog sleeping?"])
    assert [best.text for (best,) in translator.text(lines)] == [
        " ".join(sentences),
        "",
        "- " + sentences[0],
        "2. " + sentences[1],
        "...",
        "",
        "1914",
    ]


def test_a_sentence_longer_than_training_saw_is_translated_in_pieces(untrained: Translator) -> None:
    long = ", ".join(["the cat is sitting on the mat"] * 60) + "."
    seen: list[int] = []
    decode = untrained._decode

    def spy(sources: list[list[int]], search: Search) -> list[list[Hypothesis]]:
        seen.extend(map(len, sources))
        return decode(sources, search)

    untrained._decode = spy  # type: ignore[method-assign]
    assert len(untrained.text([long, "x" * 3000])) == 2
    assert max(seen) <= untrained.config.max_length
    assert sum(seen) >= len(untrained.tokenizer.encode([long])[0])


def test_beams_find_likelier_translations_than_greedy_search(untrained: Translator, demo: Corpus) -> None:
    """In the mean; of one sentence a wide beam may lose what a narrow one keeps. A beam of one is greedy search.

    Of an untrained model: a trained one may be so sure of the demo that greedy search misses nothing.
    """
    sources = [source for source, _ in demo.test[:60]]
    means = []
    for beam in (1, 2, 6):
        found = beam_scores(untrained, sources, Search(beam, n_best=beam, length_penalty=0.0))
        assert all(scores == sorted(scores, reverse=True) for scores in found)
        means.append(sum(scores[0] for scores in found) / len(found))
    assert means[0] < min(means[1:])


def beam_scores(translator: Translator, sources: list[str], search: Search) -> list[list[float]]:
    """Of each source, by beam search also where the beam is one."""
    with torch.inference_mode():
        src = pad(translator.tokenizer.encode(sources))
        found = beam_search(model_step(translator.model, src), torch.full((len(sources),), 60), search)
    return [[hypothesis.score for hypothesis in hypotheses] for hypotheses in found]


def test_a_beam_is_the_same_in_any_batch(translator: Translator, demo: Corpus) -> None:
    sources, search = [source for source, _ in demo.test[:20]], Search(beam=4, n_best=4)
    together = translator.n_best(sources, search)
    for source, found in zip(sources, together, strict=True):
        (alone,) = translator.n_best([source], search)
        assert [text for text, _ in found] == [text for text, _ in alone]
        assert [score for _, score in found] == pytest.approx([score for _, score in alone], abs=1e-4)


def test_the_score_is_the_models(translator: Translator) -> None:
    """log P of the tokens and EOS, by teacher forcing."""
    source = "The cat is sitting on the mat."
    ((best,),) = translator.n_best([source], Search(beam=4, length_penalty=0.0))
    batch = collate(translator.tokenizer.encode([source]), translator.tokenizer.encode([best.text]))
    logits = translator.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    logits[..., NEVER] = -torch.inf
    expected = logits[0].log_softmax(dim=-1).gather(1, batch.labels[0][:, None]).sum().item()
    assert best.score == pytest.approx(expected, abs=1e-3)


def test_n_best_lines_hold_score_and_text(
    trained: "subprocess.CompletedProcess[str]", command: Command, called: Command
) -> None:
    run = str(Path(trained.args[0]) / "weights/demo")
    lines = "The cat is sitting on the mat. The dog is sleeping.\n\n"
    done = command("translate.py", "--run", run, "--beam", "3", "--n-best", "2", text=lines)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.removesuffix("\n").split("\n")]
    assert len(rows) == 4 and all(len(row) == 2 for row in rows)
    assert float(rows[0][0]) >= float(rows[1][0])
    assert rows[0][1].startswith("Le chat est assis sur le tapis. ") and rows[0][1] != rows[1][1]
    assert [text for _, text in rows[2:]] == ["", ""]
    refused = called("translate.py", "--run", run, "--n-best", "2", "x")
    assert refused.returncode == 2 and "--n-best 2" in refused.stderr


def test_a_translation_imports_no_compiler(run_folder: RunFolder) -> None:
    """torch's takes as long as torch itself, and some operations import it, those on the device meta above all."""
    script = "import sys; sys.path.insert(0, sys.argv[1]); from translate import Translator; Translator.load()(['x'])"
    script += "; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, str(ROOT)], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "False\n"
