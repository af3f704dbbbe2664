"""A simulated CUDA device: tensors that say they are on cuda:0 and hold their numbers on the CPU.

`simulate()` patches torch so that the project takes its CUDA paths. Within `SimulatedGpu`, each operation on such
tensors is computed on the CPU. One that mixes devices as CUDA does not allow raises. One for which the host would wait
for a real GPU is noted in `JOURNAL`, with the place in the project that asked for it. simulated_graph.py records
operations and replays them, as CUDA graphs do.

guard.cpp must be preloaded. What all this cannot show: the speed, the memory and the rounding of real kernels.
"""

import shutil
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

from model import Transformer

sys.path.append(str(Path(__file__).parent.parent))

from plain_kernels import register_plain_kernels
from simulated_graph import CAPTURING, Operation, offer_graphs

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
TORCH = Path(torch.__file__).parent
GPU = torch.device("cuda", 0)

# Operations whose indices and sources may be on the CPU.
CROSSES_DEVICES = {"_to_copy", "copy_", "index", "index_put", "index_put_", "_index_put_impl_"}
# Operations whose result has a size that only the GPU knows.
SIZED_BY_VALUES = {"nonzero", "masked_select", "_unique2", "repeat_interleave"}
# Operations whose result is a number for the host.
TO_HOST = {"_local_scalar_dense", "is_nonzero", "equal"}


@dataclass
class Journal:
    """What would make the host wait, and how often: (what, file:line) of the project."""

    waits: Counter[tuple[str, str]] = field(default_factory=Counter)

    def wait(self, what: str) -> None:
        CAPTURING.refuse(what)
        frames = traceback.extract_stack()
        places = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if is_of_project(f.filename)]
        self.waits[what, places[-1] if places else "?"] += 1

    def take(self) -> Counter[tuple[str, str]]:
        """What was noted since the last call."""
        waits, self.waits = self.waits, Counter()
        return waits


def is_of_project(filename: str) -> bool:
    path = Path(filename)
    return path.is_relative_to(ROOT) and not path.is_relative_to(Path(__file__).parent) and ".venv" not in path.parts


JOURNAL = Journal()


class SimulatedTensor(torch.Tensor):
    """A tensor on cuda:0 whose numbers are in `values`, on the CPU."""

    values: Any  # a tensor; as an attribute of torch's tensors, this is a method of sparse ones

    @staticmethod
    def __new__(cls, values: Tensor) -> "SimulatedTensor":
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            layout=values.layout,
            device=GPU,
        )
        tensor.values = values
        return tensor

    def __init__(self, values: Tensor) -> None: ...

    def __repr__(self) -> str:  # type: ignore[override]
        return f"SimulatedTensor({self.values})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return compute(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of the numbers, without a gradient."""
        if id(self) not in memo:
            copy = SimulatedTensor(self.values.detach().clone())
            memo[id(self)] = torch.nn.Parameter(copy) if isinstance(self, torch.nn.Parameter) else copy
        return memo[id(self)]

    def __setitem__(self, index: Any, value: Any) -> None:
        if not any(isinstance(one, list) for one in (index if isinstance(index, tuple) else [index])):
            super().__setitem__(index, value)
            return
        JOURNAL.wait("a list to the GPU")  # which torch makes a tensor of where no mode sees it
        self.values[index] = unwrap(value) if isinstance(value, Tensor) else value

    def tolist(self) -> Any:
        JOURNAL.wait("tolist")
        return self.values.tolist()


class SimulatedGpu(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, operations may make tensors on cuda:0."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of an operation, on the device on which it would be."""
    name = func._schema.name.split("::")[1]
    tensors: list[Tensor] = []
    map_tensors(tensors.append, [args, kwargs])
    on_gpu = [tensor for tensor in tensors if isinstance(tensor, SimulatedTensor)]
    on_cpu = [tensor for tensor in tensors if not isinstance(tensor, SimulatedTensor)]
    device = kwargs.get("device")
    target = None if device is None else torch.device(device).type
    if not on_gpu and target != "cuda":
        return func(*args, **kwargs)

    if on_gpu and name not in CROSSES_DEVICES and any(tensor.dim() for tensor in on_cpu):
        shapes = [(tensor.device.type, tuple(tensor.shape)) for tensor in tensors]
        raise RuntimeError(f"{func} mixes devices: {shapes}")
    note_waits(name, args, kwargs, target)

    # Compute on the CPU.
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if "pin_memory" in kwargs:
        kwargs = {**kwargs, "pin_memory": False}
    unwrapped_args, unwrapped_kwargs = map_tensors(unwrap, args), map_tensors(unwrap, kwargs)
    operation = Operation(func, unwrapped_args, unwrapped_kwargs, on_cpu)
    CAPTURING.will_compute(operation)
    result = func(*unwrapped_args, **unwrapped_kwargs)
    if target == "cpu" or name in TO_HOST:
        return result
    CAPTURING.has_computed(operation, result)
    result = map_tensors(wrap, result)
    correct_aliasing: Any = return_and_correct_aliasing
    return correct_aliasing(func, args, kwargs, result) if on_gpu else result


def map_tensors(change: Callable[[Tensor], Any], x: Any) -> Any:
    """The same with each tensor changed. Several times as fast as torch's `tree_map`, which knows more containers."""
    if isinstance(x, Tensor):
        return change(x)
    if isinstance(x, list | tuple):
        return type(x)([map_tensors(change, item) for item in x])
    if isinstance(x, dict):
        return {name: map_tensors(change, value) for name, value in x.items()}
    return x


def note_waits(name: str, args: Any, kwargs: dict[str, Any], target: str | None) -> None:
    """Notes in the journal why the host would wait for this operation on a real GPU, if it would."""
    if name in TO_HOST or name in SIZED_BY_VALUES:
        JOURNAL.wait(name)
    elif name in CROSSES_DEVICES - {"_to_copy", "copy_"}:
        for index in args[1]:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                JOURNAL.wait(f"{name} by a mask")
            elif index is not None and not isinstance(index, SimulatedTensor):
                JOURNAL.wait(f"{name} by an index on the CPU")
    elif name == "_to_copy":
        source = args[0]
        if not isinstance(source, SimulatedTensor):
            CAPTURING.refuse("a copy from the host")  # its numbers would be those of the capture
        if isinstance(source, SimulatedTensor) and target == "cpu":
            JOURNAL.wait("copy to the CPU")
        elif not isinstance(source, SimulatedTensor) and not (is_pinned(source) and kwargs.get("non_blocking")):
            JOURNAL.wait("copy to the GPU that blocks")
    elif name == "copy_" and isinstance(args[0], SimulatedTensor) != isinstance(args[1], SimulatedTensor):
        on_host = args[1] if isinstance(args[0], SimulatedTensor) else args[0]
        is_async = (len(args) > 2 and args[2]) or kwargs.get("non_blocking")
        if not (is_async and is_pinned(on_host)):
            JOURNAL.wait("copy_ across devices")


def is_pinned(tensor: Tensor) -> bool:
    """A strided copy is made through memory that is not pinned, even if the tensor's own is."""
    return getattr(tensor, "was_pinned", False) and tensor.is_contiguous()


def unwrap(x: Tensor) -> Tensor:
    values: Tensor = x.values if isinstance(x, SimulatedTensor) else x
    return values


def wrap(x: Tensor) -> SimulatedTensor:
    return x if isinstance(x, SimulatedTensor) else SimulatedTensor(x)


# What a CPU build lacks


def reason_against() -> str:
    """Returns why a GPU cannot be simulated here; empty if it can."""
    if torch.version.cuda or torch.version.hip:
        return "torch is built for GPUs, and there is none"
    if not shutil.which("g++"):
        return "no g++ to build guard.cpp"
    return "" if sys.platform == "linux" else "a library is preloaded as on Linux"


def build_guard(folder: Path) -> Path:
    """Builds guard.cpp in a folder. Returns the library, which must be preloaded. Needs g++."""
    library = folder / "guard.so"
    include = TORCH / "include"
    build = ["g++", "-shared", "-fPIC", "-O1", "-std=c++20", f"-I{include}", f"-I{include}/torch/csrc/api/include"]
    link = [f"-L{TORCH / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{TORCH / 'lib'}"]
    subprocess.run([*build, str(FOLDER / "guard.cpp"), "-o", str(library), *link], check=True, timeout=120)
    return library


PROPERTIES = SimpleNamespace(name="a simulated GPU", total_memory=80 * 2**30, multi_processor_count=132)


def claim_gpu() -> None:
    """Patches torch so that it claims to have a GPU."""
    cuda: Any = torch.cuda
    cuda._lazy_init = lambda: None
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.is_bf16_supported = lambda including_emulation=True: True
    cuda.get_device_capability = lambda device=None: (9, 0)
    cuda.get_device_name = lambda device=None: "a simulated GPU"
    cuda.max_memory_allocated = cuda.max_memory_reserved = lambda device=None: 0
    cuda.reset_peak_memory_stats = lambda device=None: None
    cuda.manual_seed_all = lambda seed: None
    cuda.get_device_properties = lambda device=None: PROPERTIES
    cuda.amp.common.amp_definitely_not_available = lambda: False
    offer_graphs(JOURNAL.wait)
    torch.Tensor.pin_memory = pinned_copy  # type: ignore[method-assign,assignment]


def simulate() -> None:
    """Patches torch so that it offers the device, and the project so that it takes it."""
    claim_gpu()
    anything: Any = torch
    anything.inference_mode = torch.no_grad  # an inference tensor cannot be of a subclass
    anything.tensor = tensor_anywhere
    register_plain_kernels()
    Transformer.to = moved  # type: ignore[method-assign,assignment]
    Transformer.cpu = lambda self: moved(self, torch.device("cpu"))  # type: ignore[method-assign,assignment,return-value]


TENSOR = torch.tensor


def tensor_anywhere(data: Any, device: Any = None, **kwargs: Any) -> Tensor:
    """`torch.tensor`: a list goes to a GPU through memory that is not pinned."""
    if device is None or torch.device(device).type != "cuda":
        return TENSOR(data, device=device, **kwargs)
    JOURNAL.wait("a list to the GPU")
    return SimulatedTensor(TENSOR(data, **kwargs))


def pinned_copy(self: Tensor, device: Any = None) -> Tensor:
    """`Tensor.pin_memory`, which keeps the strides."""
    copy = torch.empty_strided(self.size(), self.stride(), dtype=self.dtype).copy_(self)
    copy.was_pinned = True  # type: ignore[attr-defined]
    return copy


def moved(self: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """`Module.to`, which assigns to `.data`; that of a wrapper cannot be assigned."""
    if device.type != "cuda" and not any(isinstance(parameter, SimulatedTensor) for parameter in self.parameters()):
        return torch.nn.Module.to(self, device)
    change = wrap if device.type == "cuda" else unwrap
    parameters: dict[int, torch.nn.Parameter] = {}  # a tied parameter stays one
    for module in self.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                on_gpu = parameters.setdefault(id(parameter), torch.nn.Parameter(change(parameter.detach().clone())))
                module._parameters[name] = on_gpu
        for name, buffer in module._buffers.items():
            module._buffers[name] = change(buffer) if buffer is not None else None
    return self
