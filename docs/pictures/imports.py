"""Draw which place of a Tapis tree imports which: rooms as one box each, modules at the root as a box each.

Type, in the folder of the project: python docs/pictures/imports.py [FOLDER] [PICTURE.png]
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

HERE = Path(__file__).parent
# Modules of the package that are floors of their own; the others are the room "tapis".
FLOORS_OF_PACKAGE = {f"tapis.{name}" for name in ("config", "search", "threads", "release", "__main__")}
BESIDE = {"tests", "benchmarks", "demo", "docs", "notebooks", "pictures"}  # no part of the program


def modules(root: Path) -> dict[str, tuple[str, Path]]:
    """By its full name, the place of each module, a room or itself, and its file."""
    found = {file.stem: (file.stem, file) for file in root.glob("*.py")}
    for file in (*root.glob("*/*.py"), *root.glob("tapis/*/*.py")):
        room = ".".join(file.relative_to(root).parent.parts)
        if room not in BESIDE and not room.startswith("."):
            name = room if file.stem == "__init__" else f"{room}.{file.stem}"
            found[name] = name if name in FLOORS_OF_PACKAGE else room, file
    return found


def for_types(tree: ast.Module) -> set[ast.AST]:
    """Return what a module has for type checkers alone."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {node for block in blocks for node in ast.walk(block)}


def imports(root: Path) -> dict[str, set[str]]:
    """Return for each place the other places that it imports."""
    known = modules(root)
    places: dict[str, set[str]] = {place: set() for place, _ in known.values()}
    for place, file in known.values():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in set(ast.walk(tree)) - for_types(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names.append(node.module)
            places[place] |= {known[name][0] for name in names if name in known} - {place}
    return places


def floors(places: dict[str, set[str]]) -> dict[str, int]:
    """Return the floor of each place: one above the highest that it imports."""
    floor: dict[str, int] = {}
    while len(floor) < len(places):
        ready = [place for place in places if place not in floor and places[place] <= floor.keys()]
        assert ready, f"a circle among {sorted(places.keys() - floor.keys())}"
        for place in ready:
            floor[place] = 1 + max((floor[other] for other in places[place]), default=-1)
    return floor


def draw(places: dict[str, set[str]], title: str) -> Figure:
    """Boxes by floor, the commands on top, and an arrow for each place that imports another."""
    floor = floors(places)
    by_floor: dict[int, list[str]] = defaultdict(list)
    for place in sorted(places):
        by_floor[floor[place]].append(place)
    widest, highest = max(map(len, by_floor.values())), max(by_floor)
    figure = Figure(figsize=(max(7, 1.3 * widest), 0.85 * (highest + 2)), dpi=100)
    plane = figure.add_axes((0, 0, 1, 1))
    plane.set_axis_off()
    plane.set(xlim=(0, 1), ylim=(-0.6, highest + 1))
    where = {}
    for level, names in by_floor.items():
        for i, place in enumerate(names):
            shift = 0.04 * (-1) ** level if len(names) == 1 else 0.0  # so that arrows do not run through boxes
            where[place] = (i + 0.5) / len(names) + shift, float(level)
    for place, others in places.items():
        for other in others:
            plane.annotate(
                "",
                xy=where[other],
                xytext=where[place],
                arrowprops={"arrowstyle": "-|>", "color": "#4060a0", "alpha": 0.45, "shrinkA": 12, "shrinkB": 12},
            )
    for place, (x, y) in where.items():
        box = {"boxstyle": "round", "facecolor": "#eef3fb", "edgecolor": "#4060a0"}
        plane.text(x, y, place, ha="center", va="center", fontsize=9, bbox=box)
    n_arrows = sum(map(len, places.values()))
    plane.text(0.01, highest + 0.7, f"{title}: {len(places)} boxes, {n_arrows} arrows", fontsize=10)
    return figure


def main() -> None:
    """Draw one tree: by default this one, into docs/pictures/imports.png."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent
    picture = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "imports.png"
    draw(imports(root), "imports").savefig(picture)
    Image.open(picture).convert("P", palette=Image.Palette.ADAPTIVE, colors=32).save(picture, optimize=True)


if __name__ == "__main__":
    main()
