"""What benchmarks/measure.py measures."""

import sys

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from measure import command_cost


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory otherwise")
def test_the_memory_of_a_command_is_in_megabytes() -> None:
    (_, empty), (_, full) = (command_cost("-c", f"b'x' * {n}") for n in (1, 200_000_000))
    assert full - empty == pytest.approx(200, abs=3)
