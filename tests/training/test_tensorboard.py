"""What TensorBoard shows, and when."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from launching import free_port
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from config import PRESETS
from training.records import Progress, StepRecord, Validation, perplexity, tokens_per_second
from training.tensorboard import Logs


def log(step: int, loss: float = 20.0, seconds: float = 1.0) -> StepRecord:
    return StepRecord(
        step,
        [loss, 10.0, 1.0, 0.5],
        parts=["encoder"],
        lr=0.1,
        n_tgt=10,
        n_tokens=100,
        seconds=seconds,
    )


START = Progress(0, 0, 0.0)


def at(step: int) -> Progress:
    return Progress(step, 100 * step, 10.0 * step)


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_scalars_of_the_first_step_and_of_every_tenth(tmp_path: Path) -> None:
    logs = Logs(tmp_path, START, 10)
    window = []
    for step in range(1, 26):
        window.append(log(step, loss=10.0 * step))
        logs.steps(window, 0.1)
    logs.close()
    losses = scalars(tmp_path, "train/loss")
    assert [step for step, _ in losses] == [1, 10, 20]
    assert [value for _, value in losses] == pytest.approx([1.0, 5.5, 15.5])
    assert scalars(tmp_path, "train/perplexity")[0][1] == pytest.approx(2.71828, rel=1e-4)


def test_what_a_killed_run_logged_too_much_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Logs(tmp_path, START, 1)
    for step in (1, 2, 3):
        first.steps([log(step, loss=99.0)], 0.1)
    first.close()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2)  # files are read in the order of their seconds
    second = Logs(tmp_path, Progress(1, 100, 10.0), 1)
    second.steps([log(2, loss=10.0)], 0.1)
    second.close()
    assert [value for _, value in scalars(tmp_path, "train/loss")] == pytest.approx([9.9, 1.0])


def test_a_sample_table_escapes_its_cells_and_shows_the_hypothesis_before(tmp_path: Path) -> None:
    logs = Logs(tmp_path, START, 10)
    for step, said in ((5, "d"), (10, "e")):
        logs.validation(Validation(step, 1.0, 2.0, 30.0, 40.0), [("a|b", "c", said)] * 3)
    logs.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tables = [event.tensor_proto.string_val[0].decode() for event in events.Tensors("valid/samples/text_summary")]
    assert [table.splitlines()[2] for table in tables] == [r"| a\|b | c | d | … |", r"| a\|b | c | e | d |"]
    assert all(len(table.splitlines()) == 2 + 3 for table in tables)
    assert scalars(tmp_path, "valid/bleu") == [(5, 30.0), (10, 30.0)]


def test_drawing_takes_at_most_one_percent_of_the_time(tmp_path: Path) -> None:
    """Drawing is taken to last a second each time. The last, after the last step, is drawn always."""

    def draw() -> Iterator[tuple[str, Figure]]:
        drawn.append(now)
        yield "attention", Figure(figsize=(1, 1))

    logs, drawn = Logs(tmp_path, START, 10), list[float]()
    logs.seconds_of_last_drawing = 1.0
    for now in (1.0, 50.0, 99.0, 101.0, 150.0, 199.0, 201.0, 210.0):
        logs.pictures(draw, Progress(int(now), 0, now), is_last=now == 210.0)
        logs.seconds_drawing, logs.seconds_of_last_drawing = float(len(drawn)), 1.0
        assert now == 210.0 or logs.seconds_drawing <= 0.01 * now
    logs.close()
    assert drawn == [101.0, 201.0, 210.0]
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Images("attention")] == [101, 201, 210]


def test_hparams_hold_the_settings(tmp_path: Path) -> None:
    logs = Logs(tmp_path, START, 10)
    logs.settings(PRESETS["demo"])
    logs.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    summaries = events.summary_metadata
    start = HParamsPluginData.FromString(summaries["_hparams_/session_start_info"].plugin_data.content)
    assert start.session_start_info.hparams["lr"].number_value == PRESETS["demo"].lr
    assert start.session_start_info.hparams["norm"].string_value == "pre"
    (layout,) = events.Tensors("custom_scalars__config__")
    assert b"valid/loss" in layout.tensor_proto.string_val[0]


def test_perplexity_is_capped_and_speed_is_a_median() -> None:
    assert perplexity(0.0, 5) == 1.0
    assert perplexity(1e9, 1) < float("inf")
    assert tokens_per_second([log(1, seconds=1.0), log(2, seconds=1.0), log(3, seconds=50.0)]) == 100.0


@pytest.fixture
def board(trained: "subprocess.CompletedProcess[str]") -> Iterator[str]:
    """The address of a TensorBoard of the demo's run."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        f"{trained.args[0]}/runs",
        "--port",
        str(port),
    ]
    served = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield f"http://127.0.0.1:{port}"
    served.terminate()
    served.wait(20)


def is_up(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except OSError:
        return False


@pytest.mark.browser
def test_tensorboard_in_a_browser(board: str, browser: Any) -> None:
    """A just-trained demo: loss and BLEU, the samples, and an attention picture that is really there."""
    eventually(lambda: is_up(board))

    def shown(tab: str, *words: str) -> None:
        browser.get("about:blank")
        browser.get(f"{board}/#{tab}")
        eventually(lambda: all(word in browser.find_element("tag name", "body").text for word in words))

    shown("scalars&tagFilter=loss%7Cbleu", "train/loss", "valid/bleu")
    shown("text&tagFilter=samples", "hypothesis", "before", "Notre chat")
    shown("images", "attention/1/layer_2")
    script = """
        const find = root => [...root.querySelectorAll('*')].flatMap(e => [
            ...(e.tagName == 'IMG' && e.naturalWidth > 300 ? [e] : []), ...(e.shadowRoot ? find(e.shadowRoot) : [])]);
        return find(document).length"""
    eventually(lambda: browser.execute_script(script) >= 2)
    shown("hparams", "d_model", "valid/bleu")
