"""Makes the README's pictures from the demo's run: `make demo`, then `python pictures/make.py`."""

import subprocess
import sys
from pathlib import Path

from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

HERE = Path(__file__).parent
SENTENCE = "The cat is sitting on the mat."


def main() -> None:
    events = EventAccumulator("runs/demo")
    events.Reload()
    figure = Figure(figsize=(7, 2.2), dpi=100, layout="constrained")
    for place, title, tags in ((1, "loss", ("train/loss", "valid/loss")), (2, "BLEU", ("valid/bleu",))):
        axes = figure.add_subplot(1, 2, place)
        for tag in tags:
            points = events.Scalars(tag)
            axes.plot([p.step for p in points], [p.value for p in points], label=tag, marker=".", markersize=4)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("step", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(HERE / "curves.png")
    command = [sys.executable, "translate.py", "--run", "demo", SENTENCE, "--attention", str(HERE / "attention.png")]
    subprocess.run([*command, "--layer", "1"], check=True)


if __name__ == "__main__":
    main()
