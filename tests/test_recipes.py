"""benchmarks/recipes.py: it goes on where it stopped, and its numbers are sacreBLEU's."""

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from conftest import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from recipes import Options, Recipe, Scored, bleu_of, counts_of, difference, line_of, main, resuming, run

from training.cli import parse_training

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "mat",
    "sits",
    "sleeps",
    "on",
    "under",
    "red",
    "small",
    "old",
    "man",
    "woman",
    "sees",
]

# Stands in for training: notes that it ran, and fails the first time with seed 2.
TRAIN = """
import sys
from pathlib import Path
name, seed = sys.argv[1:]
with Path("ran").open("a") as ran:
    ran.write(name)
if seed == "2" and not Path("failed").exists():
    Path("failed").touch()
    sys.exit("no")
Path("model").write_text(name)
"""
# Stands in for translating: the model "good" leaves out each tenth word, the model "bad" each third.
TRANSLATE = """
import sys
from pathlib import Path
source, output = Path(sys.argv[2]), Path(sys.argv[4])
every = 10 if Path("model").read_text() == "good" else 3
words = source.read_text().split(" ")
output.write_text(" ".join(word for i, word in enumerate(words) if "\\n" in word or i % every))
"""


@pytest.fixture
def options() -> Options:
    """Two recipes whose scripts train nothing, and a set whose sides are the same."""
    Path("train.py").write_text(TRAIN, encoding="utf-8")
    Path("translate.py").write_text(TRANSLATE, encoding="utf-8")
    for name in ("bad", "good"):
        commands, translate = [f"{Path('train.py').resolve()} {name} {{seed}}"], str(Path("translate.py").resolve())
        recipe = {"commands": commands, "translate": translate}
        Path(f"{name}.json").write_text(json.dumps(recipe), encoding="utf-8")
    draw = random.Random(1)
    text = "".join(" ".join(draw.choices(WORDS, k=12)) + "\n" for _ in range(100))
    for language in ("en", "de"):
        Path(f"set.{language}").write_text(text, encoding="utf-8")
    recipes = (Path("bad.json"), Path("good.json"))
    return Options(Path("out"), recipes, data=Path(), sets=(Path("set"),), seeds=2)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/recipes_multi30k").iterdir()), ids=lambda path: path.stem)
def test_the_lines_of_a_recipe_are_right(path: Path, options: Options) -> None:
    shares = 0.0
    for command in Recipe.load(path).commands:
        script, *args = line_of(replace(options, minutes=30), command, 2)
        if script == "train.py":
            _, _, parsed = parse_training(args)
            assert parsed.config.seed == 2 and {"en", "de"} == set(parsed.config.directions[0])
            shares += parsed.minutes
    assert 28 <= shares <= 30, "a recipe takes the time that it is given; translating takes some"


def test_what_is_done_is_not_done_again(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["--data", ".", "--sets", "set", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["recipes.py", "out", "bad.json", "good.json", *flags])
    with pytest.raises(subprocess.CalledProcessError):
        main()
    table = Path("out/table.md").read_text(encoding="utf-8")
    assert "| bad | 1 |" in table and "| good | 1 |" in table
    main()
    for name in ("bad", "good"):
        assert Path("out", name, "1", "ran").read_text(encoding="utf-8") == name
    assert Path("out/bad/2/ran").read_text(encoding="utf-8") == "bad" * 2
    header, _, bad, good = Path("out/table.md").read_text(encoding="utf-8").splitlines()
    assert header.count("|") == bad.count("|") == good.count("|")
    assert float(good.split(" | ")[3].split()[0]) > float(bad.split(" | ")[3].split()[0])
    assert "+" in good and "p 0.0" in good


def test_a_run_that_was_interrupted_is_resumed(tmp_path: Path) -> None:
    """Also if it waits for its teacher."""
    line = ["train.py", "demo", "--name", "run", "--seed", "3"]
    assert resuming(tmp_path, line) == [*line, "--overwrite"]
    for name in ("run-teacher", "run"):
        state = tmp_path / "weights" / name / "training/state.safetensors"
        state.parent.mkdir(parents=True)
        state.touch()
        (tmp_path / "weights/run").mkdir(exist_ok=True)
        (tmp_path / "weights/run/config.json").touch()
        assert resuming(tmp_path, line) == ["train.py", "--resume", "--name", "run"]
    assert resuming(tmp_path, ["translate.py", "--run", "run"]) == ["translate.py", "--run", "run"]


def test_a_line_that_fails_is_not_called_done(options: Options) -> None:
    recipe = Recipe.load(Path("good.json"))
    with pytest.raises(subprocess.CalledProcessError):
        run(options, recipe, seed=2)
    assert not Path("out/good/2/seconds-0").exists() and "no" in Path("out/good/2/log").read_text(encoding="utf-8")


def sentences(n: int, right: float, seed: int) -> tuple[list[str], list[str]]:
    """References, and hypotheses of which a share of the words is right."""
    references, draw = [], random.Random(1)
    for _ in range(n):
        references.append(" ".join(draw.choices(WORDS, k=12)))
    draw = random.Random(seed)
    hypotheses = [
        " ".join(word if draw.random() < right else draw.choice(WORDS) for word in reference.split())
        for reference in references
    ]
    return hypotheses, references


def scored(right: float, *seeds: int) -> Scored:
    return Scored([counts_of(*sentences(200, right, seed), "de") for seed in seeds])


def test_bleu_is_that_of_sacrebleu() -> None:
    hypotheses, references = sentences(50, 0.8, 2)
    expected = sacrebleu.corpus_bleu(hypotheses, [references], smooth_method="none").score
    assert bleu_of(counts_of(hypotheses, references, "de").sum(axis=0)) == pytest.approx(expected)


def test_a_difference_has_an_interval_and_a_p_value() -> None:
    one, better = scored(0.7, 2, 3, 4), scored(0.8, 5, 6, 7)
    observed, low, high, p_value = difference(one, better)
    assert observed == pytest.approx(np.mean(better.bleu) - np.mean(one.bleu))
    assert 0 < low < observed < high and p_value <= 0.01
    assert difference(one, one) == (0, 0, 0, 1)
    # Runs of one recipe that differ by chance alone: the interval has 0.
    _, low, high, p_value = difference(one, scored(0.7, 8, 9, 10))
    assert low < 0 < high and p_value > 0.05
