"""Record a command in a terminal as an animated picture: docs/pictures/demo.svg.

    python docs/pictures/terminal.py docs/pictures/demo.svg make demo

The command runs, and each of its lines appears in the picture when it was printed, eight times as fast. The current
folder is called ~/tapis. The picture is an SVG without scripts: CSS lets the lines appear and scrolls them. Who prefers
no motion sees the end.
"""

import html
import os
import pty
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

COLUMNS, ROWS = 116, 26
CHARACTER, LINE, MARGIN = 7.85, 19, 16  # pixels, of 13 pixel letters
FASTER = 8
PAUSE = 6.0  # seconds at the end, before it begins again
OTHER_COLORS = [
    (r"^\$ .*", "#7ee787"),
    (r"^    \S", "#79c0ff"),
    (r"^(test|best) .*", "#ffa657"),
    (r"^Le .*", "#7ee787"),
]


class Printed(NamedTuple):
    """A line, and the seconds from the start of the command at which it was printed."""

    seconds: float
    line: str


def record(command: list[str]) -> list[Printed]:
    """Run a command in a terminal of its own, and return what it printed. Raises CalledProcessError if it fails."""
    ours, its = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1", "TERM": "dumb"}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    printed, rest = [Printed(0, "$ " + shlex.join(command))], b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # how Linux says that the last process has closed the terminal
            break
        *lines, rest = (rest + chunk).split(b"\n")
        seconds = time.perf_counter() - start
        printed += [Printed(seconds, shown(line)) for line in lines]
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)
    return [one for one in printed if one.line.strip()]


def shown(line: bytes) -> str:
    """Return what a terminal shows of a line in the end: without what a carriage return has overwritten."""
    text = line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text).replace(str(Path.cwd()), "~/tapis").rstrip()
    return text if len(text) <= COLUMNS else text[: COLUMNS - 1] + "…"


def picture(printed: list[Printed]) -> str:
    """Return the SVG."""
    moments = [one.seconds / FASTER for one in printed]
    total = moments[-1] + PAUSE
    width, height = MARGIN * 2 + COLUMNS * CHARACTER, MARGIN * 2 + ROWS * LINE
    styles, texts = [], []
    for i, (one, moment) in enumerate(zip(printed, moments, strict=True)):
        share = 100 * moment / total
        styles.append(f"@keyframes l{i}{{0%,{share:.3f}%{{opacity:0}}{share + 0.01:.3f}%,100%{{opacity:1}}}}")
        color = next((color for pattern, color in OTHER_COLORS if re.match(pattern, one.line)), "#e6edf3")
        texts.append(
            f'<text x="{MARGIN}" y="{MARGIN + (i + 0.75) * LINE:.1f}" fill="{color}" '
            f'style="animation-name:l{i}">{html.escape(one.line)}</text>'
        )
    # Once the window is full, each line pushes the text up by its height.
    steps = ["0%{transform:none}"]
    for i in range(ROWS, len(printed)):
        share = 100 * moments[i] / total
        steps.append(f"{share:.3f}%{{transform:translateY({-(i - ROWS + 1) * LINE}px)}}")
    end = f"translateY({-max(0, len(printed) - ROWS) * LINE}px)"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" \
height="{height}" role="img"><title>{html.escape(printed[0].line)}</title><style>
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;\
animation:{total:.2f}s linear infinite}}
#t{{animation:scroll {total:.2f}s step-end infinite;transform:{end}}}
@keyframes scroll{{{"".join(steps)}100%{{transform:{end}}}}}
{"".join(styles)}
@media (prefers-reduced-motion:reduce){{text,#t{{animation:none}}}}
</style><rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<svg x="0" y="{MARGIN}" width="{width:.0f}" height="{ROWS * LINE}">
<g transform="translate(0 {-MARGIN})"><g id="t">
{chr(10).join(texts)}
</g></g></svg></svg>
"""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(record(sys.argv[2:])), encoding="utf-8")
