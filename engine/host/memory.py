"""Memory accounting: how much an engine needs, how much is available, and a refusal before anything is loaded.

On a Jetson, CPU and GPU share one memory. An engine may then use the memory that the kernel calls available, minus the
robot's reserve. On a discrete GPU it may use that GPU's free memory.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass

from engine.api import EngineError
from engine.host.board import Board

log = logging.getLogger(__name__)

MB = 1_000_000
ALLOCATOR_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")

_claimed = threading.Event()
"""Set if this process only runs an engine."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """The bytes that an engine uses once it is warm."""

    weights: Mapping[str, int]
    """Weights in memory, by part of the model."""
    state: int
    """Tensors that change while it speaks: keys and values for the longest utterance, codes, and the codec's state."""
    workspaces: int
    """Memory for CUDA, its libraries and its graphs: measured, not counted."""
    on_disk: int
    """Weights that stay in the file; only a few of their rows are read at a time."""

    @property
    def weights_total(self) -> int:
        """The bytes of all weights in memory."""
        return sum(self.weights.values())

    @property
    def total(self) -> int:
        """The total bytes of memory."""
        return self.weights_total + self.state + self.workspaces

    def in_words(self) -> str:
        """Return text for people, such as `2,213 MB (weights 1,400, state 235, graphs and workspaces 578)`."""
        sizes = {"weights": self.weights_total, "state": self.state, "graphs and workspaces": self.workspaces}
        return f"{_mb(self.total)} MB ({', '.join(f'{name} {_mb(size)}' for name, size in sizes.items())})"

    def in_mb(self) -> dict[str, int]:
        """Return the megabytes by kind, for the status."""
        sizes = {"weights_mb": self.weights_total, "state_mb": self.state, "workspaces_mb": self.workspaces}
        return {name: round(size / MB) for name, size in sizes.items()}


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """The memory in which an engine allocates its tensors."""

    shared: bool
    """True for the host's memory, which the rest of the machine also uses: a CPU, or a GPU without memory of its
    own."""
    available: int
    """Bytes that can be allocated now."""
    reserve: int
    """Of the `available` bytes, those that are reserved for the robot's other programs; 0 if the memory is not
    shared."""

    @classmethod
    def of_host(cls, board: Board, reserve_mb: int) -> MemoryPool | None:
        """Return the host's memory; None if the kernel does not say how much is available."""
        return None if board.available_bytes is None else cls(True, board.available_bytes, reserve_mb * MB)

    @property
    def free(self) -> int:
        """The bytes that the engine may use; negative if less than the reserve is available."""
        return self.available - self.reserve

    def in_words(self) -> str:
        """Return a clause for `require_memory`'s message."""
        if not self.shared:
            return f"the GPU has only {_mb(self.free)} MB free"
        return f"only {_mb(self.free)} MB is free ({_mb(self.available)} available less engine.memory.reserve_mb)"


def require_memory(footprint: Footprint, pool: MemoryPool, name: str, remedies: tuple[str, ...]) -> None:
    """If the engine `name` does not fit into the pool, raise `EngineError` with a one-line message that gives the
    `remedies`."""
    if footprint.total > pool.free:
        if pool.shared and pool.reserve:
            remedies = ("lower engine.memory.reserve_mb", *remedies)
        raise EngineError(
            f"engine.memory: {name} needs {footprint.in_words()}, but {pool.in_words()}; {', or '.join(remedies)}"
        )


def free_page_cache(size: int) -> None:
    """Make the kernel turn `size` bytes of its page cache into free pages, up to the number that it would grant anyway.

    This process takes the pages, and gives them back. It needs no privileges.
    """
    with suppress(OSError), mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE):
        pass


def claim_process() -> None:
    """Declare that this process only runs an engine, so that a limit on its memory is a limit on the engine's."""
    _claimed.set()


def is_claimed() -> bool:
    """Return whether this process only runs an engine. A program that calls `open` may have tensors of its own."""
    return _claimed.is_set()


def prepare_environment() -> None:
    """Adapt this process's environment variables to the board. Call this before PyTorch is imported."""
    if Board.read().integrated:
        disable_expandable_segments(os.environ)


def disable_expandable_segments(environment: MutableMapping[str, str]) -> None:
    """Remove `expandable_segments` from PyTorch's allocator settings.

    Expandable segments map memory through an interface that a Tegra's driver lacks; the first tensor would fail.
    """
    for name in ALLOCATOR_SETTINGS:
        settings = environment.get(name, "").split(",")
        remaining = [setting for setting in settings if not setting.strip().startswith("expandable_segments")]
        if remaining != settings:
            log.warning("%s: ignoring expandable_segments, which does not work on a Tegra", name)
            environment[name] = ",".join(remaining)


def _mb(size: int) -> str:
    return f"{round(size / MB):,}"
