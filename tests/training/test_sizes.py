"""The sizes of a model that nobody has named: from the pairs and the time, beside the flags that are given."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import Command
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import RunFolder
from config import PRESETS
from tapis.config import ConfigError
from training.options import resolve
from training.sizes import SIZES, size_for, with_size

ENDLESS = 1e12
ALL = tuple(SIZES[0].settings)


def test_the_table_is_in_order() -> None:
    """Each size needs more pairs, steps and time than the one before, and settles the same fields."""
    assert SIZES[0].least_pairs == SIZES[0].least_steps == 0 and SIZES[0].cost == 1
    for before, size in pairwise(SIZES):
        assert size.least_pairs > before.least_pairs and size.cost > before.cost
        assert size.settings.keys() == before.settings.keys()
    for size in SIZES:
        assert with_size(PRESETS["opus_books"], size, size.settings).d_model == size.settings["d_model"]


@given(st.integers(1, 10**7), st.floats(0, ENDLESS), st.floats(1, 100))
def test_more_pairs_or_more_time_never_choose_a_smaller_model(n_pairs: int, steps: float, more: float) -> None:
    chosen = SIZES.index(size_for(n_pairs, steps, ALL))
    assert SIZES.index(size_for(int(n_pairs * more), steps, ALL)) >= chosen
    assert SIZES.index(size_for(n_pairs, steps * more, ALL)) >= chosen


def test_few_pairs_or_little_time_choose_the_smallest_model() -> None:
    assert size_for(1, ENDLESS, ALL) == size_for(10**7, 0, ALL) == SIZES[0]
    assert size_for(10**7, ENDLESS, ALL) == SIZES[-1]


def test_sizes_of_equal_batches_need_no_more_steps_than_the_smallest() -> None:
    """With --batch-tokens, a size takes longer by its cost alone."""
    without = [name for name in ALL if name != "batch_tokens"]
    largest = SIZES[-1]
    steps = largest.least_steps * largest.cost
    assert size_for(10**7, steps, without) == largest != size_for(10**7, steps, ALL)


def test_flags_may_be_typed_with_underscores() -> None:
    options = resolve(["--data", "my.pairs.csv", "--d_model", "512", "--batch_tokens=3000"])
    assert options == resolve(["--data", "my.pairs.csv", "--d-model", "512", "--batch-tokens=3000"])
    assert set(options.open_fields) == {*ALL} - {"d_model", "batch_tokens"}
    assert (options.config.d_model, options.config.batch_tokens) == (512, 3000)
    with pytest.raises(ConfigError, match="--data-weights is given twice"):
        resolve(["--data", "x", "y", "--data_weights", "1", "2", "--data-weights", "3", "4"])


def test_given_flags_are_kept() -> None:
    options = resolve(["--data", "my.pairs.csv", "--d-model", "64", "--dropout=0.4", "--max-length", "2000"])
    chosen = with_size(options.config, SIZES[0], options.open_fields)
    expected = {**SIZES[0].settings, "d_model": 64, "dropout": 0.4, "batch_tokens": 2001}
    assert {name: getattr(chosen, name) for name in expected} == expected
    assert replace(chosen, **{name: getattr(options.config, name) for name in expected}) == options.config


@pytest.mark.parametrize("line", ["", "demo --data x", "multi30k --data x", "--target it"])
def test_the_sizes_of_presets_are_theirs(line: str) -> None:
    assert resolve(line.split()).open_fields == ()


@pytest.mark.parametrize("typed", ["--batch-tokens", "--batch_tokens"])
def test_the_sizes_of_another_run_are_its(run_folder: RunFolder, typed: str) -> None:
    options = resolve(["--init-from", str(run_folder.path), "--data", "x", "--name", "on", typed, "3000"])
    assert options.open_fields == () and options.config.d_model == run_folder.load_config().d_model


@pytest.mark.parametrize(
    ("data", "name"),
    [("my.pairs.csv", "my-en-fr"), ("../a/news", "news-en-fr"), ("Owner/Set", "Set-en-fr"), ("/", "opus_books-en-fr")],
)
def test_a_run_of_own_data_is_named_by_them(data: str, name: str) -> None:
    assert resolve(["--data", data]).config.name == name


def test_the_command_chooses_and_says_so(called: Command, few: Path) -> None:
    """With the time of --minutes, too; what was chosen is the run's, and resumed with it, which the data name."""
    args = ["train.py", "--data", str(few), "--device", "cpu", "--d-model", "16", "--d-ff", "32"]
    done = called(*args, "--steps", "4")
    assert done.returncode == 0, done.stderr
    assert "sizes     for 600 pairs: d_model 16, 2+2 layers, at most 1,000 tokens, dropout 0.3" in done.stderr
    config = json.loads(Path(f"weights/{few.name}-en-fr/config.json").read_text(encoding="utf-8"))
    assert (config["n_encoder_layers"], config["batch_tokens"], config["d_model"]) == (2, 1024, 16)
    longer = called("train.py", "--resume", "--data", str(few), "--steps", "6")
    assert longer.returncode == 0 and "sizes " not in longer.stderr, longer.stderr
    timed = called(*args, "--minutes", "5", "--dry-run")
    assert timed.returncode == 0 and "sizes     for 600 pairs: d_model 16" in timed.stderr, timed.stderr
