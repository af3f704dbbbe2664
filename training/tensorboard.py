"""What TensorBoard shows of a run, under runs/<name>: scalars, samples, attention, settings."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from config import Config
from tapis.attention import quiet
from tapis.system.terminal import errors_as_warnings
from training.records import Progress, StepRecord, Validation, mean_loss, perplexity, tokens_per_second

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES = 8  # validation sentences that are shown, the same each time
METRICS = ("valid/bleu", "valid/chrf", "valid/loss", "test/bleu", "test/chrf")  # by which runs are compared
CHARTS = {
    "loss": ["train/loss", "valid/loss"],
    "BLEU and chrF": ["valid/bleu", "valid/chrf"],
    "gradient norms": ["train/grad_norm", "train/part_grad_norm/.*"],
}
EVENTS = "events.out.tfevents.*"
PICTURES_SHARE = 0.01  # of a run's time, at most, goes into drawing attention


def _leave_to_next_call(args: threading.ExceptHookArgs) -> None:
    """Leave an error of TensorBoard's writing thread, such as a full disk, to the next call of a writer."""
    if not isinstance(args.exc_value, OSError):
        threading.__excepthook__(args)


P = ParamSpec("P")


def stops_logging_on_error(log: Callable[Concatenate["Logs", P], None]) -> Callable[Concatenate["Logs", P], None]:
    """Decorate a method that writes: skip it without a writer, and on an error print a warning and stop logging."""

    @wraps(log)
    def log_or_stop(logs: "Logs", /, *args: P.args, **kwargs: P.kwargs) -> None:
        if not logs.writer:
            return
        is_written = False
        with errors_as_warnings("the run goes on, but nothing more of it is logged for TensorBoard"):
            log(logs, *args, **kwargs)
            is_written = True
        if not is_written:
            logs.writer = None

    return log_or_stop


class Logs:
    """The TensorBoard folder of a run. The x of every scalar is the step.

    If the folder cannot be written to, as on a full disk, a warning says so, and nothing more is logged.
    """

    def __init__(self, folder: Path | None, progress: Progress, every: int) -> None:
        """Continue after `progress`: hides what a killed run logged beyond it. Without a folder, writes nothing."""
        self.every = every
        self.start_step = progress.step
        self.hypotheses_before: list[str] = []  # of the samples, at the validation before
        self.seconds_drawing = 0.0
        self.seconds_of_last_drawing = 2.0  # an estimate, until the first one
        self.writer: SummaryWriter | None = None
        if folder:
            threading.excepthook = _leave_to_next_call
            with errors_as_warnings("nothing of the run is logged for TensorBoard"):
                self.writer = SummaryWriter(str(folder), purge_step=progress.step + 1)

    @stops_logging_on_error
    def text(self, name: str, text: str) -> None:
        """Show lines as they are."""
        assert self.writer
        self.writer.add_text(name, f"```\n{text}\n```", self.start_step)

    @stops_logging_on_error
    def settings(self, config: Config) -> None:
        """Fill the tab HPARAMS with the config, and arrange the tab CUSTOM SCALARS."""
        assert self.writer and self.writer.file_writer
        values = {name: str(value) if isinstance(value, tuple) else value for name, value in asdict(config).items()}
        for summary in hparams(values, dict.fromkeys(METRICS, 0.0)):
            self.writer.file_writer.add_summary(summary)
        self.writer.add_custom_scalars({"training": {name: ["Multiline", tags] for name, tags in CHARTS.items()}})

    @stops_logging_on_error
    def steps(self, records: Sequence[StepRecord], padding: float) -> None:
        """Write scalars of the first step and of every `every`-th one: means over the last `every` of these records."""
        assert self.writer
        now = records[-1]
        if now.step != 1 and now.step % self.every:
            return
        recent = records[-self.every :]
        n_tgt = sum(record.n_tgt for record in recent)
        scalars = {
            "train/loss": mean_loss(recent),
            "train/perplexity": perplexity(sum(record.cross_entropy for record in recent), n_tgt),
            "train/lr": now.lr,
            "train/grad_norm": now.grad_norm,
            **{f"train/part_grad_norm/{part}": norm for part, norm in now.grad_norms.items()},
            "perf/tokens_per_second": tokens_per_second(recent),
            "perf/padding": padding,
        }
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, now.step)
        if now.step == 1:
            self.writer.flush()

    @stops_logging_on_error
    def validation(self, result: Validation, samples: Sequence[tuple[str, str, str]]) -> None:
        """Write scores, and a table of samples (source, reference, hypothesis) with the hypothesis before."""
        assert self.writer
        for name in ("loss", "perplexity", "bleu", "chrf"):
            self.writer.add_scalar(f"valid/{name}", getattr(result, name), result.step)
        self._by_data("valid", result.by_data, result.step)
        before = self.hypotheses_before or ["…"] * len(samples)
        self.hypotheses_before = [hypothesis for _, _, hypothesis in samples]
        rows = [("source", "reference", "hypothesis", "before"), ("---",) * 4]
        rows += [(*sample, earlier) for sample, earlier in zip(samples, before, strict=True)]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
        self.writer.add_text("valid/samples", table, result.step)
        self.writer.flush()

    @stops_logging_on_error
    def pictures(self, draw: Callable[[], Iterable[tuple[str, "Figure"]]], progress: Progress, is_last: bool) -> None:
        """Draw named figures: always the last time, and before as often as drawing takes under 1 % of the run."""
        assert self.writer
        is_affordable = self.seconds_drawing + self.seconds_of_last_drawing <= PICTURES_SHARE * progress.seconds
        if not (is_last or is_affordable):
            return
        start = time.perf_counter()
        with errors_as_warnings("a picture of attention is left out"), quiet():
            for name, figure in draw():
                self.writer.add_figure(name, figure, progress.step)
        self.seconds_of_last_drawing = time.perf_counter() - start
        self.seconds_drawing += self.seconds_of_last_drawing

    @stops_logging_on_error
    def test(self, bleu: float, chrf: float, by_data: dict[str, dict[str, float]], step: int) -> None:
        """Write the scores of the best model on the test part, after the last step."""
        assert self.writer
        self.writer.add_scalar("test/bleu", bleu, step)
        self.writer.add_scalar("test/chrf", chrf, step)
        self._by_data("test", by_data, step)

    def _by_data(self, part: str, scores: dict[str, dict[str, float]], step: int) -> None:
        """Write the scores of each source of data, if there are several."""
        assert self.writer
        for label, values in scores.items():
            for name, value in values.items():
                self.writer.add_scalar(f"{part}/{name}/{label}", value, step)

    @stops_logging_on_error
    def close(self) -> None:
        assert self.writer
        self.writer.close()
