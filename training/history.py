"""history.csv: a row for each validation of a run, for spreadsheets and for drawing curves."""

import csv
import io
import math
from collections.abc import Sequence

from checkpoint import RunFolder
from tapis.system.files import read_bounded, write_text
from training.records import Progress, StepRecord, Validation, mean_loss, tokens_per_second

MAX_BYTES = 100_000_000  # of the file that is there; a row has about a hundred
COLUMNS = (
    "step",
    "epoch",
    "seconds",
    "tokens",
    "lr",
    "train_loss",
    "valid_loss",
    "valid_perplexity",
    "valid_bleu",
    "valid_chrf",
    "tokens_per_second",
)


def add_to_history(
    folder: RunFolder, result: Validation, recent: Sequence[StepRecord], progress: Progress, epoch: float
) -> None:
    """Write history.csv with the row of a validation, after the rows of the steps before it.

    recent are the steps since the validation before, or since the run was resumed. Call it before the state is saved:
    after a kill, a resumed run repeats the last row or goes on after it.
    """
    row = (
        result.step,
        epoch,
        progress.seconds,
        progress.tokens,
        recent[-1].lr if recent else math.nan,
        mean_loss(recent),
        result.loss,
        result.perplexity,
        result.bleu,
        result.chrf,
        tokens_per_second(recent) if recent else math.nan,
    )
    before = read_bounded(folder.history_file, MAX_BYTES) if folder.history_file.exists() else ""
    write_text(folder.history_file, with_row(before, row))


def with_row(text: str, row: Sequence[float]) -> str:
    """Return the text of a history.csv with a row more. Rows of its step and of later ones are left out.

    What is not known is NaN in a row, and an empty cell in the text.
    """
    rows = [cells for cells in csv.reader(text.splitlines()) if cells and cells[0].isdecimal()]
    kept = [cells for cells in rows if int(cells[0]) < row[0]]
    written = io.StringIO()
    cells = ["" if math.isnan(value) else str(value) if isinstance(value, int) else f"{value:.6g}" for value in row]
    csv.writer(written, lineterminator="\n").writerows([COLUMNS, *kept, cells])
    return written.getvalue()
