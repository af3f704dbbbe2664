"""The state of a run as one file: its tensors as safetensors, and all else as JSON beside them.

Neither can be more than data. A pickle, which torch.save writes, can execute what it names, or take any time and memory
to read.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy
from torch import Tensor

from tapis.release import weights_digest
from tapis.system.files import check_stored, digest

# Enough for the settings of 300 languages, and for the weights of 1,000 layers on either side
MAX_CHARACTERS, MAX_TENSORS = 2**25, 400_000
TENSOR = "tensor of this file"  # the only key of an object that stands for the tensor of that name


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write dicts with texts as keys, lists, texts, numbers, None, and tensors of any device.

    Raises OSError, and ValueError for a state that `read_state` would refuse.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_without_tensors(state, "state", tensors))
    _check_size(text, len(tensors))
    try:
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        safetensors.numpy.save_file(arrays, path, {"state": text, "digest": state_digest(text, tensors)})
    except safetensors.SafetensorError as error:  # in words of its own, for any failure of the system
        raise OSError("the write failed; is the disk full?") from error


def read_state(path: Path) -> dict[str, Any]:
    """Return what `write_state` wrote, with its tensors on the CPU.

    Raises an error, of one of many types, for any other file.
    """
    check_stored(path)
    with safetensors.safe_open(path, "pt") as file:
        notes = file.metadata()
        text, names = notes["state"], list(file.keys())
        _check_size(text, len(names))
        # Copied: the file is mapped otherwise for as long as they live, and Windows replaces no mapped file.
        tensors = {name: file.get_tensor(name).clone() for name in names}
    if state_digest(text, tensors) != notes["digest"]:
        raise ValueError("it does not match its checksum")
    state = json.loads(text, object_hook=lambda found: tensors[found[TENSOR]] if TENSOR in found else found)
    if not isinstance(state, dict):
        raise TypeError("it is no state of Tapis")
    return state


def _check_size(text: str, n_tensors: int) -> None:
    if len(text) > MAX_CHARACTERS or n_tensors > MAX_TENSORS:
        raise ValueError("it has too many objects")


def _without_tensors(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Return a value for JSON, in which a tensor is an object with its name. Adds the tensors to those found before."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().contiguous()
        return {TENSOR: path}
    if isinstance(value, Mapping):
        assert all(isinstance(name, str) for name in value), "JSON has no other keys"
        return {name: _without_tensors(one, f"{path}/{name}", tensors) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_tensors(one, f"{path}/{i}", tensors) for i, one in enumerate(value)]
    return value


def state_digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of all that a state has."""
    arrays = {f"{name} {tensor.dtype} {tuple(tensor.shape)}": tensor.numpy() for name, tensor in tensors.items()}
    return digest(text, weights_digest(arrays))
