"""What a run settles where its config leaves it open: by the machine, by its processes, by its data and by --minutes.

It is settled once; the training state keeps it, so that a resumed run goes on with it on any machine.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from config import Config
from machine.devices import choose_precision
from tapis.config import ConfigError, Precision
from tapis.release import CheckpointError
from tapis.system.terminal import in_one_line
from training.json_records import from_json_value


@dataclass(frozen=True)
class Resolved:
    """How a run computes, and how long it is."""

    precision: Precision
    """Of matrix products; not auto"""
    accumulate: int
    """Batches of an optimizer step; at least one for each process"""
    warmup_steps: int
    """Of the learning rate; with --minutes, fewer than were asked for if the run is short"""
    steps: int
    """Optimizer steps in total; with --minutes, settled after half of the time; 0 if epochs are not yet counted"""

    @classmethod
    def of(cls, config: Config, device: torch.device, n_processes: int = 1) -> "Resolved":
        """Settle for a new run what does not depend on its data."""
        precision = choose_precision(config.precision, device)
        return cls(precision, max(config.accumulate, n_processes), config.warmup_steps, config.steps)

    @classmethod
    def saved(
        cls, state: dict[str, Any], config: Config, n_processes: int = 1, *, follows_config: bool = False
    ) -> "Resolved":
        """Return what a run settled before it was saved. Its length follows the config if that has changed or if asked.

        Raises CheckpointError if the state is damaged, ConfigError if its steps have too few batches for the processes.
        """
        try:
            resolved = from_json_value(cls, state.get("resolved"))
            replace(config, **asdict(resolved))  # within the ranges of settings
            if resolved.precision == "auto":
                raise ValueError("its precision is none")
        except (ValueError, ConfigError) as error:
            raise CheckpointError(
                f"the training state of {config.name} is damaged ({in_one_line(error)}): start afresh"
            ) from None
        if follows_config or repr(state.get("asked")) != repr(asked_length(config)):  # which compares any types
            resolved = replace(resolved, steps=config.steps)
        if resolved.accumulate < n_processes:
            raise ConfigError(
                f"the steps of the run {config.name} have {resolved.accumulate} batches (--accumulate), too few for "
                f"{n_processes} processes\nresume it with at most {resolved.accumulate}"
            )
        return resolved

    def to_state(self, config: Config) -> dict[str, Any]:
        """Return what `saved` reads."""
        return {"resolved": asdict(self), "asked": asked_length(config)}


def asked_length(config: Config) -> dict[str, int]:
    """Return the length of a run as it was asked for."""
    return {"epochs": config.epochs, "steps": config.steps}
