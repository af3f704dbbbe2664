"""Exports and releases: same translations as the run, complete folders or none, and checksums before loading."""

import errno
import gzip
import html
import io
import json
import math
import re
import runpy
import shutil
import struct
import subprocess
import sys
import tarfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SHARED, Command, needs_shared, saved_untrained
from markdown_it import MarkdownIt

import tapis
from checkpoint import RunFolder, parameters
from config import Config
from dataset import causal_mask, pad, padding_mask
from decoding.torch_searcher import TorchSearcher
from decoding.translator import Translator
from exporting.card import card
from exporting.ctranslate2 import to_ctranslate2
from exporting.hugging_face import to_hugging_face
from exporting.naming import data_name, max_positions, public
from exporting.release import pack, to_release
from exporting.web import web_facts
from model import Transformer
from pairs.corpus import Corpus
from pairs.report import DataReport
from tapis.config import BOS, EOS, ConfigError, Learned, TapisError
from tapis.ctranslate2 import EngineError
from tapis.engine import engine
from tapis.scoring import score
from tapis.search import Search
from tapis.system.files import whole_folder
from tapis.system.hub import SUMS, FetchError, check_sums, fetch, write_sums
from tapis.system.terminal import escape_controls
from tapis.text.lines import lines
from tapis.text.tokenizer import Tokenizer
from training.metrics import AncestorRecord, Metrics, load_metrics

CPU = torch.device("cpu")
TEXTS = ["The cat sits.", "", "Two dogs and a very small cat sleep in a garden, l'homme mange.", "</s> 7 x", "A."]


def exported(folder: RunFolder, quantization: str = "float32") -> Translator:
    """Export a run to CTranslate2's format, and load the export."""
    out = Path(f"out-{quantization}")
    whole_folder(out, lambda into: to_ctranslate2(folder, into, quantization))
    translator = Translator.load(out, "cpu")
    assert not translator.searcher.can_force
    return translator


def log_prob(model: Transformer, source: list[int], target: list[int]) -> float:
    """log P(target, EOS | source), computed without a cache."""
    src, tgt = pad([source]), pad([target], before=[BOS], after=())
    with torch.no_grad():
        log_probs = model(src, tgt, padding_mask(src), causal_mask(tgt.size(1), CPU))[0].log_softmax(-1)
    return sum(float(log_probs[i, token]) for i, token in enumerate([*target, EOS]))


def compare(own: Translator, engine: Translator, sources: list[str]) -> tuple[int, int]:
    """Count the greedy translations that differ, and those by beam search that are better. Fails if one is worse."""
    assert isinstance(own.searcher, TorchSearcher)
    # Greedy search: a translation may differ only if both are equally probable.
    ids = own.tokenizer.encode
    ties = 0
    for source, ours, theirs in zip(sources, own(sources), engine(sources), strict=True):
        if ours != theirs:
            log_probs = [log_prob(own.searcher.model, ids([source])[0], ids([text])[0]) for text in (ours, theirs)]
            assert log_probs[0] == pytest.approx(log_probs[1], abs=0.02), (source, ours, theirs)
            ties += 1

    # Beam search: the engine stops once it has K results; ours may continue and find a better one.
    search = Search(beam=4, n_best=4)
    better = 0
    for own_results, results in zip(own.n_best(sources, search), engine.n_best(sources, search), strict=True):
        scores = [result.score for result in results]
        assert scores == sorted(scores, reverse=True)
        # Equal texts may be of different tokens, and so have different scores.
        assert own_results[0].score > scores[0] - 1e-3
        better += own_results[0].score > scores[0] + 1e-3
    return ties, better


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("tie", [True, False])
def test_ctranslate2_gives_the_same_translations(
    norm: str, tie: bool, tiny: Config, tokenizer: Tokenizer, demo: Corpus
) -> None:
    folder = saved_untrained(replace(tiny, norm=norm, tie_embeddings=tie), tokenizer)  # type: ignore[arg-type]
    own, engine = Translator.load("one", "cpu", "fp32"), exported(folder)
    sources = [source for source, _ in demo.test[:60]]
    translations = own(sources)
    assert len(set(translations)) > 5
    assert sum(a == b for a, b in zip(translations, engine(sources), strict=True)) >= 58


def test_ctranslate2_gives_the_same_translations_with_a_trained_model(
    demo_run: RunFolder, translator: Translator, demo: Corpus
) -> None:
    engine = exported(demo_run)
    sources = [source for source, _ in demo.test]
    ties, better = compare(translator, engine, sources)
    assert ties <= 2 and better <= 0.03 * len(sources)
    assert engine(["The cat is sitting on the mat.", " "]) == ["Le chat est assis sur le tapis.", ""]
    int8 = exported(demo_run, "int8")
    references = [target for _, target in demo.test]
    bleu_float32, bleu_int8 = (score(one(sources), references, "fr").bleu for one in (engine, int8))
    assert bleu_int8 > bleu_float32 - 0.3
    with pytest.raises(ConfigError, match="no attention"):
        int8.attention("The cat.")
    assert sum(file.stat().st_size for file in Path("out-int8").iterdir()) < 0.5 * demo_run.model_file.stat().st_size


def test_the_exported_folder_translates_with_and_without_tapis(
    demo_run: RunFolder, command: Command, forked: Command, called: Command
) -> None:
    done = command("export.py", "--run", str(demo_run.path), "--to", "ctranslate2", "out")
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
    text = "The cat sits on the mat.\n- Our cat does not run.\n\n"
    args = ["--beam", "3", "--n-best", "2", "--device", "cpu"]
    engine = forked("translate.py", "--run", "out", *args, text=text)
    own = forked("translate.py", "--run", str(demo_run.path), *args, "--precision", "fp32", text=text)
    assert (engine.returncode, engine.stderr) == (0, "")
    ours, theirs = ([line.split("\t") for line in done.stdout.splitlines()] for done in (own, engine))
    assert [text for _, text in ours[::2]] == [text for _, text in theirs[::2]]
    assert all(abs(float(a) - float(b)) < 2e-3 for (a, _), (b, _) in zip(ours[::2], theirs[::2], strict=True))
    example = [sys.executable, "-I", "out/example.py", "The cat sits on the mat.", "Our cat does not run."]
    alone = subprocess.run(example, capture_output=True, encoding="utf-8", check=True)
    assert alone.stdout.splitlines()[0] == "Le chat est assis sur le tapis."
    twice = called("export.py", "--run", "out", "--release", "more")
    assert twice.returncode == 2 and "out is an export already" in twice.stderr and not Path("more").exists()
    again = called("export.py", "--run", str(demo_run.path), "--to", "ctranslate2", "out")
    assert again.returncode == 2 and again.stderr == "export.py: out already exists: name a new folder\n"


def test_the_example_of_an_export_cuts_neither_texts_nor_translations(
    tiny: Config, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A translation ends with the positions of the model, and a longer text is an error."""
    folder, model = RunFolder(Path("weights/endless")), Transformer(len(tokenizer), replace(tiny, max_length=210))
    the = tokenizer.encode(["the"])[0][0]
    with torch.no_grad():  # it repeats "the", and EOS is its last choice
        embeddings = model.src_embed.embedding.weight
        embeddings[the] *= 10
        embeddings[EOS] = -embeddings[the]
        parameters(model)["decoder.norm.alpha"].zero_()
        parameters(model)["decoder.norm.bias"].copy_(embeddings[the])
    folder.start(model.config, tokenizer)
    folder.save_model(parameters(model))
    exported(folder)

    longest = max_positions(model.config)
    assert longest > 1024  # what CTranslate2 reads of a text by default; of a translation, 256
    monkeypatch.setattr(sys, "argv", ["example.py", "A cat."])
    runpy.run_path("out-float32/example.py")
    assert capsys.readouterr().out.split() == ["the"] * longest
    monkeypatch.setattr(sys, "argv", ["example.py", "the " * longest])
    with pytest.raises(RuntimeError, match="position"):
        runpy.run_path("out-float32/example.py")


@pytest.mark.parametrize("kind", ["int8", "float16"])
def test_the_command_quantizes(kind: str, run_folder: RunFolder, called: Command) -> None:
    for name, more in (("whole", []), ("small", ["--quantization", kind])):
        assert called("export.py", "--run", "tiny", "--to", "ctranslate2", name, *more).returncode == 0
    assert Path("small/model.bin").stat().st_size < Path("whole/model.bin").stat().st_size
    assert Translator.load("small", "cpu")(["A cat."])


@pytest.mark.parametrize(("error", "code"), [(OSError("the disk is full"), 1), (KeyboardInterrupt(), 130)])
def test_a_release_whose_archive_fails_leaves_nothing(
    run_folder: RunFolder, called: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("export.pack", fail)
    done = called("export.py", "--run", "tiny", "--release", "given")
    assert done.returncode == code and str(error) in done.stderr
    assert [path.name for path in Path().iterdir()] == ["weights"]


def test_an_export_knows_no_other_gpu_than_cudas(run_folder: RunFolder, called: Command) -> None:
    exported(run_folder)
    done = called("translate.py", "--run", "out-float32", "--device", "mps", "A cat.")
    assert done.returncode == 2
    assert done.stderr == "translate.py: --device mps: an export for CTranslate2 computes on cpu or cuda\n"


def test_a_release_replaces_no_archive(demo_run: RunFolder, called: Command) -> None:
    Path("given.tar.gz").write_bytes(b"of someone")
    done = called("export.py", "--run", str(demo_run.path), "--release", "given")
    assert done.returncode == 2 and "given.tar.gz already exists" in done.stderr
    assert Path("given.tar.gz").read_bytes() == b"of someone" and not Path("given").exists()


def shape(*sizes: int) -> bytes:
    """A shape as model.bin has it."""
    return struct.pack(f"<B{len(sizes)}I", len(sizes), *sizes)


ALIBI = b"decoder/alibi_use_positive_positions"
HEADS = b"decoder/num_heads\0" + struct.pack("<BBI", 0, 2, 2)


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("shared_vocabulary.json", b'"!"', b'"!", "one more"', "has other tokens"),
        ("shared_vocabulary.json", b'"!"', b'"another"', "has other tokens"),
        ("shared_vocabulary.json", b'"!"', b"[" * 100_000, "recursion"),
        ("source_vocabulary.json", b"", b"[]", "source_vocabulary.json is none of its files"),
        ("vmap.txt", b"", b"x", "vmap.txt is none of its files"),
        ("config.json", b'"multi_query_attention": false', b'"multi_query_attention": true', "has other settings"),
        ("config.json", b"{", b"[{", ""),
        ("model.bin", b"", b"\0", "another length than it says"),
        ("model.bin", b"TransformerSpec", b"AnotherOneSpecX", "another kind"),
        ("model.bin", HEADS + b"\2", HEADS + b"\7", "decoder/num_heads"),
        ("model.bin", shape(300, 16), shape(150, 32), "decoder/embeddings/weight"),
        ("model.bin", shape(300, 16), shape(300, 15), "decoder/embeddings/weight of model.bin has a wrong size"),
        ("model.bin", shape(32, 16), shape(16, 32), "/attention/linear_1/weight"),
        ("model.bin", b"layer_0", b"layer_9", "has no decoder/layer_0"),
        ("model.bin", b"decoder/layer_0/ffn", b"decoder/layer_1/ffn", "has decoder/layer_1/ffn/layer_norm/beta twice"),
        ("model.bin", HEADS, HEADS[:-5] + b"\5" + HEADS[-4:], "decoder/num_heads of model.bin is in bfloat16"),
        ("model.bin", HEADS, HEADS[:-5] + b"\4" + HEADS[-4:], "decoder/num_heads"),
        ("model.bin", b"/scale_alibi\0", b"/linear_pack\0", "decoder/linear_pack of model.bin is not that"),
        ("model.bin", b"/beta\0" + shape(16) + b"\0", b"/beta\0" + shape(16) + b"\3", "beta of model.bin is not that"),
        ("model.bin", b"num_heads", b"num_tails", "num_tails"),
        ("model.bin", ALIBI, b"decoder/layer_2/self_attention/alibi", "self_attention/alibi of model.bin is not that"),
        ("model.bin", b"decoder/activation\0", b"layer/0/activation\0", "layer/0/activation of model.bin is not"),
        ("model.bin", b"num_heads\0", b"num_headss", "has a name without an end"),
        ("config.json", b'"add_source_eos": true', b'"add_source_eos": 1', "has other settings"),
        ("config.json", b'"add_source_bos": false', b'"add_source_bos": 0', "has other settings"),
        ("tapis.json", b'"n_heads": 2', b'"n_heads": 4', "num_heads"),
        ("tapis.json", b'"n_decoder_layers": 2', b'"n_decoder_layers": 3', "has no decoder/layer_2"),
    ],
)
def test_files_that_would_crash_ctranslate2_are_refused(
    run_folder: RunFolder, file: str, old: bytes, new: bytes, says: str
) -> None:
    """Of a stranger, who also wrote the checksums."""
    exported(run_folder)
    path = Path("out-float32", file)
    before = path.read_bytes() if path.exists() else b""
    assert old in before
    path.write_bytes(before.replace(old, new, 1) if old else before + new)
    Path("out-float32", SUMS).unlink()
    write_sums(Path("out-float32"))
    with pytest.raises(EngineError, match=f"does not hold what export.py writes .*{says}.*: export it again"):
        Translator.load("out-float32", "cpu")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_model_of_ctranslate2_with_a_weight_that_is_no_number_is_refused(run_folder: RunFolder, value: float) -> None:
    exported(run_folder)
    path = Path("out-float32/model.bin")
    content = bytearray(path.read_bytes())
    start = content.index(b"/gamma\0" + shape(16)) + len(b"/gamma\0" + shape(16) + b"\0") + 4
    content[start : start + 4] = struct.pack("<f", value)
    path.write_bytes(content)
    Path("out-float32", SUMS).unlink()
    write_sums(Path("out-float32"))
    with pytest.raises(EngineError, match=r"gamma of model\.bin has values that are no numbers"):
        Translator.load("out-float32", "cpu")


@pytest.mark.parametrize("length", [0, 3, 30, 3000])
def test_a_model_of_ctranslate2_that_was_cut_is_refused(run_folder: RunFolder, length: int) -> None:
    exported(run_folder)
    path = Path("out-float32/model.bin")
    path.write_bytes(path.read_bytes()[:length])
    Path("out-float32", SUMS).unlink()
    write_sums(Path("out-float32"))
    with pytest.raises(EngineError, match="does not hold what"):
        Translator.load("out-float32", "cpu")


def test_a_sentence_beyond_the_positions_of_an_export_is_an_error_in_words(run_folder: RunFolder) -> None:
    translator = exported(run_folder)
    with pytest.raises(EngineError, match=r"a sentence of [0-9,]+ tokens is too long for the export"):
        translator(["the cat " * 5000])


def test_a_precision_that_the_cpu_lacks_is_a_config_error(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(run_folder)
    assert Translator.load("out-float32", "cpu", "int8")(["A cat."])

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("Requested bfloat16 compute type")

    monkeypatch.setattr("ctranslate2.Translator", refuse)
    with pytest.raises(ConfigError, match="--precision bf16: Requested"):
        Translator.load("out-float32", "cpu", "bf16")


@needs_shared("multi30k")
def test_ctranslate2_gives_the_same_translations_of_unknown_words(demo_run: RunFolder, translator: Translator) -> None:
    """The tokenizer splits words that it has never seen into many tokens."""
    compare(translator, exported(demo_run), list(lines(SHARED / "multi30k" / "test.en"))[:100])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_hugging_face_gives_the_same_translations(norm: str, tiny: Config, tokenizer: Tokenizer, demo: Corpus) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: make huggingface")

    folder = saved_untrained(replace(tiny, norm=norm), tokenizer)  # type: ignore[arg-type]
    whole_folder(Path("hf"), lambda into: to_hugging_face(folder, into))
    model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained("hf", output_loading_info=True)
    assert not any(info.values())
    theirs = transformers.AutoTokenizer.from_pretrained("hf")
    own = Translator.load("one", "cpu", "fp32")
    for text, ids in zip(TEXTS[:3], own.tokenizer.encode(TEXTS[:3]), strict=True):
        assert theirs(text)["input_ids"] == [*ids, EOS] or not text
        assert theirs.decode(ids) == text
    sources = [source for source, _ in demo.test[:40]]
    batch = theirs(sources, return_tensors="pt", padding=True)
    generated = theirs.batch_decode(model.generate(**batch, max_length=40, do_sample=False), skip_special_tokens=True)
    ours = own(sources)
    assert len(set(ours)) > 5
    # Ours may be longer than 40 tokens.
    same = [a.startswith(" ".join(b.split())) for a, b in zip(ours, generated, strict=True)]
    assert sum(same) >= 39


def test_a_model_without_tied_embeddings_has_no_hugging_face_format(
    tiny: Config, tokenizer: Tokenizer, forked: Command
) -> None:
    saved_untrained(replace(tiny, tie_embeddings=False), tokenizer)
    done = forked("export.py", "--to", "huggingface", "hf")
    assert done.returncode == 2 and "this run has three" in done.stderr and not Path("hf").exists()
    assert not list(Path().glob(".hf*"))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "give one of --to ctranslate2 OUT"),
        (["--to", "ctranslate2"], "--to needs OUT"),
        (["--to", "ctranslate2", "a", "--release", "b"], "give one of --to ctranslate2 OUT"),
        (["out"], "give one of --to ctranslate2 OUT"),
        (["--release", "b", "--quantization", "int8"], "--quantization is for --to ctranslate2"),
        (["--release", "b", "--license", "My licence"], "an identifier in lower case"),
        (["--to", "ctranslate2", "a", "--license", "mit"], "--license is for --release and --to web"),
        (["--to", "marian", "a"], "--to"),
        (["--release", "b", "--run", "nowhere"], "no run 'nowhere'"),
    ],
)
def test_wrong_command_lines_are_explained(args: list[str], says: str, forked: Command) -> None:
    done = forked("export.py", *args)
    assert done.returncode in (1, 2) and says in done.stderr and len(done.stderr.splitlines()) <= 3
    assert not list(Path().iterdir())


def test_without_ctranslate2_the_error_says_how_to_install_it(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(run_folder)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(EngineError, match=r'pip install -e "\.\[export\]"'):
        Translator.load("out-float32")
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(EngineError, match="not installed"):
        to_ctranslate2(run_folder, Path(), "float32")


# The release


def test_a_release_translates_from_its_folder_its_archive_and_the_hub(
    demo_run: RunFolder, command: Command, hub: tuple[str, Path], tmp_path: Path
) -> None:
    endpoint, folder = hub
    args = ["export.py", "--run", str(demo_run.path), "--release", "given/demo", "--license", "cc-by-4.0"]
    done = command(*args)
    assert (done.returncode, done.stdout.split()) == (0, ["given/demo", "given/demo.tar.gz"]), done.stderr
    files = {file.name for file in Path("given/demo").iterdir()}
    of_the_run = {"config.json", "tokenizer.json", "model.safetensors", "learned.json", "metrics.json"}
    assert files == {*of_the_run, "README.md", "SHA256SUMS"}
    assert "license: cc-by-4.0" in Path("given/demo/README.md").read_text(encoding="utf-8")
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd="given/demo", capture_output=True, check=True)
    Path("given/demo").rename(folder)
    args = ["translate.py", "--run", "owner/books", "--device", "cpu", "The cat sits on the mat."]
    online = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf")}
    first = command(*args, **online)
    assert (first.stdout, first.stderr) == ("Le chat est assis sur le tapis.\n", "")
    offline = {**online, "HF_ENDPOINT": "http://127.0.0.1:9"}
    again = command(*args, **offline)
    assert (again.stdout, again.stderr) == ("Le chat est assis sur le tapis.\n", "")
    none = command("translate.py", "--run", "owner/other", "x", **online)
    assert none.returncode == 1 and none.stderr.startswith("translate.py: there is no run 'owner/other' here, and")
    assert len(none.stderr.splitlines()) == 1
    for run in (folder, "given/demo.tar.gz", "given/demo.tar.gz"):  # the second time, from the cache
        assert Translator.load(run)(["The cat sits on the mat."]) == ["Le chat est assis sur le tapis."]


def test_the_hub_can_read_the_model_card(demo_run: RunFolder) -> None:
    from huggingface_hub import ModelCard

    whole_folder(Path("given"), lambda into: to_release(demo_run, into, "mit"))
    loaded = ModelCard.load(Path("given/README.md"))
    assert (loaded.data.language, loaded.data.license, loaded.data.pipeline_tag) == (["en", "fr"], "mit", "translation")
    test = demo_run.load_metrics()["test"]
    results = loaded.data.eval_results
    assert results and results[0].metric_value == round(test["bleu"], 2)
    for part in ("## Use", "## Data", "## Training", "## Scores", "## Examples", "## Limits", test["signature"]):
        assert part in loaded.text
    assert loaded.text.count("\n| ") > 10


def test_a_model_card_needs_no_metrics(tiny: Config) -> None:
    text = card(replace(tiny, data=("owner/pairs",)), Learned(), Metrics(), "mit")
    assert "test part" not in text and "- owner/pairs" in text
    assert re.findall("^## (.*)", text, re.MULTILINE) == ["Use", "Training", "Limits"]
    assert "no test part" in card(tiny, Learned(), Metrics(data=DataReport(read=9)), "mit")


def test_a_model_card_says_what_was_not_done(tiny: Config) -> None:
    """That the run was stopped, that it began with another, and where sentences are cut."""
    metrics = Metrics(data=DataReport(read=9, test=2), init_from=AncestorRecord("old", ["other.tsv"]))
    text = card(replace(tiny, max_length=100), Learned(usual_length=30.4), metrics, "mit")
    assert "did not reach its end" in text and "no test part" not in text and "from scratch" not in text
    assert "more than 30 tokens are cut" in text
    assert "more than 100 tokens are cut" in card(replace(tiny, max_length=100), Learned(), Metrics(), "mit")


def test_the_example_of_a_model_card_cuts_long_sentences(
    run_folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    config, sentence = run_folder.load_config(), "The cat " * 90
    text = card(replace(config, name=run_folder.path.name), Learned(), Metrics(), "mit")
    example = text.split("```python\n")[1].split("```")[0]
    exec(example.replace("…", sentence), {})
    translator = tapis.Translator.load(run_folder.path)
    assert len(translator.split_lines([sentence])[0].units) > 1
    assert capsys.readouterr().out == f"{translator.text(sentence)[0].text}\n"


@pytest.mark.parametrize(
    "value",
    [None, 7, -1e999, "x", "<b>\n\n# x", "\ud800\x1b[2J\u202e", [], [1], {}, {"x": {}}, [["a", "b", "c"]], 10**30],
)
def test_metrics_of_any_types_are_released(demo_run: RunFolder, value: object) -> None:
    """One after the other, and in each of the records."""
    good = demo_run.load_metrics()
    _, _, model = demo_run.load_model(CPU)
    run = RunFolder(Path("changed"))
    shutil.copytree(demo_run.path, run.path, ignore=shutil.ignore_patterns("training"))
    for name, of_run in good.items():
        inner = of_run if isinstance(of_run, dict) else {}
        for changed in (value, *({**inner, key: value} for key in inner)):
            run.metrics_file.write_text(json.dumps({**good, name: changed}))
            metrics = load_metrics(run)
            text = card(run.load_config(), Learned(), metrics, "mit")
            rendered = MarkdownIt("commonmark").enable("table").render(text.partition("\n---\n")[2])
            assert rendered.count("<h1>") == 1 and "<b>" not in rendered
            assert escape_controls(text) == text and text.encode()
            assert web_facts(run.load_config(), metrics, model, "mit")
    run.metrics_file.write_text(json.dumps(dict.fromkeys(good, value)))
    whole_folder(Path("given"), lambda into: to_release(run, into, "mit"))


def test_a_model_card_shows_texts_and_no_markup(tiny: Config) -> None:
    texts = ("<img src=x>\n\n# Title", "![a](https://a.org) & `b` *c* | d ~~e~~", "\x1b[31m https://a.org")
    metrics = Metrics(examples=[texts], hardware=texts[1], versions={"a": texts[0]})
    text = card(replace(tiny, data=("a <b>c</b>",)), Learned(), metrics, "mit")
    rendered = MarkdownIt("commonmark").enable("table").render(text.partition("\n---\n")[2])
    assert not re.search("<(img|b|em|strong|s|a|script)[ >]", rendered) and rendered.count("<h1>") == 1
    assert html.escape(texts[1], quote=False) in rendered


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("owner/set", "owner/set"),
        ("/home/one/pairs.csv", "pairs.csv"),
        ("corpora/news", "news"),  # for news.en and news.fr there
        (".", "here"),
        ("../here", "here"),
        ("", ""),
    ],
)
def test_data_are_named_without_their_folder(
    data: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here/corpora").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert data_name(data) == name


def test_a_teacher_from_the_hub_keeps_its_owner(tiny: Config) -> None:
    """Those of this machine have distinct names, without their folders."""
    config = public(replace(tiny, teacher=("acme/one", "/home/a/one", "/home/a/two", "/home/b/two")))
    assert config.teacher == ("acme/one", "one", "3-two", "4-two")
    assert "taught by acme/one, one, " in card(config, Learned(), Metrics(data=DataReport(read=9)), "mit")


def test_an_export_contains_no_path_of_this_machine(run_folder: RunFolder, tiny: Config, tmp_path: Path) -> None:
    run_folder.save_config(replace(tiny, data=(str(tmp_path / "my pairs"),), teacher=(str(tmp_path / "large"),)))
    exported(run_folder)
    for file in Path("out-float32").iterdir():
        assert str(tmp_path).encode() not in file.read_bytes()


def test_a_release_contains_no_path_of_this_machine(run_folder: RunFolder, tiny: Config, tmp_path: Path) -> None:
    texts = tuple(str(tmp_path / folder / "text.fr") for folder in ("news", "books"))
    run_folder.save_config(
        replace(tiny, data=(str(tmp_path / "my pairs"),), monolingual=texts, back_translator=str(tmp_path / "back"))
    )
    unreadable = {"pairs": 1, "examples": [(f"{tmp_path / 'my pairs.csv'} line 52", "it has one cell")]}
    of_source = {"name": str(tmp_path / "my pairs"), "rules": {}, "unreadable": unreadable}
    run_folder.save_metrics({"data": {**of_source, "sources": [of_source]}})
    for name in ("a", "b"):
        whole_folder(Path(name, "given"), lambda into: to_release(run_folder, into, "mit"))
        pack(Path(name, "given"), Path(f"{name}.tar.gz"))
    for file in Path("a/given").iterdir():
        assert str(tmp_path).encode() not in file.read_bytes()
    config = RunFolder(Path("a/given")).load_config()
    assert (config.data, config.monolingual) == (("my pairs",), ("1-text.fr", "2-text.fr"))
    assert Path("a.tar.gz").read_bytes() == Path("b.tar.gz").read_bytes()


def test_a_release_names_no_file_beside_the_data(run_folder: RunFolder) -> None:
    of_source = {"name": "texts", "notes": ["not used: clients.en and clients.fr"]}
    run_folder.save_metrics({"data": {**of_source, "sources": [of_source]}})
    whole_folder(Path("given"), lambda into: to_release(run_folder, into, "mit"))
    for file in Path("given").iterdir():
        assert b"clients" not in file.read_bytes()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "metrics.json", "README.md"])
def test_a_changed_file_of_a_release_is_named(name: str, run_folder: RunFolder) -> None:
    whole_folder(Path("given"), lambda into: to_release(run_folder, into, "mit"))
    file = Path("given", name)
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    with pytest.raises(FetchError, match=f"{name} is not the file that SHA256SUMS records"):
        Translator.load("given")
    file.unlink()
    with pytest.raises(TapisError, match=f"{name}|no run"):
        Translator.load("given")


@pytest.mark.parametrize("name", ["model.bin", "config.json", "tapis.json", "tokenizer.json", "SHA256SUMS"])
def test_a_changed_file_of_an_export_is_named(name: str, run_folder: RunFolder) -> None:
    exported(run_folder)
    file = Path("out-float32", name)
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    with pytest.raises(FetchError, match="SHA256SUMS"):
        Translator.load("out-float32")
    file.unlink()
    if name not in ("config.json", "tapis.json"):
        with pytest.raises((FetchError, EngineError), match="SHA256SUMS"):
            Translator.load("out-float32")


def test_an_export_needs_no_c_extension_for_int8(run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    exported(run_folder)
    monkeypatch.setattr(engine, "library", lambda: None)
    assert len(Translator.load("out-float32", "cpu", "int8")(["A cat."])) == 1
    with pytest.raises(ConfigError, match="install a C compiler"):
        Translator.load(run_folder.path, "cpu", "int8")


def test_an_export_with_a_missing_checksum_is_rejected(run_folder: RunFolder) -> None:
    exported(run_folder)
    sums = Path("out-float32/SHA256SUMS")
    lines = sums.read_text(encoding="utf-8").splitlines(keepends=True)
    sums.write_text("".join(line for line in lines if "model.bin" not in line), encoding="utf-8")
    with pytest.raises(FetchError, match=r"SHA256SUMS does not record model\.bin"):
        Translator.load("out-float32")


def test_a_release_copies_the_tokenizer_byte_by_byte(run_folder: RunFolder) -> None:
    """Another version of the tokenizers library may format the file differently."""
    text = json.dumps(json.loads(run_folder.tokenizer_file.read_text(encoding="utf-8")), indent=7)
    run_folder.tokenizer_file.write_text(text, encoding="utf-8")
    run_folder.save_model(parameters(Transformer(len(run_folder.load_tokenizer()), run_folder.load_config())))
    whole_folder(Path("given"), lambda into: to_release(run_folder, into, "mit"))
    assert Translator.load("given", "cpu")(["A cat."])


def test_checksums_cannot_name_files_of_other_folders() -> None:
    Path("given").mkdir()
    Path("secret").write_text("x", encoding="utf-8")
    Path("given/a").write_text("a", encoding="utf-8")
    write_sums(Path("given"))
    check_sums(Path("given"))
    sums = Path("given/SHA256SUMS")
    for broken in ("abc", "0 ../secret\n", "\x00 \x00\n"):
        sums.write_text(broken, encoding="utf-8")
        with pytest.raises(FetchError):
            check_sums(Path("given"))


def test_a_sparse_file_is_not_read_for_its_checksum() -> None:
    Path("given").mkdir()
    with Path("given/model.safetensors").open("wb") as file:
        file.truncate(2**40)
    Path("given/SHA256SUMS").write_text(f"{'0' * 64}  model.safetensors\n", encoding="utf-8")
    start = time.monotonic()
    with pytest.raises(FetchError, match="it is a sparse file"):
        check_sums(Path("given"))
    assert time.monotonic() - start < 5


def member(name: str, content: bytes = b"{}", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([member("../config.json")], ""),  # accepted: the folders of a path are ignored
        ([member("x", b"", type=tarfile.DIRTYPE), member("x/config.json"), member(f"{'é' * 90}/README.md")], ""),
        ([member("../config.json"), member("/etc/config.json")], "/etc/config.json is none of its files"),
        ([member("x/notes.txt"), member("x/run.py", b"print()")], "x/notes.txt is none of its files"),
        ([member("x/run.py", b"print()")], "x/run.py is none of its files"),
        ([member("config.json", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")], "links, devices"),
        ([member("config.json", b"", type=tarfile.FIFOTYPE)], "links, devices"),
        ([member("config.json", b"", type=tarfile.GNUTYPE_SPARSE)], "links, devices"),
        ([member("config.json", b"", type=tarfile.DIRTYPE)], "no config.json in it"),
        ([member("config.json", b"\0" * 30_000_000)], "it expands to more than 20,971,520 bytes"),
        ([member("x", b"", type=tarfile.DIRTYPE)] * 30, "x is none of its files"),
        ([member("config.json", pax_headers={"comment": "x" * 100_000})], "a header that is too large"),
        ([member("config.json", pax_headers={"size": "-5"}), member("README.md")], "config.json is none of"),
        ([member("config.json", pax_headers={"GNU.sparse.map": "0,9", "GNU.sparse.size": "9" * 14})], "none of its"),
    ],
)
def test_only_the_files_of_a_release_are_unpacked(members: list[tuple[tarfile.TarInfo, bytes]], says: str) -> None:
    with tarfile.open("x.tar.gz", "w:gz") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    if says:
        with pytest.raises(FetchError, match=says):
            fetch("x.tar.gz")
    else:
        folder = fetch("x.tar.gz")
        assert folder and {file.name for file in folder.iterdir()} == {
            Path(info.name).name for info, _ in members if info.isreg()
        }
    assert [path.name for path in Path().iterdir()] == ["x.tar.gz"] and not Path("../config.json").exists()


def header_of(size: int, kind: bytes = tarfile.REGTYPE, name: str = "config.json") -> bytes:
    """A header in which a size may stand that tarfile does not write."""
    raw = bytearray(member(name)[0].tobuf(tarfile.GNU_FORMAT))
    raw[124:136] = b"\xff" * 4 + size.to_bytes(8, "big", signed=True) if size < 0 else b"%011o\0" % size
    raw[156:157] = kind
    raw[148:156] = b"%06o\0 " % sum(raw[:148] + b" " * 8 + raw[156:])
    return bytes(raw)


@pytest.mark.parametrize(
    "raw",
    [
        header_of(-1024),  # once an endless loop
        header_of(-1024, name="other") * 2,
        header_of(1_500_000_000, tarfile.XHDTYPE) + b"\0" * 2_000_000,
        header_of(1_500_000_000, tarfile.GNUTYPE_LONGNAME) + b"\0" * 2_000_000,
        (header_of(512, tarfile.XHDTYPE) + b"9" * 512) * 3,
        (header_of(512, tarfile.XHDTYPE) + b"30 path=config.json\n".ljust(512, b"\0")) * 2000,
        header_of(2**33 - 1),
    ],
)
def test_an_archive_that_would_never_end_or_take_all_memory_is_refused_at_once(raw: bytes) -> None:
    Path("x.tar.gz").write_bytes(gzip.compress(raw))
    start = time.monotonic()
    tracemalloc.start()
    with pytest.raises(FetchError, match=r"x\.tar\.gz"):
        fetch("x.tar.gz")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.monotonic() - start < 5 and peak < 50e6
    assert [path.name for path in Path().iterdir()] == ["x.tar.gz"]


def test_a_large_file_that_is_no_archive_is_not_read() -> None:
    with Path("x.tar.gz").open("wb") as file:
        file.truncate(2 * 10**11)  # sparse
    start = time.monotonic()
    with pytest.raises(FetchError, match=r"^x\.tar\.gz is not a release archive \(\.tar\.gz\): copy it again$"):
        fetch("x.tar.gz")
    assert time.monotonic() - start < 5


def test_a_release_that_was_damaged_in_the_cache_is_unpacked_again(run_folder: RunFolder) -> None:
    whole_folder(Path("given"), lambda into: to_release(run_folder, into, "mit"))
    pack(Path("given"), Path("x.tar.gz"))
    folder = fetch("x.tar.gz")
    assert folder
    expected = {file.name: file.read_bytes() for file in folder.iterdir()}
    (folder / "model.safetensors").unlink()
    (folder / "tokenizer.json").write_bytes(b"")
    assert fetch("x.tar.gz") == folder
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == expected


@pytest.mark.parametrize("spoil", [lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"no archive"])
def test_a_broken_archive_is_named(spoil: Callable[[bytes], bytes], run_folder: RunFolder) -> None:
    whole_folder(Path("given"), lambda into: to_release(run_folder, into, "mit"))
    pack(Path("given"), Path("x.tar.gz"))
    Path("x.tar.gz").write_bytes(spoil(Path("x.tar.gz").read_bytes()))
    with pytest.raises(FetchError, match=r"^x\.tar\.gz .*: copy it again$"):
        Translator.load("x.tar.gz")


def test_a_full_disk_or_a_failed_download_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = [OSError(errno.ENOSPC, "No space left on device")]

    def fail(*_: object, **__: object) -> None:
        raise errors[0]

    monkeypatch.setattr("tapis.system.hub.whole_folder", fail)
    monkeypatch.setattr("tapis.system.hub.hub_answers", lambda *_: True)
    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    Path("x.tar.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(FetchError, match=r"^x\.tar\.gz cannot be unpacked into .*: No space left on device$"):
        RunFolder.find("x.tar.gz")
    for reason in ("No space left on device", "Connection reset by peer"):
        errors[0] = OSError(errno.EIO, reason)
        with pytest.raises(FetchError, match=rf"'owner/books' here, and it cannot be downloaded \(.*{reason}\)$"):
            RunFolder.find("owner/books")


def test_the_same_files_give_the_same_archive() -> None:
    archives = []
    for name, mode in (("one", 0o600), ("other", 0o664)):
        folder = Path(name, "given")
        folder.mkdir(parents=True)
        (folder / "README.md").write_text("# x\n")
        (folder / "README.md").chmod(mode)
        pack(folder, Path(f"{name}.tar.gz"))
        archives.append(Path(f"{name}.tar.gz").read_bytes())
    assert archives[0] == archives[1]


def test_a_new_run_replaces_a_release_in_its_folder(run_folder: RunFolder, tiny: Config, tokenizer: Tokenizer) -> None:
    whole_folder(Path("weights/given"), lambda into: to_release(run_folder, into, "mit"))
    folder = RunFolder(Path("weights/given"))
    folder.start(tiny, tokenizer)
    folder.save_model(parameters(Transformer(len(tokenizer), tiny)))
    folder.load_model(CPU)


def test_a_run_saves_example_translations(demo_run: RunFolder, demo: Corpus) -> None:
    examples = json.loads(demo_run.metrics_file.read_text(encoding="utf-8"))["examples"]
    assert [tuple(row[:2]) for row in examples] == list(demo.test[:5]) and all(row[2] for row in examples)


def test_weights_that_16_bits_cannot_hold_are_not_exported_so(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporting.ctranslate2.LARGEST_FLOAT16", 1e-4)
    with pytest.raises(ConfigError, match="--quantization float16: the model has weights of "):
        whole_folder(Path("out"), lambda into: to_ctranslate2(run_folder, into, "float16"))
    assert not Path("out").exists()
