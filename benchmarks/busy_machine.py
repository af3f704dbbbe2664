"""Training speed beside a busy program, for values of the variables by which libgomp's threads wait for each other.

    python benchmarks/busy_machine.py
    python benchmarks/busy_machine.py --settings "" GOMP_SPINCOUNT=600 GOMP_SPINCOUNT=1000

The steps are those of the multi30k preset, on synthetic pairs. In each round every setting takes a turn alone and a
turn beside one program that keeps one core busy. An empty setting is the environment as it is; train.py sets
GOMP_SPINCOUNT=800 (`tapis.system.cli.share_cores`).
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
import tyro  # noqa: E402
from measure import Contender, alternate, ratio, synthetic  # noqa: E402

from config import PRESETS, Config  # noqa: E402
from machine.devices import choose_precision, device_label  # noqa: E402
from pairs.cleaning import RULES  # noqa: E402
from pairs.corpus import load_corpus  # noqa: E402
from pairs.vocabulary import learn_tokenizer  # noqa: E402
from train import take_step  # noqa: E402
from training.trainer import Training  # noqa: E402


@dataclass(frozen=True)
class Options:
    """Time training steps alone and beside a busy program."""

    settings: tuple[str, ...] = ("", "GOMP_SPINCOUNT=800", "OMP_WAIT_POLICY=passive", "OMP_NUM_THREADS=1")
    """Environment variables of each contender, as NAME=VALUE, several with spaces between them"""
    seconds: float = 3.0
    """Length of a turn"""
    rounds: int = 3
    """Turns of each setting"""


def steps(config: Config) -> Callable[[float], float]:
    """Return a turn: seconds → tokens a second."""
    corpus = load_corpus(config)
    training = Training(config, corpus, learn_tokenizer(corpus.train, config.vocab_size))
    step = 0

    def turn(seconds: float) -> float:
        nonlocal step
        n_tokens = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            step += 1
            n_tokens += take_step(training, step).n_tokens
        return n_tokens / (time.perf_counter() - start)

    return turn


@contextmanager
def busy_program() -> Iterator[None]:
    """While entered, another process keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def compare(options: Options, config: Config) -> None:
    load_corpus(config)  # with processes of its own, which a contender may not start; the contenders find it cached
    contenders = {}
    for setting in options.settings:
        with patch.dict(os.environ, dict(variable.split("=", 1) for variable in setting.split())):
            contenders[setting] = Contender(partial(steps, config))
        contenders[setting](1.0)  # returns when it is ready

    def turn(setting: str, is_alone: bool) -> float:
        time.sleep(0.3)  # until the threads of the contender before are asleep
        if is_alone:
            return float(contenders[setting](options.seconds)[1])
        with busy_program():
            return float(contenders[setting](options.seconds)[1])

    speeds = alternate(
        {
            (setting, is_alone): partial(turn, setting, is_alone)
            for setting in options.settings
            for is_alone in (True, False)
        },
        options.rounds,
    )
    first_alone = speeds[options.settings[0], True]
    print(f"{device_label(torch.device('cpu'))}, {config.precision}, torch {torch.__version__}; tokens/s, medians")
    print(f"{'':<50} {'alone':>9} {'÷ first':>8} {'beside':>9} {'÷ first alone':>14}")
    for setting in options.settings:
        alone, beside = speeds[setting, True], speeds[setting, False]
        print(
            f"{setting or 'as it is':<50} {statistics.median(alone):>9,.0f} {ratio(alone, first_alone):>8.2f} "
            f"{statistics.median(beside):>9,.0f} {ratio(beside, first_alone):>14.2f}"
        )


def main() -> None:
    options = tyro.cli(Options)
    with synthetic(20_000) as data:
        precision = choose_precision("auto", torch.device("cpu"))
        config = replace(
            PRESETS["multi30k"],
            data=(data,),
            skip_rules=tuple(RULES),
            device="cpu",
            precision=precision,
            steps=10**6,
        )
        compare(options, config)


if __name__ == "__main__":
    main()
