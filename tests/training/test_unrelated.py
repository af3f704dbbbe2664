"""Pairs whose source says nothing about their target: which are found, and that a run learns from them no more."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from conftest import Command, pairs_of
from test_trainer import advance

from checkpoint import RunFolder, parameters
from config import Config
from dataset import EncodedPairs
from decoding.translator import Translator
from machine.distributed import ALONE
from pairs.corpus import Corpus
from pairs.tables import Pairs
from tapis.release import CheckpointError
from tapis.text.tokenizer import Tokenizer
from training.description import describe
from training.state import restore, state_of
from training.terminal import round_lines
from training.trainer import Training
from training.unrelated import Unrelated, information_of, limit_of, other_places, unrelated_pairs


def shuffled(pairs: Sequence[tuple[str, str]], share: float) -> tuple[list[tuple[str, str]], set[int]]:
    """Pairs of which a share have the target of another one, and the numbers of those."""
    draw = np.random.default_rng(1)
    moved = draw.permutation(len(pairs))[: int(share * len(pairs))]
    result = list(pairs)
    for row, other in zip(moved.tolist(), np.roll(moved, 1).tolist(), strict=True):
        result[row] = pairs[row][0], pairs[other][1]
    return result, {row for row in moved.tolist() if result[row] != pairs[row]}


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_a_trained_model_finds_shuffled_pairs(translator: Translator, demo: Corpus, share: float) -> None:
    texts, moved = shuffled(list(dict(demo.train[:800]).items()), share)
    table = pairs_of(*texts)
    corpus = Corpus(table, demo.valid, demo.test, origins=demo.origins)
    pairs = EncodedPairs.of(table, translator.tokenizer)
    found = unrelated_pairs(corpus, pairs, ALONE, translator)
    assert found.n_judged == len(texts)
    assert len(moved & set(found.rows)) >= 0.9 * len(moved)
    assert len(set(found.rows) - moved) <= 0.01 * len(texts)
    assert found.examples == [texts[row] for row in found.rows[:2]] and found.report.pairs == len(found.rows)


def test_what_a_model_cannot_judge_is_not_judged() -> None:
    draw = np.random.default_rng(1)
    assert limit_of(draw.normal(0.1, 0.3, 1000)) is None, "a model that knows nothing yet"
    assert limit_of(draw.normal(3, 0.7, 100)) is None, "too few pairs"
    for share in (0.0, 0.1, 0.3, 0.5):
        is_bad = draw.random(10_000) < share
        information = np.where(is_bad, draw.normal(0.3, 0.4, 10_000), draw.normal(2.5, 0.7, 10_000))
        limit = limit_of(information)
        assert limit is not None and (information[~is_bad] < limit).mean() < (0.06 if share else 0.002)
        assert not share or (information[is_bad] < limit).mean() > 0.85


def test_each_process_judges_a_share(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(tiny, small, tokenizer)
    places = np.arange(len(training.train_pairs))
    given = small, training.train_pairs, places
    expected = information_of(*given, ALONE, training.translator())
    for rank in range(3):
        group = Mock(rank=rank, size=3, gather=Mock(side_effect=lambda values: values))
        information_of(*given, group, training.translator())
        ((local,), _) = group.gather.call_args
        assert local == pytest.approx(expected[rank::3], abs=1e-5)


def test_the_other_source_is_another_and_as_long(tokenizer: Tokenizer) -> None:
    """Also in a file that has several translations of a source, one after another."""
    texts = [(f"The cat {i // 6} sleeps.", f"Le chat {i} dort.") for i in range(120)]
    texts += [("Oh", f"Oh {i} !") for i in range(50)]  # the only source of its length
    pairs = EncodedPairs.of(pairs_of(*texts), tokenizer)
    places = np.arange(5, 170)
    others = other_places(pairs, places)
    assert all(texts[place][0] != texts[other][0] for place, other in zip(places, others, strict=True))
    assert set(others.tolist()) <= set(places.tolist())
    longer = pairs.src_lengths[others] - pairs.src_lengths[places]
    assert (longer[:100] == 0).mean() > 0.9
    assert (others == other_places(pairs, places)).all(), "it is the same every time"


@pytest.fixture
def dropping(tiny: Config, small: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A config of ten steps, the model of which calls each third pair unrelated after the second."""

    def each_third(corpus: Corpus, pairs: EncodedPairs, *_: object) -> Unrelated:
        return Unrelated(pairs.rows[::3].tolist(), len(pairs), corpus.train[:2])

    monkeypatch.setattr("training.trainer.unrelated_pairs", each_third)
    return replace(tiny, steps=10, max_length=60, batch_tokens=64, drop_unrelated=True, self_distillation=0.3)


def rows_learned(training: Training) -> set[int]:
    """The rows of the training part that an epoch has."""
    plan = training.batch_plan
    return set(plan.pairs.rows[np.concatenate(plan.batches_of_first_epoch)].tolist())


def test_dropped_pairs_are_learned_from_no_more(dropping: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    small = replace(small, train=small.train.select(np.arange(60)))
    training = Training(replace(dropping, max_length=250, batch_tokens=256), small, tokenizer)
    everything = rows_learned(training)
    steps_per_epoch = training.steps_per_epoch
    advance(training, 2)
    assert training.is_round_due and rows_learned(training) == everything
    (report,) = training.make_rounds()
    assert isinstance(report, Unrelated)
    lines = list(round_lines(report, training))
    n, n_dropped = len(everything), len(report.rows)
    share = f"{n_dropped / n:.2%}"
    assert (
        lines[0] == f"dropped   from step 3: {n_dropped} pairs, {share}, where the source says nothing about the target"
    )
    assert len(lines) == 3
    kept = rows_learned(training)
    assert kept == everything - set(report.rows) and len(kept) == n - n_dropped < n
    assert training.batch_plan.steps_per_epoch < steps_per_epoch == training.steps_per_epoch
    # They stay away when the model learns from its own translations, and are not translated.
    advance(training, 6)
    assert training.translated.n_rounds and rows_learned(training) == kept
    assert set() < training.translated.targets.keys() <= kept, "some translations are too long to be learned from"
    assert describe(training).data.trained_on == n, "the report is of the data as they came"


@pytest.mark.parametrize("stop", [2, 5, 9])
def test_a_resumed_run_equals_an_uninterrupted_one(
    dropping: Config, small: Corpus, tokenizer: Tokenizer, stop: int, tmp_path: Path
) -> None:
    small = replace(small, train=small.train.select(np.arange(60)))
    straight, begun, resumed = (Training(dropping, small, tokenizer) for _ in range(3))
    advance(straight, 10)
    advance(begun, stop)
    folder = RunFolder(tmp_path / "run")
    folder.save_state(state_of(begun))
    torch.manual_seed(99)
    restore(resumed, folder.load_state())
    advance(resumed, 10 - stop)
    for name, parameter in parameters(straight.model).items():
        assert torch.equal(parameters(resumed.model)[name], parameter), name
    assert rows_learned(resumed) == rows_learned(straight)


def test_damaged_rows_are_refused_in_words(dropping: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    small = replace(small, train=small.train.select(np.arange(60)))
    training = Training(dropping, small, tokenizer)
    advance(training, 5)
    state = state_of(training)
    rows = training.train_pairs.rows.tolist()
    for wrong, says in (([60], "pairs that the data lack"), (rows, "all pairs are dropped")):
        state["translated"]["dropped"] = torch.tensor(wrong)
        with pytest.raises(CheckpointError, match=says):
            restore(training, state)


def test_a_state_of_before_the_setting_is_resumed(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    begun, resumed = (Training(replace(tiny, steps=6, self_distillation=0.5), small, tokenizer) for _ in range(2))
    advance(begun, 4)
    state = state_of(begun)
    del state["resume_signature"]["drop_unrelated"], state["translated"]["dropped"]
    restore(resumed, state)
    assert resumed.step == 4 and resumed.translated.n_rounds


def test_the_command_says_what_it_did(
    trained: "subprocess.CompletedProcess[str]", called: Command, demo: Corpus
) -> None:
    """A run that goes on from a trained model, on pairs of which some are shuffled."""
    texts, moved = shuffled(list(dict(demo.train[:500]).items()), 0.2)
    for part, pairs in (("train", texts), ("valid", demo.valid[:20]), ("test", demo.test[:5])):
        for side, language in enumerate(("en", "fr")):
            text = "".join(pair[side] + "\n" for pair in pairs)
            Path("data").mkdir(exist_ok=True)
            Path(f"data/{part}.{language}").write_text(text, encoding="utf-8")
    run = ["--init-from", f"{trained.args[-1]}/weights/demo", "--data", "data", "--steps", "10", "--device", "cpu"]
    done = called("train.py", *run, "--lr", "1e-4", "--name", "more", "--drop-unrelated")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("dropped   from step 3: ")]
    n_dropped = RunFolder(Path("weights/more")).load_metrics()["unrelated"]["pairs"]
    assert f"{n_dropped} pairs" in line and 0.9 * len(moved) <= n_dropped <= 1.1 * len(moved) + 5


def test_a_model_that_knows_too_little_drops_nothing(called: Command, few: Path) -> None:
    small = ["--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--vocab-size", "300", "--device", "cpu"]
    done = called("train.py", "demo", "--data", str(few), *small, "--steps", "5", "--drop-unrelated")
    assert done.returncode == 0 and "no pair is dropped as unrelated" in done.stderr, done.stderr


def test_pairs_are_named_by_their_rows(tokenizer: Tokenizer) -> None:
    table: Pairs = pairs_of(*[(f"The cat {i} sleeps.", f"Le chat {i} dort.") for i in range(5)])
    pairs = EncodedPairs.of(table, tokenizer)
    assert pairs.without([]) is pairs
    assert pairs.without([0, 3]).rows.tolist() == [1, 2, 4]
    assert len(pairs.without([0, 3]).replaced({}, {1: [5]}).without([1])) == 2
