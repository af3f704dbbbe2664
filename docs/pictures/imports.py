"""Draw which place of a Tapis tree imports which: folders as one box each, modules at the root as a box each.

Type, in the folder of the project: python docs/pictures/imports.py [FOLDER] [PICTURE.png]
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

HERE = Path(__file__).parent
# Modules of the package that are layers of their own; the others are the folder "tapis".
LAYERS_OF_PACKAGE = {f"tapis.{name}" for name in ("config", "search", "threads", "release", "__main__")}
BESIDE = {"tests", "benchmarks", "demo", "docs", "notebooks", "pictures"}  # no part of the program


def modules(root: Path) -> dict[str, tuple[str, Path]]:
    """By its full name, the place of each module, its folder or itself, and its file."""
    found = {file.stem: (file.stem, file) for file in root.glob("*.py")}
    for file in (*root.glob("*/*.py"), *root.glob("tapis/*/*.py")):
        folder = ".".join(file.relative_to(root).parent.parts)
        if folder not in BESIDE and not folder.startswith("."):
            name = folder if file.stem == "__init__" else f"{folder}.{file.stem}"
            found[name] = name if name in LAYERS_OF_PACKAGE else folder, file
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


def layers(places: dict[str, set[str]]) -> dict[str, int]:
    """Return the layer of each place: one above the highest that it imports."""
    layer: dict[str, int] = {}
    while len(layer) < len(places):
        ready = [place for place in places if place not in layer and places[place] <= layer.keys()]
        assert ready, f"a circle among {sorted(places.keys() - layer.keys())}"
        for place in ready:
            layer[place] = 1 + max((layer[other] for other in places[place]), default=-1)
    return layer


def draw(places: dict[str, set[str]], title: str) -> Figure:
    """Boxes by layer, the commands on top, and an arrow for each place that imports another."""
    layer = layers(places)
    by_layer: dict[int, list[str]] = defaultdict(list)
    for place in sorted(places):
        by_layer[layer[place]].append(place)
    widest, highest = max(map(len, by_layer.values())), max(by_layer)
    figure = Figure(figsize=(max(7, 1.3 * widest), 0.85 * (highest + 2)), dpi=100)
    plane = figure.add_axes((0, 0, 1, 1))
    plane.set_axis_off()
    plane.set(xlim=(0, 1), ylim=(-0.6, highest + 1))
    where = {}
    for level, names in by_layer.items():
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
