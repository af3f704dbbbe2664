"""The state of a run: what a resumed run needs to make the same steps as one that never stopped.

Besides, it needs the same data, and the same teachers, whose weights the state does not have but their digests.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from checkpoint import check_fit, load_parameters, parameters
from config import FACTS
from machine.distributed import collected, local_part, part_like
from tapis.release import CheckpointError
from tapis.system.cli import is_out_of_memory
from tapis.system.terminal import in_one_line
from training.json_records import from_json_value
from training.optimizers import KEPT_OF_A_WEIGHT
from training.own_translations import Translated, rounds
from training.records import Position
from training.trainer import Training

NAMES_OF_PARTS = {"train": "its training pairs", "valid": "its validation pairs", "test": "its test pairs"}


def state_of(training: Training) -> dict[str, Any]:
    """Return everything that `restore` needs, in types that `machine.state_file` can write.

    All processes must call it together.
    """
    now, translated = training.translated, None
    if now.n_rounds:  # before the first round, teachers are not chosen yet
        translated = {
            "n_rounds": now.n_rounds,
            "after_step": now.after_step,
            "sources": to_tensors(now.sources),
            "targets": to_tensors(now.targets),
            "dropped": torch.tensor(now.dropped, dtype=torch.int64),
            "teachers": {name: teacher.digest for name, teacher in training.teachers.items()},
        }
    return {
        "step": training.step,
        "tokens": training.tokens,
        "seconds": training.seconds,
        "best": asdict(training.best) if training.best else None,
        "validations_since_best": training.validations_since_best,
        "validated": training.validated,
        "model": {name: collected(weight) for name, weight in parameters(training.model).items()},
        "optimizers": [
            [tree_map(collected, kept) for _, kept in sorted(optimizer.state_dict()["state"].items())]
            for optimizer in training.optimizers
        ],
        "scaler": training.scaler.state_dict(),
        "translated": translated,
        "resume_signature": training.resume_signature,
        **training.resolved.to_state(training.config),
    }


def restore(training: Training, state: dict[str, Any]) -> None:
    """Put a run where another one was. Raises CheckpointError if the state is damaged, or another run's."""
    signature = state.get("resume_signature")
    if isinstance(signature, dict):
        signature = as_today(signature)
    if not isinstance(signature, dict) or signature.keys() != training.resume_signature.keys():
        raise CheckpointError(
            f"the training state of {training.config.name} is from another version of Tapis, and cannot be resumed\n"
            "its best model still translates; to train, start afresh, with --overwrite"
        )
    _check_signature(training, signature)
    try:
        check_fit(training.model, {name: weight.shape for name, weight in state["model"].items()}, "the training state")
        for weight in state["model"].values():
            check_numbers(weight, "its model")
        load_parameters(training.model, state["model"], "the training state")
        for optimizer, optimizer_state in zip(training.optimizers, state["optimizers"], strict=True):
            load_optimizer_state(optimizer, optimizer_state)
        if training.captured:
            training.captured.begin_anew()
        scaler = training.scaler.state_dict()
        training.scaler.load_state_dict({name: type(value)(state["scaler"][name]) for name, value in scaler.items()})
        position = from_json_value(Position, state)
        check_position(position)
        training.step, training.tokens, training.seconds = position.step, position.tokens, position.seconds
        training.best, training.validations_since_best = position.best, position.validations_since_best
        training.validated = position.validated
        translated = Translated()
        if state["translated"]:
            _restore_teachers(training, state["translated"]["teachers"])
            translated = _translations_of(training, state["translated"])
        if translated != training.translated:
            training.learn_from(translated)  # after the teachers: the layout of batches depends on them
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise CheckpointError(
            f"the training state does not fit this run ({in_one_line(error)}): start afresh"
        ) from None


def snapshot(training: Training) -> Callable[[], None]:
    """Return what puts the weights, the optimizers and the scaler back as they are now: the parts of this process."""
    weights = [local_part(weight).detach().clone() for weight in training.model.parameters()]
    optimizers = [copy.deepcopy(optimizer.state_dict()) for optimizer in training.optimizers]
    scaler = training.scaler.state_dict()

    def put_back() -> None:
        with torch.no_grad():
            for weight, before in zip(training.model.parameters(), weights, strict=True):
                local_part(weight).copy_(before)
        for optimizer, state in zip(training.optimizers, optimizers, strict=True):
            optimizer.load_state_dict(state)
        if training.captured:
            training.captured.begin_anew()
        training.scaler.load_state_dict(scaler)

    return put_back


def as_today(signature: dict[str, str]) -> dict[str, str]:
    """Return a signature that an earlier version may have written, as this one writes it; empty if it is none.

    A setting that it lacks has the value by which runs were made before there was the setting.
    """
    if not all(isinstance(text, str) for text in (*signature.keys(), *signature.values())):
        return {}
    added = {name: str(facts.before) for name, facts in FACTS.items() if facts.since and not facts.is_resumable}
    return added | signature


def check_numbers(value: Tensor, what: str) -> None:
    """Raise ValueError unless a tensor of a state has finite numbers of 32 bits. what names the state."""
    if value.dtype != torch.float32:
        raise ValueError(f"{what} has other kinds of numbers")
    if not bool(value.isfinite().all()):
        raise ValueError(f"{what} has numbers that are not finite")


def load_optimizer_state(optimizer: torch.optim.Optimizer, kept_of_weights: Sequence[dict[str, Tensor]]) -> None:
    """Load what an optimizer keeps of each weight, in parts where its weights are in parts; nothing before a step.

    Settings stay those of this run. Raises ValueError if the state is not one of this optimizer and these weights.
    """
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]

    def part(name: str, value: Tensor, weight: Tensor) -> Tensor:
        if value.shape != (() if name == "step" else weight.shape):
            raise ValueError("the state of an optimizer has other shapes than the weights")
        check_numbers(value, "the state of an optimizer")
        if name in ("step", "exp_avg_sq") and bool((value < 0).any()):
            raise ValueError("the state of an optimizer has numbers below 0")
        return value if name == "step" else part_like(weight, value)

    if any(kept.keys() != KEPT_OF_A_WEIGHT[type(optimizer)] for kept in kept_of_weights):
        raise ValueError("the state of an optimizer is that of another one")
    if len(kept_of_weights) not in (0, len(weights)):
        raise ValueError("the state of an optimizer is not that of all weights")
    of_weights = {
        i: {name: part(name, value, weights[i]) for name, value in kept.items()}
        for i, kept in enumerate(kept_of_weights)
    }
    optimizer.load_state_dict({"state": of_weights, "param_groups": optimizer.state_dict()["param_groups"]})


def check_position(position: Position) -> None:
    """Raise ValueError for a position that no run can have."""
    best = position.best
    if not (
        0 <= position.step <= 10**9
        and 0 <= position.tokens < 2**63
        and 0 <= position.seconds < 1e10
        and 0 <= position.validations_since_best <= position.step + 1
        and (best is None or (0 <= best.step <= position.step and 0 <= best.bleu <= 100.001))
        and (position.validated is None or 0 <= position.validated <= position.step)
    ):
        raise ValueError("its position is out of range")


def _translations_of(training: Training, saved: dict[str, Any]) -> Translated:
    """Return the saved translations, but for those whose round is to come in a run that was made longer."""
    n_saved, after_step = saved["n_rounds"], saved["after_step"]
    if type(n_saved) is not int or type(after_step) is not int:
        raise ValueError("the rounds of its translations are no numbers")
    if not (0 <= n_saved <= len(rounds(training.config)) and 0 <= after_step <= training.step):
        raise ValueError("the rounds of its translations are out of range")
    n_rounds = min(n_saved, training.n_rounds)
    if not n_rounds:
        return Translated()

    made = {one.kind for one in rounds(training.config)[:n_rounds]}
    after_step = after_step if n_rounds == n_saved else training.step
    sources = from_tensors(saved["sources"]) if "back-translation" in made else {}
    targets = from_tensors(saved["targets"]) if made & {"distillation", "self-distillation"} else {}
    dropped = row_of_integers(saved["dropped"]).tolist() if "dropping" in made else []
    if not {*sources, *targets, *dropped} <= set(training.train_pairs.rows.tolist()):
        raise ValueError("there are translations of pairs that the data lack")
    if len(set(dropped)) == len(training.train_pairs):
        raise ValueError("all pairs are dropped")
    for ids in (*sources.values(), *targets.values()):
        if len(ids) > training.config.max_length + 2:  # with the tags of a source
            raise ValueError("a translation is longer than --max-length")
        if not all(0 <= token < len(training.tokenizer) for token in ids):
            raise ValueError("a translation has tokens that the vocabulary lacks")
    return Translated(n_rounds, after_step, sources, targets, dropped)


def to_tensors(ids_by_row: Mapping[int, Sequence[int]]) -> dict[str, Tensor]:
    """Return token ids as `from_tensors` reads them again: the rows, the lengths, and the ids end to end."""
    ids = [np.asarray(ids, dtype=np.int32) for ids in ids_by_row.values()]
    return {
        "rows": torch.tensor(list(ids_by_row), dtype=torch.int64),
        "lengths": torch.tensor([len(one) for one in ids], dtype=torch.int32),
        "ids": torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int32), *ids])),
    }


def from_tensors(tensors: Mapping[str, Tensor]) -> dict[int, list[int]]:
    """Return the inverse of `to_tensors`. Raises ValueError if rows, lengths and ids do not belong together."""
    rows, lengths, ids = (row_of_integers(tensors[name]) for name in ("rows", "lengths", "ids"))
    n_ids: list[int] = lengths.tolist()
    if sum(n_ids) != len(ids) or len(rows) != len(n_ids):
        raise ValueError("the lengths of the translations do not add up")
    return dict(zip(rows.tolist(), (part.tolist() for part in torch.split(ids, n_ids)), strict=True))


def row_of_integers(tensor: Tensor) -> Tensor:
    """Return a tensor of a state. Raises ValueError unless it is a row of integers."""
    if tensor.dim() != 1 or tensor.dtype not in (torch.int32, torch.int64):
        raise ValueError("the translations are not in rows of integers")
    return tensor


def teachers_of(state: dict[str, Any]) -> list[str] | None:
    """Return the runs whose probabilities a state's run learned; None if it had not begun to learn."""
    translated = state.get("translated")
    saved = translated.get("teachers", {}) if isinstance(translated, dict) else None
    return [name for name in saved if isinstance(name, str)] if isinstance(saved, dict) else None


def _restore_teachers(training: Training, saved: dict[str, str]) -> None:
    """Learn from the same teachers as before, by the digests of their weights."""
    for name, digest in saved.items():
        if name not in training.teachers or training.teachers[name].digest != digest:
            raise CheckpointError(
                f"the run {training.config.name} cannot go on: its teacher {in_one_line(name)} is missing, or has "
                "changed since it was saved\nput back what was there, or start afresh, with --overwrite"
            )
    training.keep_teachers(saved)


def _check_signature(training: Training, saved: dict[str, str]) -> None:
    changed = [name for name, now in training.resume_signature.items() if saved.get(name) != now]
    if changed:
        names = ", ".join(NAMES_OF_PARTS.get(name, name) for name in changed)
        raise CheckpointError(
            f"the run {training.config.name} cannot go on: {names} changed since it was saved\n"
            "put back what was there, or start afresh, with --overwrite"
        )
