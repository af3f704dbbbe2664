"""Distributed training: same weights as one process, resuming with another number of them, and their errors."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, Command, eventually
from launching import Launched
from test_train import small_run

from checkpoint import RunFolder
from config import Config
from machine.distributed import ALONE, Group
from tapis.config import ConfigError, TapisError
from tapis.system.cli import run_command
from tapis.system.terminal import is_main
from training.resolved import Resolved

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
CHANGED = str(Path(__file__).parent / "changed_train.py")


def stop(process: "subprocess.Popen[str]") -> None:
    """End torchrun and, through it, its workers."""
    process.terminate()
    process.communicate(timeout=60)


def test_a_group_of_one_returns_its_own_values() -> None:
    assert Group.join(CPU) == ALONE and is_main()
    assert ALONE.all_sums(1, 2.5) == [1.0, 2.5]
    assert ALONE.gather(["a", "b"]) == ["a", "b"]
    assert ALONE.broadcast("a") == "a"


@pytest.mark.parametrize("local_rank", ["0", "3"])
def test_every_process_of_a_machine_with_too_few_gpus_raises(local_rank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}
    for name, value in {**environment, "RANK": local_rank, "LOCAL_RANK": local_rank}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(
        ConfigError, match="--nproc-per-node 4: each process needs its own GPU; GPUs of this machine: 2"
    ):
        Group.join(torch.device("cuda"))


def test_more_processes_than_gpus_may_compute_on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "4"}
    for name, value in {**environment, "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Group.join(CPU) == ALONE


def test_two_processes_train_as_one(launch: type[Launched], called: Command, few: Path) -> None:
    """To the last bit: they sum two gradients. With dropout, and with a last step that one process computes alone."""
    shape = [
        "--epochs",
        "2",
        "--subword-dropout",
        "0.1",
        "--augment",
        "0.3",
        "--terms",
        "0.3",
        "--precision",
        "fp32",
        "--batch-tokens",
        "512",
    ]
    with launch(small_run(few, *shape, "--name", "two"), 2) as processes:
        code, out, err = processes.wait()
    assert (code, out) == (0, ""), err
    assert "Warning" not in err
    assert called(*small_run(few, *shape, "--accumulate", "2", "--name", "one")).returncode == 0
    assert err.count("test      BLEU") == 1 and err.count("epoch 1/2 ") == 1, "only the main process prints"
    states = states_of("one", "two")
    assert [state["resolved"]["accumulate"] for state in states] == [2, 2]
    assert states[0]["step"] >= 10
    assert_same_weights(*states)
    metrics = [json.loads(Path(f"weights/{name}/metrics.json").read_text(encoding="utf-8")) for name in ("one", "two")]
    one, two = (dict(values["last"]) for values in metrics)
    assert one.pop("by_data") == two.pop("by_data") == {}
    assert one == pytest.approx(two, rel=1e-3)
    assert metrics[0]["batches"]["in_an_epoch"] % 2, "every step has two batches: change the sizes of this test"


def test_four_processes_train_as_one(launch: type[Launched], called: Command, few: Path) -> None:
    """To the last bit, with a batch for each process; with two batches for each, but for the order of sums."""
    shape = ["--precision", "fp32", "--batch-tokens", "512"]
    with launch(small_run(few, *shape, "--steps", "6", "--name", "four"), 4) as processes:
        code, _, err = processes.wait()
    assert code == 0, err
    assert called(*small_run(few, *shape, "--steps", "6", "--accumulate", "4", "--name", "one")).returncode == 0
    assert_same_weights(*states_of("one", "four"))

    shape += ["--steps", "3", "--accumulate", "8", "--overwrite"]
    with launch(small_run(few, *shape, "--name", "four"), 4) as processes:
        code, _, err = processes.wait()
    assert code == 0, err
    assert called(*small_run(few, *shape, "--name", "one")).returncode == 0
    assert_almost_same_weights(*states_of("one", "four"))


def states_of(*names: str) -> list[dict[str, Any]]:
    """The training states of these runs."""
    return [RunFolder(Path("weights", name)).load_state() for name in names]


def assert_same_weights(one: dict[str, Any], other: dict[str, Any]) -> None:
    """To the last bit."""
    assert one["step"] == other["step"]
    for name, weight in one["model"].items():
        assert torch.equal(other["model"][name], weight), name


def assert_almost_same_weights(one: dict[str, Any], other: dict[str, Any]) -> None:
    """But for one in a hundred: where a gradient is almost zero, Adam's first steps depend on its rounding."""
    differences = [(other["model"][name] - weight).abs().flatten() for name, weight in one["model"].items()]
    assert (torch.cat(differences) > 2e-5).float().mean() < 0.01


def test_two_processes_translate_as_one(launch: type[Launched], called: Command, fewer: Path) -> None:
    """Back, and for self-distillation."""
    Path("text.fr").write_text("".join(f"Les {i} chats dorment.\n" for i in range(11)), encoding="utf-8")
    shape = ["--pairs", "en-fr", "fr-en", "--monolingual", "text.fr", "--self-distillation", "0.5"]
    shape += ["--least-bleu", "0"]
    shape += ["--steps", "8", "--precision", "fp32", "--batch-tokens", "512"]
    with launch(small_run(fewer, *shape, "--name", "two"), 2) as processes:
        code, _, err = processes.wait()
    assert code == 0 and err.count("the closest of the model's own translations") == 1, err
    assert err.count("translated back by the model") == 2
    assert called(*small_run(fewer, *shape, "--accumulate", "2", "--name", "one")).returncode == 0
    one, two = states_of("one", "two")
    for side in ("sources", "targets"):
        for part, values in one["translated"][side].items():
            assert len(values) and torch.equal(two["translated"][side][part], values)
    assert_same_weights(one, two)


def test_a_run_goes_on_with_another_number_of_processes(launch: type[Launched], called: Command, few: Path) -> None:
    # A rate that does not depend on the number of steps.
    rate = ["--schedule", "inverse_sqrt", "--warmup-steps", "0"]
    args = small_run(few, *rate, "--precision", "fp32", "--batch-tokens", "512", "--accumulate", "2")
    assert called(*args, "--name", "one", "--steps", "12").returncode == 0
    assert called(*args, "--name", "other", "--steps", "4").returncode == 0
    with launch(["train.py", "--resume", "--name", "other", "--steps", "8"], 2) as processes:
        code, _, err = processes.wait()
    assert code == 0 and "resumed   at step 4 of 8" in err, err
    assert called("train.py", "--resume", "--name", "other", "--steps", "12").returncode == 0
    assert_same_weights(*states_of("one", "other"))


def test_two_processes_keep_to_a_budget(launch: type[Launched], few: Path) -> None:
    with launch(small_run(few, "--minutes", "0.08", "--name", "budget", "--shard"), 2) as processes:
        code, _, err = processes.wait()
    assert code == 0, err
    assert "half of it is over" in err and "test      BLEU" in err
    # Both stopped at the step that the budget, and not the number of epochs, had set. How many steps 5 seconds hold
    # is the machine's affair: 2 were seen, and 200.
    (state,) = states_of("budget")
    assert state["step"] == state["resolved"]["steps"] >= 1


def test_processes_with_different_clocks_save_together(launch: type[Launched], few: Path) -> None:
    """By the clock of one of them, a save is due at every step. Processes with parts of the weights save together."""
    _, *args = small_run(few, "--steps", "4", "--valid-every", "4", "--batch-tokens", "512", "--shard")
    with launch([CHANGED, "clocks", *args], 2) as processes:
        code, out, err = processes.wait()
    assert code == 0, err
    assert out.splitlines() == [f"saved at step {step}" for step in (1, 2, 3, 4)]


def test_processes_that_share_a_disk_prepare_the_data_once(launch: type[Launched], tmp_path: Path) -> None:
    """Both say that they are the first of their machine. They share one folder, and have one each of the other."""
    script = tmp_path / "prepare.py"
    script.write_text(
        "import os, sys, time\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "import torch\n"
        "os.environ['LOCAL_RANK'] = '0'\n"
        "from machine.distributed import Group\n"
        "group = Group.join(torch.device('cpu'))\n"
        "here = Path.cwd()\n"
        "for folder in (here / 'shared', here / f'own{group.rank}'):\n"
        "    with group.first_on_each_disk(folder):\n"
        "        result = folder / 'result'\n"
        "        if not result.exists():\n"
        "            time.sleep(1)\n"
        "            folder.mkdir(exist_ok=True)\n"
        "            result.write_text(f'by {group.rank}')\n"
        "    (here / f'{folder.name}-seen-by-{group.rank}').write_text(f'{result.read_text()} {os.listdir(folder)}')\n"
        "group.leave()\n"
    )
    with launch([str(script)], 2) as processes:
        code, _, err = processes.wait()
    assert code == 0, err
    # In files: on standard output, pieces of two processes' lines may stand in each other.
    assert {path.name: path.read_text() for path in tmp_path.glob("*-seen-by-*")} == {
        "shared-seen-by-0": "by 0 ['result']",
        "shared-seen-by-1": "by 0 ['result']",
        "own0-seen-by-0": "by 0 ['result']",
        "own1-seen-by-1": "by 1 ['result']",
    }


def test_two_processes_that_hold_half_of_the_weights_each_train_as_one(
    launch: type[Launched], forked: Command, few: Path
) -> None:
    """To the last bit, in the middle of a run that one process begins and ends.

    With one decoder layer: of several, FSDP2 adds up the gradients of the memory in another order. Without clipping,
    whose norm is a sum of other parts. The batches have one to three sentences.
    """
    args = small_run(few, "--precision", "fp32", "--max-length", "40", "--batch-tokens", "50", "--accumulate", "2")
    args += ["--clip-norm", "0"]
    args += ["--schedule", "inverse_sqrt", "--warmup-steps", "0", "--valid-every", "4", "--n-decoder-layers", "1"]
    assert forked(*args, "--name", "one", "--steps", "9").returncode == 0
    assert forked(*args, "--name", "halves", "--steps", "3").returncode == 0
    with launch(["train.py", "--resume", "--name", "halves", "--steps", "6", "--shard"], 2) as processes:
        code, _, err = processes.wait()
    assert code == 0 and "Warning" not in err, err
    assert forked("train.py", "--resume", "--name", "halves", "--steps", "9", "--no-shard").returncode == 0
    assert_same_weights(*states_of("one", "halves"))


def test_halves_of_plain_weights_with_a_clipped_gradient(launch: type[Launched], called: Command, few: Path) -> None:
    args = small_run(few, "--precision", "fp32", "--batch-tokens", "512", "--accumulate", "4", "--clip-norm", "0.1")
    args += ["--steps", "3", "--plain"]
    with launch([*args, "--shard", "--name", "halves"], 2) as processes:
        code, _, err = processes.wait()
    assert code == 0, err
    assert called(*args, "--name", "one").returncode == 0
    assert_almost_same_weights(*states_of("one", "halves"))


def test_sharded_in_bf16_no_process_keeps_the_weights_of_a_block_for_the_backward_pass(
    launch: type[Launched], called: Command, few: Path
) -> None:
    """Under autocast alone it would, in bf16: two bytes a weight. What is learned is the same but for rounding."""
    args = small_run(few, "--precision", "bf16", "--accumulate", "2", "--steps", "12", "--valid-every", "12")
    with launch([CHANGED, "kept", *args[1:], "--shard", "--name", "halves"], 2) as processes:
        code, _, err = processes.wait()
    assert code == 0, err
    assert called(*args, "--name", "one").returncode == 0
    one, halves = (
        json.loads(Path(f"weights/{name}/metrics.json").read_text(encoding="utf-8"))["last"]["loss"]
        for name in ("one", "halves")
    )
    assert halves == pytest.approx(one, rel=5e-3)


def test_compiled_parts_of_two_processes_train_as_plain_ones(launch: type[Launched], few: Path) -> None:
    """torch cuts compiled graphs where gradients are exchanged, at every megabyte or more: of these weights, some."""
    args = small_run(few, "--precision", "fp32", "--batch-tokens", "512", "--steps", "3", "--d-model", "64")
    args += ["--d-ff", "4096", "--dropout", "0", "--n-encoder-layers", "1", "--n-decoder-layers", "1"]
    for name, command in (("plain", args), ("compiled", [CHANGED, "compiled", *args[1:]])):
        with launch([*command, "--name", name], 2) as processes:
            code, _, err = processes.wait()
        assert code == 0, err
    assert "could not compile" not in err and "graphs" in err, err
    assert_almost_same_weights(*states_of("plain", "compiled"))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[str]]:
    """The network namespaces of two hosts, which a cable connects: 10.77.0.1 and 10.77.0.2."""
    if sys.platform != "linux" or not shutil.which("ip") or os.geteuid() != 0:
        pytest.skip("two hosts need network namespaces: Linux, ip and root")
    names = [f"tapis{os.getpid()}{letter}" for letter in "ab"]

    def ip(command: str) -> None:
        subprocess.run(["ip", *command.split()], check=True, capture_output=True)

    try:
        for name in names:
            ip(f"netns add {name}")
        ip(f"link add cable netns {names[0]} type veth peer name cable netns {names[1]}")
        for i, name in enumerate(names, 1):
            ip(f"-n {name} addr add 10.77.0.{i}/24 dev cable")
            for device in ("lo", "cable"):
                ip(f"-n {name} link set {device} up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"cannot create network namespaces: {error.stderr.decode().strip()}")
    else:
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_two_hosts_train_as_one_process(called: Command, few: Path, hosts: list[str]) -> None:
    """torchrun is started as documented for several machines, two processes on each. Each prepares its own data."""
    args = small_run(few, "--steps", "6", "--precision", "fp32", "--batch-tokens", "256", "--accumulate", "4")
    processes: list[subprocess.Popen[str]] = []
    try:
        for rank, host in enumerate(hosts):
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(rank)]
            rendezvous = ["--nproc-per-node", "2", "--master-addr", "10.77.0.1", "--master-port", "29500"]
            train = [str(ROOT / args[0]), *args[1:], "--name", "hosts"]
            environment = {"GLOO_SOCKET_IFNAME": "cable", "HF_DATASETS_CACHE": str(Path.cwd() / f"cache{rank}")}
            process = subprocess.Popen(
                ["ip", "netns", "exec", host, *torchrun, *rendezvous, *train],
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
            processes.append(process)
        outputs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                stop(process)
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "test      BLEU" in outputs[0][1] and "BLEU" not in outputs[1][1], "only the main process prints"

    assert called(*args, "--name", "one").returncode == 0
    assert_same_weights(*states_of("one", "hosts"))


def test_a_long_validation_sentence_of_one_process_does_not_disturb_the_others(
    launch: type[Launched], few: Path, tmp_path: Path
) -> None:
    """The table of positions grows in that process alone."""
    data = tmp_path / "data"
    shutil.copytree(few, data)
    for language, word in (("en", "cat"), ("fr", "chat")):
        path = data / f"valid.{language}"
        path.write_text(path.read_text(encoding="utf-8") + f"{word} " * 60 + "\n", encoding="utf-8")
    args = small_run(data, "--max-length", "16", "--batch-tokens", "256", "--steps", "8", "--valid-every", "4")
    with launch(args, 2) as processes:
        code, _, err = processes.wait()
    assert code == 0, err


@pytest.mark.parametrize("victim", [0, 1])
def test_when_one_process_dies_the_other_ends_and_the_run_can_be_resumed(
    launch: type[Launched], called: Command, few: Path, victim: int
) -> None:
    with launch(endless(few), 2) as processes:
        eventually(Path("weights/killed/training/state.safetensors").exists, 60)
        err = error_of_the_other(processes, victim)
    assert "--resume --name killed" in err
    assert called("translate.py", "The cat.").returncode == 0
    alone = called("train.py", "--resume", "--name", "killed", "--steps", "1")
    assert alone.returncode == 0, alone.stderr


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("moment", ["preparing", "training"])
def test_when_one_process_dies_before_the_first_save_the_other_ends(
    launch: type[Launched], few: Path, victim: int, moment: str
) -> None:
    """While the main process prepares the data and the other waits for it, or in the first steps."""
    args = [*endless(few)[1:], "--valid-every", "1000000", "--save-minutes", "1000"]
    with launch([CHANGED, "slow_start", *args], 2) as processes:
        eventually(Path(moment).exists, 60)
        error_of_the_other(processes, victim)
    assert not Path("weights/killed/training/state.safetensors").exists()


def test_a_process_that_fails_does_not_wait_for_the_others(launch: type[Launched], few: Path) -> None:
    """NCCL would wait for those that wait for it, when it leaves the group and at its end. Here, both last forever."""
    with launch([CHANGED, "failing", *endless(few)[1:]], 2) as processes:
        code, _, err = processes.wait(60)
    assert code == 1
    assert "(process 1): the disk is full" in err and "another process of this run has ended" in err


def error_of_the_other(processes: Launched, victim: int) -> str:
    """Kills one of two processes, and returns what the other prints when it ends, within seconds."""
    processes.processes[victim].kill()
    killed = time.monotonic()
    _, _, err = processes.wait(60)
    assert time.monotonic() - killed < 20
    assert processes.processes[1 - victim].exitcode == 1
    assert "another process of this run has ended" in err and "Traceback" not in err
    return err


def endless(few: Path) -> list[str]:
    """A run that does not end by itself."""
    _, *args = small_run(few)
    return ["train.py", *args, "--steps", "1000000", "--name", "killed"]


@pytest.mark.parametrize(
    ("rank", "local_rank", "prints"),
    [
        ("0", "0", "train.py: no preset 'demoo'"),
        ("1", "1", ""),
        ("8", "0", "train.py (process 8): no preset 'demoo'"),
        ("9", "1", ""),
    ],
    ids=["main process", "same machine", "first of another machine", "second of another machine"],
)
def test_the_first_process_of_each_machine_prints_an_error(
    rank: str, local_rank: str, prints: str, command: Command
) -> None:
    done = command("train.py", "demoo", RANK=rank, LOCAL_RANK=local_rank, TORCHELASTIC_RUN_ID="none")
    assert done.returncode == 2 and done.stderr.startswith(prints)
    assert len(done.stderr.splitlines()) == (1 if prints else 0)


def test_an_error_of_a_single_process_is_always_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class SingleProcessError(TapisError):
        printed_by_every_process = True

    def fail(args: Sequence[str]) -> None:
        raise SingleProcessError("the disk is full")

    monkeypatch.setattr(sys, "argv", ["train.py"])
    for name in ("RANK", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "3")
    with pytest.raises(SystemExit) as exit:
        run_command(fail)
    assert exit.value.code == 1
    assert capsys.readouterr().err == "train.py (process 3): the disk is full\n"


def test_a_run_cannot_be_resumed_by_more_processes_than_a_step_has_batches(tiny: Config) -> None:
    with pytest.raises(ConfigError, match="too few for 2 processes\nresume it with at most 1"):
        Resolved.saved(Resolved.of(tiny, CPU).to_state(tiny), tiny, 2)
    assert Resolved.of(tiny, CPU, 2).accumulate == 2
