"""What a training tells while it runs: lines on standard error, and TensorBoard under runs/<name>."""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams
from tqdm import tqdm

from config import Config
from decoding.attention import quiet
from text.cleaning import RULES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = 8  # validation sentences shown in TensorBoard, the same each time
METRICS = ("valid/bleu", "valid/chrf", "valid/loss", "test/bleu", "test/chrf")  # by which runs are compared
EVENTS = "events.out.tfevents.*"


def speaks() -> bool:
    """Whether this process, of all that torchrun started, is the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


def say(line: str) -> None:
    """A line on standard error, above the progress bar where there is one; of several processes, one says it."""
    if speaks():
        tqdm.write(line, file=sys.stderr)


def overview(report: dict[str, Any]) -> list[str]:
    """What train.describe found, as the lines that the terminal and TensorBoard show."""
    data, batches, read = report["data"], report["batches"], max(1, report["data"]["read"])
    lines = [f"data      {data['name']}: {data['read']:,} pairs read"]
    rules = {name: (rule, RULES[name]) for name, rule in data["rules"].items()}
    rules["over-long"] = (data["over-long"], "dropped: more tokens on one side than --max-length")
    for name, (rule, what) in rules.items():
        if rule["pairs"]:
            lines.append(f"{rule['pairs']:>9,} {rule['pairs'] / read:7.2%}  {name}, {what}")
            lines += [f"{'':19}{_shorten(source)} | {_shorten(target)}" for source, target in rule["examples"]]
    idle = ", ".join(name for name, (rule, _) in rules.items() if not rule["pairs"])
    lines += [f"{0:>9}          {idle}"] * bool(idle) + [f"          {note}" for note in data["notes"]]
    lines.append(f"          train {data['trained on']:,}  valid {data['valid']:,}  test {data['test']:,} pairs")
    for name, side in report["sides"].items():
        percentiles = "  ".join(f"{p} % ≤ {length:,}" for p, length in side["percentiles"].items())
        counts = f"{side['tokens']:,}, {side['tokens per word']} a word"
        lines.append(f"tokens    {name}: {counts}; {percentiles} in a sentence")
    lines.append(f"          vocabulary {report['vocabulary']:,}")
    lines.append(
        f"batches   {batches['in an epoch']:,} an epoch, at most {batches['tokens a side, at most']:,} tokens a side, "
        f"{batches['padding']:.1%} padding; {batches['steps']:,} steps in all"
    )
    lines.append(f"model     {report['parameters']:,} parameters")
    return [*lines, f"device    {report['hardware']}, {report['precision']}"]


def _shorten(text: str) -> str:
    return text if len(text) <= 48 else text[:47] + "…"


@dataclass(frozen=True)
class StepLog:
    """One step: its losses summed over n_tgt target tokens, in nats, and how it went."""

    step: int
    loss: float
    plain: float
    """The cross-entropy without label smoothing; perplexity is exp of its mean"""
    grad_norm: float
    """Of all weights; of those of each part of the model in grad_norms"""
    grad_norms: dict[str, float]
    lr: float
    n_tgt: int
    n_tokens: int
    """Source and target tokens, without padding"""
    seconds: float


@dataclass(frozen=True)
class Validation:
    """The whole validation part, scored after `step` steps; loss is comparable with the training's."""

    step: int
    loss: float
    perplexity: float
    bleu: float
    chrf: float

    def rank(self) -> tuple[float, float]:
        """What the best is chosen by: BLEU, then loss (early on, every BLEU is 0)."""
        return self.bleu, -self.loss


def warnings(now: Validation, best: Validation, train_loss: float, hypotheses: Sequence[str], stale: int) -> list[str]:
    """What a validation shows to be wrong, and the usual causes; nothing where all seems well.

    stale: validations since the best; train_loss: the mean since the validation before.
    """
    found = []
    if len(set(hypotheses)) == 1 < len(hypotheses):
        found.append(
            f"warning   all {len(hypotheses):,} translations of the validation part are the same; early on that is "
            "usual,\n          later --lr is too high, or sources and targets are not each other's translations"
        )
    if stale and stale % 5 == 0:
        cause = (
            "the loss in training is much lower: more data, a higher --dropout or a smaller model"
            if train_loss < now.loss - 0.5
            else "the loss in training falls no more either: another --lr, or a larger model"
        )
        found.append(
            f"warning   none of the last {stale} validations was better than that of step {best.step:,};\n"
            f"          {cause} may help, and --patience ends such trainings"
        )
    return found


class At(NamedTuple):
    """Where a training is."""

    step: int
    tokens: int
    """Source and target tokens learned from so far"""
    seconds: float
    """Of training and validating so far, all lives together"""


def _handed_on(args: threading.ExceptHookArgs) -> None:
    """A disk that is full ends TensorBoard's writing thread, whose error the next call of a writer raises again."""
    if not isinstance(args.exc_value, OSError):
        threading.__excepthook__(args)


class Logs:
    """The TensorBoard folder of a run.

    Every scalar's x is the step. The curves of both losses and of BLEU are drawn twice more, as by_tokens/ and
    by_seconds/, in folders of their own, so that what is hidden after a resumption is counted in tokens and seconds.
    """

    def __init__(self, folder: Path | None, at: At, every: int) -> None:
        """Goes on after `at`: what a run that was killed logged beyond it is hidden by its next life.

        Without a folder, nothing is written.
        """
        self.at, self.every = at, every
        self.before: list[str] = []  # the samples' hypotheses at the validation before
        self.drawing, self.one_drawing = 0.0, 2.0  # seconds spent on pictures, and what they take each time
        self.writer: SummaryWriter | None = None
        if folder:
            threading.excepthook = _handed_on
            self.writer = SummaryWriter(str(folder), purge_step=at.step + 1)
            self.by_tokens = SummaryWriter(str(folder / "by-tokens"), purge_step=at.tokens + 1)
            self.by_seconds = SummaryWriter(str(folder / "by-seconds"), purge_step=int(at.seconds) + 1)

    def text(self, name: str, text: str) -> None:
        """Lines shown as they are."""
        if self.writer:
            self.writer.add_text(name, f"```\n{text}\n```", self.at.step)

    def run(self, config: Config) -> None:
        """What is set in this run, for the tab HPARAMS, and which curves the tab CUSTOM SCALARS shows in one chart."""
        if not self.writer or not self.writer.file_writer:
            return
        chosen = {name: str(value) if isinstance(value, tuple) else value for name, value in asdict(config).items()}
        for summary in hparams(chosen, dict.fromkeys(METRICS, 0.0)):
            self.writer.file_writer.add_summary(summary)
        charts = {
            "loss": ["train/loss", "valid/loss"],
            "BLEU and chrF": ["valid/bleu", "valid/chrf"],
            "gradient norms": ["train/grad_norm", "grad_norm/.*"],
        }
        self.writer.add_custom_scalars({"training": {name: ["Multiline", tags] for name, tags in charts.items()}})

    def steps(self, window: Sequence[StepLog], padding: float, at: At) -> None:
        """Scalars of the first step and of every log_every-th; means over the steps since, from the window's end."""
        now = window[-1]
        if not self.writer or (now.step != 1 and now.step % self.every):
            return
        recent = window[-self.every :]
        n_tgt = sum(log.n_tgt for log in recent)
        loss = sum(log.loss for log in recent) / n_tgt
        for name, value in {
            "train/loss": loss,
            "train/perplexity": perplexity(sum(log.plain for log in recent), n_tgt),
            "train/lr": now.lr,
            "train/grad_norm": now.grad_norm,
            **{f"grad_norm/{name}": norm for name, norm in now.grad_norms.items()},
            "perf/tokens_per_second": tokens_per_second(recent),
            "perf/padding": padding,
        }.items():
            self.writer.add_scalar(name, value, now.step)
        self.also("train/loss", loss, at)
        if now.step == 1:
            self.writer.flush()

    def also(self, name: str, value: float, at: At) -> None:
        """A scalar over tokens and over seconds; under another name, for TensorBoard draws one chart of each name."""
        self.by_tokens.add_scalar(f"by_tokens/{name.replace('/', '_')}", value, at.tokens)
        self.by_seconds.add_scalar(f"by_seconds/{name.replace('/', '_')}", value, int(at.seconds))

    def validation(self, result: Validation, samples: Sequence[tuple[str, str, str]], at: At) -> None:
        """Scores, and rows of source, reference, hypothesis and the hypothesis of the validation before."""
        if not self.writer:
            return
        for name in ("loss", "perplexity", "bleu", "chrf"):
            self.writer.add_scalar(f"valid/{name}", getattr(result, name), result.step)
        for name in ("loss", "bleu"):
            self.also(f"valid/{name}", getattr(result, name), at)
        samples = samples[:SAMPLES]
        before, self.before = self.before or ["…"] * SAMPLES, [hypothesis for _, _, hypothesis in samples]
        rows = [("source", "reference", "hypothesis", "before"), ("---",) * 4]
        rows += [(*sample, then) for sample, then in zip(samples, before, strict=False)]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
        self.writer.add_text("valid/samples", table, result.step)
        self.writer.flush()

    def pictures(self, draw: Callable[[], Iterable[tuple[str, "Figure"]]], at: At, last: bool) -> None:
        """Named figures: as often as all of their drawing takes under 1 % of the training; and the last time."""
        if not self.writer or not (last or self.drawing + self.one_drawing <= 0.01 * at.seconds):
            return
        start = time.perf_counter()
        with quiet():
            for name, figure in draw():
                self.writer.add_figure(name, figure, at.step)
        self.one_drawing = time.perf_counter() - start
        self.drawing += self.one_drawing

    def test(self, bleu: float, chrf: float, step: int) -> None:
        """The scores of the best model on the test part, after the last step."""
        if self.writer:
            self.writer.add_scalar("test/bleu", bleu, step)
            self.writer.add_scalar("test/chrf", chrf, step)

    def close(self) -> None:
        if self.writer:
            for writer in (self.writer, self.by_tokens, self.by_seconds):
                writer.close()


def perplexity(plain: float, n_tgt: float) -> float:
    """exp of the mean cross-entropy, of which an untrained model's may be beyond what a float holds."""
    return math.exp(min(plain / n_tgt, 100.0))


def tokens_per_second(window: Sequence[StepLog]) -> float:
    """The median over steps, which a busy machine disturbs less than the mean."""
    return float(np.median([log.n_tokens / log.seconds for log in window]))
