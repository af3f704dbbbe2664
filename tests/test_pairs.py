"""Tests of one model for several language pairs: its data, its tags, and the commands."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
import torch
from conftest import Command, made_once

from checkpoint import RunFolder, parameters
from config import PRESETS, Config, RuleName
from dataset import EncodedPairs
from decoding.torch_searcher import TorchSearcher, searcher_of
from decoding.translator import Translator
from model import Transformer
from pairs.corpus import Corpus, load_corpus
from tapis.commands.evaluate import language_of
from tapis.config import ConfigError, Learned
from tapis.release import CheckpointError
from tapis.search import Search
from tapis.text.languages import language_shares
from tapis.text.lines import DataError
from tapis.text.tokenizer import Tokenizer
from training.batch_plan import weights_of_origins
from training.options import resolve
from training.trainer import Training

BOTH = ("en-fr", "fr-en")
CPU = torch.device("cpu")
RULES_OFF: tuple[RuleName, ...] = ("wrong-language", "swapped-columns")
SMALL = ["--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--vocab-size", "300", "--device", "cpu"]


def three_languages(folder: Path) -> None:
    """Write train, valid and test parts in en, de and fr, line by line; no rule but held-out drops anything."""
    folder.mkdir()
    lines = {
        "train": [f"the {i} dogs|die {i} Hunde|les {i} chiens" for i in range(20)],
        "valid": ["a cat|eine Katze|un chat"],
        # its French side is also in the training part, where its other sides differ
        "test": ["the 7 hounds|die 7 Jagdhunde|Les 7 chiens !"],
    }
    for part, texts in lines.items():
        for side, language in enumerate(("en", "de", "fr")):
            text = "".join(line.split("|")[side] + "\n" for line in texts)
            (folder / f"{part}.{language}").write_text(text, encoding="utf-8")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    three_languages(tmp_path / "data")
    return load_corpus(Config(data=("data",), pairs=("en-de", "de-en", "de-fr", "fr-de"), skip_rules=RULES_OFF))


def test_the_other_direction_has_the_same_pairs_turned_round(corpus: Corpus) -> None:
    for part in (corpus.train, corpus.valid, corpus.test):
        texts = [[pair for pair, number in zip(part, part.origins(), strict=True) if number == n] for n in range(4)]
        for forward, backward in ((0, 1), (2, 3)):
            assert texts[forward] and [(target, source) for source, target in texts[forward]] == texts[backward]
    assert corpus.valid[0:2] == [("a cat", "eine Katze"), ("eine Katze", "a cat")]
    assert set(corpus.directions(corpus.train)) == {("en", "de"), ("de", "en"), ("de", "fr"), ("fr", "de")}


def test_a_side_of_a_test_pair_is_in_no_training_pair_of_any_direction(tmp_path: Path) -> None:
    three_languages(tmp_path / "data")
    # only en-fr has the French test side, and de-fr must not learn it as a target
    (tmp_path / "other").mkdir()
    for name in ("train.de", "train.fr", "valid.de", "valid.fr"):
        (tmp_path / "other" / name).write_bytes((tmp_path / "data" / name).read_bytes())
    config = Config(data=("data", "other"), pairs=("en-fr", "de-fr"), skip_rules=RULES_OFF, test_share=0)
    corpus = load_corpus(config)
    assert len(corpus.test) == 1 and not any(" 7 " in text for pair in corpus.train for text in pair)
    assert [source.rules["held-out"].pairs for source in corpus.report.sources] == [1, 1]


@pytest.fixture(scope="module")
def tagged(demo: Corpus) -> Tokenizer:
    return Tokenizer.train((side for pair in demo.train[:1000] for side in pair), 300, ["en", "fr"])


def test_tags_are_tokens_that_no_text_contains(tagged: Tokenizer, tokenizer: Tokenizer) -> None:
    assert tagged.tags == {"en": 4, "fr": 5} and tokenizer.tags == {}
    assert Tokenizer.from_json(tagged.to_json(), "").tags == tagged.tags
    (ids,) = tagged.encode(["<2fr> <2en>"])
    assert not set(ids) & {4, 5} and tagged.decode([[5, *ids]]) == ["<2fr> <2en>"]
    assert (tagged.merged_from[[4, 5]] == -1).all(), "subword dropout cannot split them"


def test_each_source_begins_with_the_tag_of_its_target(corpus: Corpus) -> None:
    tokenizer = Tokenizer.train((side for pair in corpus.train for side in pair), 300, ["de", "en", "fr"])
    tags = [tokenizer.tags[origin.target] for origin in corpus.origins]
    tagged_pairs, plain = EncodedPairs.of(corpus.train, tokenizer, tags=tags), EncodedPairs.of(corpus.train, tokenizer)
    rows = np.arange(len(plain))
    (tagged_sources, tagged_targets), (sources, _) = tagged_pairs.ids(rows), plain.ids(rows)
    for row, (_, target) in enumerate(corpus.directions(corpus.train)):
        assert tagged_sources[row].tolist() == [tokenizer.tags[target], *sources[row]]
        assert not set(tagged_targets[row].tolist()) & set(tokenizer.tags.values())


@pytest.mark.parametrize("precision", ["plain", "fp32", "int8"])
@pytest.mark.parametrize("beam", [1, 3])
def test_tags_are_never_generated(precision: Any, beam: int, tiny: Config, tagged: Tokenizer) -> None:
    config = replace(tiny, pairs=BOTH)
    model = Transformer(len(tagged), config).eval()
    with torch.no_grad():  # one of them is as probable as can be
        weight = torch.nn.init.normal_(model.projection.linear.weight, std=2.0)
        weight[5] = 3 * weight.abs().max() * torch.sign(torch.randn(16))
    device = CPU
    is_plain = precision == "plain"
    sources, limits = [[5, 40, 41], [4, 60, 70, 80, 90]] * 20, [30] * 40
    search = Search(beam, n_best=beam)

    def generated(*suppressed: int) -> set[int]:
        searcher = searcher_of(model, device, "auto" if is_plain else precision, is_plain, suppressed)
        results = searcher(sources, limits, search)
        return {i for ranked in results for hypothesis in ranked for i in hypothesis.ids}

    assert generated() & {4, 5}, "without the rule"
    assert not generated(4, 5) & {4, 5} and generated(4, 5)


def test_the_flag_pairs_with_one_language_pair_changes_nothing(
    tiny: Config, small: Corpus, tokenizer: Tokenizer
) -> None:
    one = replace(PRESETS["demo"], pairs=("en-fr",))
    assert one.directions == PRESETS["demo"].directions and not one.tagged_languages
    texts, as_before = load_corpus(one), load_corpus(PRESETS["demo"])
    assert list(texts.train) == list(as_before.train) and texts.train.key == as_before.train.key
    assert Training(tiny, small, tokenizer).origin_weights == [1.0]


def test_a_temperature_makes_shares_more_equal_and_keeps_the_epoch() -> None:
    sizes = np.array([100, 1000, 10_000])
    assert weights_of_origins(replace(Config(), temperature=1.0), sizes) == [1.0, 1.0, 1.0]
    assert weights_of_origins(replace(Config(), temperature=5.0), np.array([0, 10]))[1] == 1, "of nothing, nothing"
    for temperature in (1.5, 5.0, 100.0):
        weights = np.array(weights_of_origins(replace(Config(), temperature=temperature), sizes))
        shares = weights * sizes / (weights * sizes).sum()
        assert (weights * sizes).sum() == pytest.approx(sizes.sum())
        assert shares[1:] / shares[:-1] == pytest.approx([10 ** (1 / temperature)] * 2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pairs": ("en",)}, "write SOURCE-TARGET"),
        ({"pairs": ("pt-BR-en",)}, "or pt-BR:en"),
        ({"pairs": ("en-de", "en-de")}, "name each pair once"),
        ({"pairs": ()}, "names no pair"),
        ({"pairs": ("en-en",)}, "source and target are both en"),
        ({"pairs": ("en-a/b",)}, "cannot be part of a file name"),
        ({"pairs": ("-de",)}, "cannot be part of a file name"),
        ({"pairs": ("en-de", "en-中")}, "cannot be a language"),
        ({"pairs": ("en-de", "en-fr"), "data_weights": (2.0,)}, "--temperature balances language pairs"),
        ({"pairs": ("en-de", "en-fr"), "columns": ("1", "2")}, "name them in a header"),
        ({"pairs": ("en-de", "de-en", "en-fr"), "data": ("a", "b")}, "or one for each pair"),
    ],
)
def test_wrong_pairs_are_refused(change: dict[str, tuple[str, ...]], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        replace(Config(), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--pairs all", "--pairs all and --languages go together"),
        ("--languages en fr", "--pairs all and --languages go together"),
        ("--pairs all --languages en en", "name two or more, each once"),
        ("--pairs all --languages en", "name two or more, each once"),
        ("--source en --target en", "source and target are both en"),
    ],
)
def test_languages_that_do_not_fit_together_are_refused(flags: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        resolve(flags.split())


def test_languages_may_have_hyphens_and_all_means_every_direction() -> None:
    assert replace(Config(), pairs=("pt-BR:en",)).directions == (("pt-BR", "en"),)
    config = resolve(["--pairs", "all", "--languages", "en", "de", "fr"]).config
    assert len(config.directions) == 6 and config.tagged_languages == ["de", "en", "fr"]
    assert Config.from_json(config.to_json()) == config


@pytest.fixture(scope="module")
def several(forked: Command, few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of both directions, by its command."""
    args = ["demo", "--data", str(few), "--pairs", *BOTH, *SMALL, "--epochs", "1", "--self-distillation", "0.2"]

    def train(folder: Path) -> str:
        with contextlib.chdir(folder):
            done = forked("train.py", *args)
        assert done.returncode == 0, done.stderr
        return done.stderr

    folder, printed = made_once(tmp_path_factory, "several", train)
    assert "the same pairs, reversed" in printed
    assert re.search(r"^    en-fr: BLEU .*\n    fr-en: BLEU", printed, re.MULTILINE)
    assert 'translate with: python translate.py --run demo --target LANGUAGE "…"' in printed
    return folder / "weights" / "demo"


def data_of(run: Path) -> str:
    """The folder of pairs that a run has learned from, perhaps that of another testing process."""
    return RunFolder(run).load_config().data[0]


def test_the_scores_are_means_over_the_pairs(several: Path, called: Command) -> None:
    metrics = json.loads((several / "metrics.json").read_text(encoding="utf-8"))
    for part in ("best", "last", "test"):
        by_data = metrics[part]["by_data"]
        assert list(by_data) == ["en-fr", "fr-en"]
        for name in ("bleu", "chrf"):
            assert metrics[part][name] == pytest.approx(sum(values[name] for values in by_data.values()) / 2)
    scored = called("evaluate.py", "--run", str(several), "--device", "cpu", "--scores", "scores.tsv")
    assert len(Path("scores.tsv").read_text(encoding="utf-8").splitlines()) == 24
    assert scored.returncode == 0 and len(scored.stdout.splitlines()) == 3, scored.stderr
    assert scored.stdout.splitlines()[1].startswith("en-fr: BLEU ")


def test_a_target_is_asked_for_and_checked(several: Path, few: Path, called: Command) -> None:
    run = ["--run", str(several), "--device", "cpu"]
    for target in ("fr", "en"):
        done = called("translate.py", *run, "--target", target, "The cat.", "Two. Sentences.")
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 2, done.stderr
    files = ["--source", str(few / "test.fr"), "--reference", str(few / "test.en")]
    assert called("evaluate.py", *run, *files, "--target", "en", "--scores", "scores.tsv").returncode == 0
    assert len(Path("scores.tsv").read_text(encoding="utf-8").splitlines()) == 12
    for command, code, says in (
        (["translate.py", *run, "x"], 2, "choose one with --target"),
        (["translate.py", *run, "--target", "de", "x"], 2, "does not translate into de; its language pairs are en-fr,"),
        (["translate.py", *run, "--target", "en", "--source", "de", "x"], 2, "has not learned de-en"),
        (["evaluate.py", *run, *files], 2, "choose one with --target"),
        (["translate.py", *run, "--target", "en", "--source", "zz", "x"], 2, "has not learned zz-en"),
        (["train.py", "--init-from", str(several), "--pairs", "en-fr", "fr-de"], 2, "--pairs cannot be given with"),
        (["train.py", "--init-from", str(several), "--source", "en", "--target", "fr"], 2, "leave out --source and"),
        (
            ["train.py", "--init-from", str(several), "--data", "new", data_of(several)],
            2,
            "old data cannot be mixed in",
        ),
    ):
        done = called(*command)
        assert done.returncode == code and says in done.stderr and not done.stdout, done.stderr
        assert len(done.stderr.splitlines()) <= 2


def test_a_model_of_one_pair_refuses_other_languages_and_needs_no_target(
    trained: "subprocess.CompletedProcess[str]", called: Command
) -> None:
    run = ["--run", str(Path(trained.args[0], "weights", "demo")), "--device", "cpu", "--precision", "fp32"]
    plain = called("translate.py", *run, "The cat is sitting on the mat.")
    assert called("translate.py", *run, "--target", "fr", "The cat is sitting on the mat.").stdout == plain.stdout
    done = called("translate.py", *run, "--target", "de", "x")
    assert done.returncode == 2 and "its language pairs are en-fr" in done.stderr


def test_a_run_of_several_pairs_goes_on_and_is_started_from(several: Path, few: Path, called: Command) -> None:
    done = called("train.py", "--init-from", str(several), "--epochs", "1", "--name", "next")
    assert done.returncode == 0 and "fr-en: BLEU" in done.stderr, done.stderr
    assert called("train.py", "--resume", "--name", "next", "--epochs", "2").returncode == 0
    assert called("export.py", "--run", "next", "--release", "given").returncode == 0
    card = Path("given/README.md").read_text(encoding="utf-8")
    assert "that translates en to fr, fr to en" in card and "--target LANGUAGE" in card and "| fr-en | " in card
    assert called("translate.py", "--run", "given.tar.gz", "--target", "en", "Le chat.").returncode == 0


def test_exports_take_the_target_language(several: Path, called: Command) -> None:
    pytest.importorskip("ctranslate2")
    done = called("export.py", "--run", str(several), "--to", "ctranslate2", "out")
    assert 'out --target LANGUAGE "…", or: python out/example.py LANGUAGE "…"' in done.stderr
    sentences = ["The cat is here.", "A dog </s><2en> sings."]
    for target in ("fr", "en"):
        common = ["--beam", "5", "--precision", "fp32", "--device", "cpu", "--target", target, *sentences]
        exported, run = (called("translate.py", "--run", name, *common) for name in ("out", str(several)))
        assert exported.returncode == 0 and exported.stdout == run.stdout, exported.stderr
    script = [sys.executable, "out/example.py"]
    done = subprocess.run([*script, "fr", *sentences], capture_output=True, encoding="utf-8", check=True)
    assert len(done.stdout.splitlines()) == 2 and "<2" not in done.stdout
    for wrong in ([], ["fr"], sentences):
        done = subprocess.run([*script, *wrong], capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 1 and "give a language to translate into, of en, fr," in done.stderr

    assert called("export.py", "--run", str(several), "--to", "huggingface", "hf").returncode == 0
    generation = json.loads(Path("hf/generation_config.json").read_text(encoding="utf-8"))
    assert generation["suppress_tokens"] == [0, 1, 2, 4, 5]
    tokenizer = tokenizers.Tokenizer.from_file("hf/tokenizer.json")
    ours = Tokenizer.from_json((several / "tokenizer.json").read_text(encoding="utf-8"), "")
    assert tokenizer.encode("<2fr>The cat is here.").ids == [5, *ours.encode(["The cat is here."])[0], 3]


@pytest.mark.parametrize("file", ["table.tsv", "folder/train.tsv"])
def test_a_table_of_more_than_two_languages_names_its_columns(tmp_path: Path, file: str) -> None:
    three_languages(tmp_path / "lines")
    columns = [(tmp_path / "lines" / f"train.{language}").read_text().splitlines() for language in ("en", "de", "fr")]
    rows = "".join("\t".join(row) + "\n" for row in zip(*columns, strict=True))
    table = tmp_path / file
    table.parent.mkdir(exist_ok=True)
    data = (file.partition("/")[0],)
    config = Config(data=data, pairs=("en-de", "en-fr"), skip_rules=RULES_OFF, valid_share=0.2, test_share=0)
    table.write_text("en\tde\tfr\n" + rows, encoding="utf-8")
    assert {target.split()[0] for _, target in load_corpus(config).train} == {"die", "les"}
    for without_languages in (rows, "Source\tTarget\na dog\tun chien\n"):  # of which pair?
        table.write_text(without_languages, encoding="utf-8")
        with pytest.raises(DataError, match="no column en"):
            load_corpus(config)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_table_of_more_than_two_languages_may_name_them_in_words(kind: str, tmp_path: Path) -> None:
    three_languages(tmp_path / "data")
    names = ("English", "French", "deu")
    columns = [(tmp_path / "data" / f"train.{language}").read_text().splitlines() for language in ("en", "fr", "de")]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    data = f"table.{kind}"
    if kind == "csv":
        lines = [";".join(names), *(";".join(row.values()) for row in rows)]
        Path(data).write_text("\n".join(lines), encoding="utf-8")
    elif kind == "jsonl":
        Path(data).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), data)
    config = Config(data=(data,), pairs=("en-de", "en-fr"), skip_rules=RULES_OFF, valid_share=0.2, test_share=0)
    assert {target.split()[0] for _, target in load_corpus(config).train} == {"die", "les"}
    sides = "".join(json.dumps({"source": row["English"], "target": row["French"]}) + "\n" for row in rows)
    Path("sides.jsonl").write_text(sides, encoding="utf-8")
    with pytest.raises(DataError, match='no field "en"'):
        load_corpus(replace(config, data=("sides.jsonl",)))


def test_one_pair_alone_is_as_without_pairs() -> None:
    assert resolve(["demo", "--pairs", "fr-en"]).config == resolve(["demo", "--source", "fr", "--target", "en"]).config
    for languages in (["--source", "de"], ["--source=en", "--target=fr"]):
        with pytest.raises(ConfigError, match="leave out --source and --target"):
            resolve(["demo", "--pairs", "en-de", "de-en", *languages])


def test_one_pair_alone_is_resumed_by_the_flags_that_started_it(trained: "subprocess.CompletedProcess[str]") -> None:
    shutil.copytree(Path(trained.args[0], "weights", "demo"), "weights/demo")
    assert resolve(["demo", "--resume", "--pairs", "en-fr"]).config.pairs == ("en-fr",)
    with pytest.raises(ConfigError, match="the languages cannot change on --resume"):
        resolve(["demo", "--resume", "--pairs", "fr-en"])


def test_a_source_of_data_for_each_pair_is_no_mixture(several: Path) -> None:
    start = ["--init-from", str(several)]
    assert resolve([*start, "--data", "a", "b"]).config.lr == resolve(start).config.lr


def test_a_release_of_several_pairs_contains_no_path(several: Path, few: Path, called: Command) -> None:
    assert called("export.py", "--run", str(several), "--release", "given").returncode == 0
    for file in Path("given").iterdir():
        assert str(Path(data_of(several)).parent).encode() not in file.read_bytes()
    metrics = json.loads(Path("given/metrics.json").read_text(encoding="utf-8"))
    assert [source["name"] for source in metrics["data"]["sources"]] == ["few0 en-fr", "few0 fr-en"]


def test_a_tokenizer_of_other_languages_is_refused(run_folder: RunFolder, tagged: Tokenizer) -> None:
    run_folder.tokenizer_file.write_text(tagged.to_json(), encoding="utf-8")
    with pytest.raises(CheckpointError, match="has other languages than"):
        run_folder.load_model(CPU)


def test_two_runs_of_several_pairs_are_compared_pair_by_pair(
    several: Path, trained: "subprocess.CompletedProcess[str]", called: Command
) -> None:
    run = ["evaluate.py", "--run", str(several), "--device", "cpu"]
    done = called(*run, "--against", str(several))
    assert [line.partition(" p = ")[0] for line in done.stdout.splitlines()[-2:]] == ["en-fr: BLEU", "fr-en: BLEU"]
    done = called(*run, "--against", str(Path(trained.args[0], "weights", "demo")))
    assert (done.returncode, done.stdout) == (2, "") and "demo: the model does not translate into en" in done.stderr
    done = called(*run, "--target", "fr")
    assert done.returncode == 2 and "are for --source and --reference" in done.stderr

    # One direction of a model of several, beside a model of that direction.
    demo = called("evaluate.py", "--run", str(Path(trained.args[0], "weights", "demo")), "--against", str(several))
    assert demo.returncode == 0 and demo.stdout.splitlines()[-1].startswith("BLEU p = "), demo.stderr


def make_untrained_run(config: Config, demo: Corpus, folder: RunFolder) -> None:
    """Write a run of a new model."""
    tokenizer = Tokenizer.train((side for pair in demo.train[:500] for side in pair), 300, config.tagged_languages)
    folder.start(config, tokenizer)
    folder.save_model(parameters(Transformer(len(tokenizer), config)))


@pytest.fixture
def triangle(tiny: Config, demo: Corpus, tmp_path: Path) -> str:
    """A run, without training, that knows German and French and has not learned German to French."""
    config = replace(tiny, pairs=("en-de", "en-fr", "de-en"), name="triangle")
    make_untrained_run(config, demo, RunFolder(tmp_path / "weights" / "triangle"))
    Path("de").write_text("Der Hund schläft im Garten.\nDie Katze ist müde und will nach Hause.\n", encoding="utf-8")
    Path("fr").write_text("Le chien dort dans le jardin.\nLe chat est fatigué.\n", encoding="utf-8")
    return "triangle"


def test_a_language_that_was_not_learned_is_noticed(triangle: str, called: Command) -> None:
    translate = ["translate.py", "--run", triangle, "--device", "cpu", "--target", "fr"]
    learned = called(*translate, "The dog is asleep in the garden.")
    assert learned.returncode == 0 and "warning" not in learned.stderr
    unlearned = called(*translate, "The dog sleeps.", "Der Hund schläft im Garten.", "Die Katze ist sehr müde.")
    assert unlearned.returncode == 0 and unlearned.stderr.count("warning") == 1
    assert "has not learned de-fr, and this seems to be de: Der Hund schläft im Garten." in unlearned.stderr
    Path("page.html").write_text("<p>Der Hund schläft im Garten.</p>", encoding="utf-8")
    assert "has not learned de-fr" in called(*translate, "--format", "html", "page.html").stderr

    evaluate = ["evaluate.py", "--run", triangle, "--device", "cpu", "--target", "fr", "--source", "de"]
    evaluate += ["--reference", "fr"]
    refused = called(*evaluate)
    assert refused.returncode == 2 and "has not learned de-fr; its language pairs are en-de" in refused.stderr
    assert called(*evaluate, "--source-language", "en").returncode == 0
    Path("de").write_text("1\n2\n", encoding="utf-8")
    assert called(*evaluate).returncode == 0, "only English was learned"


def test_languages_that_cannot_be_identified_are_named(
    tiny: Config, demo: Corpus, tmp_path: Path, called: Command
) -> None:
    config = replace(tiny, pairs=("en-fr", "tlh-fr", "fr-tlh"), name="klingon")
    make_untrained_run(config, demo, RunFolder(tmp_path / "weights" / "klingon"))
    translate = ["translate.py", "--run", "klingon", "--device", "cpu", "Le chien dort dans le jardin."]
    done = called(*translate, "--target", "fr")
    assert done.returncode == 0 and done.stderr.splitlines() == [
        "warning: py3langid cannot tell en, tlh apart: texts are split into sentences as en, unless --source names "
        "another language"
    ]
    for known in (["--target", "fr", "--source", "tlh"], ["--target", "tlh"]):
        assert called(*translate, *known).stderr == ""


def test_a_language_that_is_not_clear_is_asked_for(tiny: Config, demo: Corpus) -> None:
    config = replace(tiny, pairs=("en-de", "fr-de"))
    tokenizer = Tokenizer.train((side for pair in demo.train[:500] for side in pair), 300, config.tagged_languages)
    model = Transformer(len(tokenizer), config).eval()
    translator = Translator(TorchSearcher(model, CPU, "fp32"), tokenizer, config, Learned())
    assert language_of(Path("file"), ["Le chien dort dans le jardin."], translator.towards("de")) == "fr"
    with pytest.raises(ConfigError, match="the language of file is not clear: name it with --source-language"):
        language_of(Path("file"), ["1", "2"], translator.towards("de"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_source_may_be_a_pipe(triangle: str, called: Command) -> None:
    """It is read once."""
    os.mkfifo("pipe")
    text = "The dog sleeps in the garden.\n" * 300
    Path("reference").write_text(text, encoding="utf-8")
    evaluate = ["evaluate.py", "--run", triangle, "--device", "cpu", "--target", "fr", "--reference", "reference"]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(Path("pipe").write_text, text, encoding="utf-8")
        done = called(*evaluate, "--source", "pipe")
        os.close(os.open("pipe", os.O_RDONLY | os.O_NONBLOCK))  # so that the writer ends if nobody has read
    assert done.returncode == 0 and "pipe: 300 sentences" in done.stderr, done.stderr


def test_languages_with_regions_are_identified() -> None:
    assert language_shares("The cat is sleeping in the garden.", ("pt-BR", "en"))[0][0] == "en"
    assert language_shares("O gato está dormindo no jardim.", ("en", "pt-BR"))[0][0] == "pt-BR"
    assert language_shares("The cat.", ("en-GB", "en-US")) == [("en-GB", 0.5), ("en-US", 0.5)]


def test_a_pair_that_was_not_learned_is_refused_with_a_way_around(tiny: Config, demo: Corpus) -> None:
    config = replace(tiny, pairs=("en-de", "en-fr", "de-en"))
    tokenizer = Tokenizer.train((side for pair in demo.train[:500] for side in pair), 300, config.tagged_languages)
    model = Transformer(len(tokenizer), config).eval()
    translator = Translator(TorchSearcher(model, CPU, "fp32"), tokenizer, config, Learned())
    with pytest.raises(ConfigError, match=r"de-fr; its .*\ntranslate into en first, and the result into fr"):
        translator.towards("fr", "de")
    assert translator.towards("fr", "en").tag == [tokenizer.tags["fr"]]
    assert translator.towards("fr").sources == ["en"] and translator.towards("en").sources == ["de"]
    one_target = Translator(translator.searcher, tokenizer, replace(tiny, pairs=("en-fr", "de-fr")), Learned())
    assert one_target.sources == one_target.towards("fr").sources == ["en", "de"]
