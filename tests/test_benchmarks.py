"""Parts of the benchmarks: the lines that benchmarks/context.py reads, and what benchmarks/measure.py measures."""

import json
import sys
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import context
from measure import command_cost


def test_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    pairs = [("a\u2028b", "c"), ("d", "e\u0085f")]
    for side, language in enumerate(("en", "fr")):
        (tmp_path / f"train.{language}").write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    options = context.Options(out=tmp_path, books=tmp_path, sentences=tmp_path)
    context.write_data(tmp_path / "run", [], options, has_context=False)
    written = (tmp_path / "run/data/train.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(line) for line in written if line] == [{"en": en, "fr": fr} for en, fr in pairs]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory otherwise")
def test_the_memory_of_a_command_is_in_megabytes() -> None:
    (_, empty), (_, full) = (command_cost("-c", f"b'x' * {n}") for n in (1, 200_000_000))
    assert full - empty == pytest.approx(200, abs=3)
