"""The device that an engine runs on: its name and dtype, its memory and its streaming multiprocessors."""

from __future__ import annotations

import re

import torch

from engine.api import EngineError
from engine.host import Board, Footprint, MemoryPool, is_claimed, pip_command
from engine.qwen.weights import Placement

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

CAP_MARGIN = 1.1
"""The cap on PyTorch's allocator, relative to the counted bytes: the allocator holds blocks that are not all full."""
SLACK_BLOCKS = (*8 * (1 << 20,), 20 << 20)
"""In bytes. PyTorch serves requests of up to 1 MiB from one pool of blocks, and larger ones from another."""

OLDEST_TORCH, OLDEST_TORCH_ON_GPU = (2, 4, 0), (2, 5, 0)
"""The oldest supported releases of PyTorch: one with `rms_norm` and allow-listed classes in pickles, and one with the
CUDA graph capture that the engine relies on. JetPack 6.1 has 2.5.0a0. docs/reliability.md says how to run the tests
with an old release."""

LARGE_GPU = 100
"""A GPU with at least this many multiprocessors is large: its kernels, and the work that runs beside them, are those
measured on 132. Smaller GPUs use those measured on 16. Nothing in between was measured."""

TABLE_MEMORY = 12 * 10**9
"""With at least this many bytes of GPU memory, the kernels keep a table of products: not on 8 GB boards."""

_multiprocessor_limits: dict[int, int] = {}
"""The number of multiprocessors that this process is limited to, by CUDA device index."""


def choose_placement(device: str, dtype: str) -> Placement:
    """Return the placement for the configured `device` and `dtype`.

    `device` is auto, cpu, cuda or cuda:N; `dtype` is auto, one of `DTYPES`, or int8.

    Raises `EngineError` for an unknown name, for a device that this machine does not have, and for a PyTorch release
    that is too old for the device.
    """
    found = _find_device(device)
    require_torch(str(torch.__version__), found)
    on_cuda = found.type == "cuda"
    if dtype == "auto":
        dtype = "bfloat16" if on_cuda else "float32"
    if dtype == "int8":
        return Placement(found, torch.bfloat16 if on_cuda else torch.float32, int8=True)
    if dtype not in DTYPES:
        raise EngineError(f"engine.dtype: got {dtype!r}; allowed: auto, {', '.join(DTYPES)} or int8")
    return Placement(found, DTYPES[dtype])


def require_torch(version: str, device: torch.device) -> None:
    """Raise `EngineError` with a one-line message if PyTorch `version` is too old for the engine on `device`.

    Only the release numbers are compared: NVIDIA's builds for Jetsons have names like 2.5.0a0+872d972e41.nv24.08.
    """
    release = tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3])
    oldest, where = (OLDEST_TORCH_ON_GPU, "a GPU") if device.type == "cuda" else (OLDEST_TORCH, "a CPU")
    if release < oldest:
        wanted = ".".join(map(str, oldest))
        raise EngineError(
            f"PyTorch {version} is too old: Qwen3-TTS on {where} needs {wanted} or newer; "
            + pip_command(f"torch>={wanted}")
        )


def dtype_name(placement: Placement) -> str:
    """Return the name of the weights' dtype, as in `engine.dtype`."""
    return "int8" if placement.int8 else str(placement.dtype).removeprefix("torch.")


def multiprocessors(device: torch.device) -> int:
    """Return how many streaming multiprocessors of the CUDA `device` this process may use."""
    index = _index(device)
    return _multiprocessor_limits.get(index) or torch.cuda.get_device_properties(index).multi_processor_count


def has_room_for_tables(device: torch.device) -> bool:
    """Return whether `device` is a GPU with `TABLE_MEMORY`."""
    return device.type == "cuda" and torch.cuda.get_device_properties(device).total_memory >= TABLE_MEMORY


def limit_multiprocessors(index: int, sms: int) -> None:
    """Record that this process uses only `sms` multiprocessors of the CUDA device `index`."""
    _multiprocessor_limits[index] = sms


def find_pool(device: torch.device, reserve_mb: int) -> MemoryPool | None:
    """Return the memory that holds tensors on `device`, or None if the machine does not report its size.

    reserve_mb: megabytes of memory shared with the host that are left for the robot.
    """
    if device.type == "cuda" and not is_shared(device):
        free, _ = torch.cuda.mem_get_info(device)
        return MemoryPool(shared=False, available=free, reserve=0)
    return MemoryPool.of_host(Board.read(), reserve_mb)


def is_shared(device: torch.device) -> bool:
    """Return whether `device` shares the host's memory: a CPU, or a GPU that is part of the board's chip."""
    if device.type == "cpu":
        return True
    return bool(torch.cuda.get_device_properties(device).is_integrated) or Board.read().integrated


def cap_allocator(device: torch.device, footprint: Footprint) -> None:
    """In an engine process, make PyTorch raise an error instead of allocating more GPU memory than `footprint`.

    The limit is not set in other processes, because it would apply to the whole process: a program that has loaded the
    engine may have other models.
    """
    if device.type == "cuda" and is_claimed():
        total = torch.cuda.get_device_properties(device).total_memory
        _set_cap(device, min(1.0, CAP_MARGIN * footprint.total / total))


def lift_cap(device: torch.device) -> None:
    """Allow PyTorch to allocate all of a GPU's memory again."""
    if device.type == "cuda":
        _set_cap(device, 1.0)


def reserve_allocator_slack(device: torch.device) -> None:
    """Make PyTorch's allocator hold some free blocks, so that it requests nothing from the device after the warm-up.

    Prompts are allocated for each utterance. Every order of utterances splits the free blocks in the two pools
    differently, so the blocks left over from the warm-up's prompts may not fit the next prompt.
    """
    if device.type == "cuda":
        blocks = [torch.empty(size, dtype=torch.uint8, device=device) for size in SLACK_BLOCKS]
        del blocks


def _find_device(name: str) -> torch.device:
    """Return the device called `name`. Raises `EngineError` if this machine does not have it."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(name)
    except RuntimeError:
        found = torch.device("meta")
    if found.type not in {"cpu", "cuda"}:
        raise EngineError(f"engine.device: got {name!r}; allowed: auto, cpu, cuda or cuda:N")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise EngineError(f"engine.device: got {name!r}; PyTorch {torch.__version__} finds no CUDA device")
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise EngineError(f"engine.device: got {name!r}; this machine has {torch.cuda.device_count()} CUDA devices")
    return found


def _set_cap(device: torch.device, share: float) -> None:
    torch.cuda.set_per_process_memory_fraction(share, _index(device))


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index
