"""What a training tells while it runs: lines on standard error, and TensorBoard under runs/<name>."""

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from cleaning import RULES

SAMPLES = 8  # validation sentences shown in TensorBoard, the same each time
EVENTS = "events.out.tfevents.*"


def say(line: str) -> None:
    """A line on standard error, above the progress bar where there is one; of several processes, one says it."""
    if os.environ.get("RANK", "0") == "0":
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
        lines.append(
            f"tokens    {name}: {side['tokens']:,}, {side['tokens per word']} a word; {percentiles} in a sentence"
        )
    lines.append(f"          vocabulary {report['vocabulary']:,}")
    lines.append(
        f"batches   {batches['in an epoch']:,} an epoch, at most {batches['tokens a side, at most']:,} tokens a side, "
        f"{batches['padding']:.1%} padding; {batches['steps']:,} steps in all"
    )
    return [
        *lines,
        f"model     {report['parameters']:,} parameters",
        f"device    {report['hardware']}, {report['precision']}",
    ]


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


class Logs:
    """The TensorBoard folder of a run. Every scalar's x is the step."""

    def __init__(self, folder: Path | None, step: int, every: int) -> None:
        """Goes on after step: what a run that was killed logged beyond it is hidden by its next life.

        Without a folder, nothing is written.
        """
        self.writer = SummaryWriter(str(folder), purge_step=step + 1) if folder else None
        self.step, self.every = step, every

    def text(self, name: str, text: str) -> None:
        """Lines shown as they are."""
        if self.writer:
            self.writer.add_text(name, f"```\n{text}\n```", self.step)

    def steps(self, window: Sequence[StepLog], padding: float) -> None:
        """Scalars of the first step and of every log_every-th; means over the steps since, from the window's end."""
        now = window[-1]
        if not self.writer or (now.step != 1 and now.step % self.every):
            return
        recent = window[-self.every :]
        n_tgt = sum(log.n_tgt for log in recent)
        for name, value in {
            "train/loss": sum(log.loss for log in recent) / n_tgt,
            "train/perplexity": perplexity(sum(log.plain for log in recent), n_tgt),
            "train/lr": now.lr,
            "train/grad_norm": now.grad_norm,
            "perf/tokens_per_second": tokens_per_second(recent),
            "perf/padding": padding,
        }.items():
            self.writer.add_scalar(name, value, now.step)
        if now.step == 1:
            self.writer.flush()

    def validation(self, result: Validation, samples: Sequence[Sequence[str]]) -> None:
        """Scores, and rows of source, reference and hypothesis."""
        if not self.writer:
            return
        for name in ("loss", "perplexity", "bleu", "chrf"):
            self.writer.add_scalar(f"valid/{name}", getattr(result, name), result.step)
        rows = [("source", "reference", "hypothesis"), ("---",) * 3, *samples[:SAMPLES]]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
        self.writer.add_text("valid/samples", table, result.step)
        self.writer.flush()

    def close(self) -> None:
        if self.writer:
            self.writer.close()


def perplexity(plain: float, n_tgt: float) -> float:
    """exp of the mean cross-entropy, of which an untrained model's may be beyond what a float holds."""
    return math.exp(min(plain / n_tgt, 100.0))


def tokens_per_second(window: Sequence[StepLog]) -> float:
    """The median over steps, which a busy machine disturbs less than the mean."""
    return float(np.median([log.n_tokens / log.seconds for log in window]))
