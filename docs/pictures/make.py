"""Make curves.png and attention.png from the run of the demo.

Type, in the folder of the project and after `make demo`: python docs/pictures/make.py
"""

import subprocess
import sys
from pathlib import Path

from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

PICTURES = Path("docs/pictures")
RUN = Path("runs/demo")
SENTENCE = "The cat is sitting on the mat."


def draw_curves(file: Path) -> None:
    """Plot the loss and the validation BLEU of the run against its steps, side by side."""
    events = EventAccumulator(str(RUN))
    events.Reload()
    figure = Figure(figsize=(7, 2.2), dpi=100, layout="constrained")
    loss, bleu = figure.subplots(1, 2)

    for axes, title, tags in ((loss, "loss", ["train/loss", "valid/loss"]), (bleu, "BLEU", ["valid/bleu"])):
        for tag in tags:
            points = events.Scalars(tag)
            steps, values = [point.step for point in points], [point.value for point in points]
            axes.plot(steps, values, label=tag, marker=".", markersize=4)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("step", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)

    figure.savefig(file)


def draw_attention(file: Path) -> None:
    """Draw the first decoder layer's attention, whose heads align the words."""
    command = [sys.executable, "translate.py", "--run", "demo", SENTENCE, "--attention", str(file), "--layer", "1"]
    subprocess.run(command, check=True)


def main() -> None:
    if not RUN.is_dir():
        sys.exit(f"make.py: {RUN} not found; run `make demo` first, and start this script from the project's root")
    draw_curves(PICTURES / "curves.png")
    draw_attention(PICTURES / "attention.png")


if __name__ == "__main__":
    main()
