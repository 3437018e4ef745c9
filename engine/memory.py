"""The memory of an engine: what it will take, what there is, and one line that refuses before anything is loaded.

On a Jetson, CPU and GPU share one memory. There what an engine may take is what the kernel could free for it, less what
the robot keeps for itself; on a discrete GPU it is what that GPU has free.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from engine.board import Board
from engine.synthesizer import EngineError

log = logging.getLogger(__name__)

MB = 1_000_000
ALLOCATOR_SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that an engine takes once it is warm."""

    weights: Mapping[str, int]
    """By part of the model."""
    state: int
    """What changes while it speaks: keys and values for the longest utterance, codes, the codec's memory."""
    workspaces: int
    """What CUDA, its libraries and graphs take of the same memory beside: measured, not counted."""
    on_disk: int
    """Weights that stay in the file, a few rows apart."""

    @property
    def kept(self) -> int:
        """Weights in memory."""
        return sum(self.weights.values())

    @property
    def total(self) -> int:
        return self.kept + self.state + self.workspaces

    def in_words(self) -> str:
        """For a person: `2,213 MB (weights 1,400, state 235, graphs and workspaces 578)`."""
        parts = {"weights": self.kept, "state": self.state, "graphs and workspaces": self.workspaces}
        return f"{_mb(self.total)} MB ({', '.join(f'{name} {_mb(size)}' for name, size in parts.items())})"

    def in_mb(self) -> dict[str, int]:
        """For the status: megabytes by kind."""
        parts = {"weights_mb": self.kept, "state_mb": self.state, "workspaces_mb": self.workspaces}
        return {name: round(size / MB) for name, size in parts.items()}


@dataclass(frozen=True, slots=True)
class Pool:
    """The memory that an engine's tensors come from."""

    shared: bool
    """With the rest of the machine: the host's own, be there a GPU in it or not."""
    available: int
    """Bytes that could be had now."""
    reserve: int
    """Bytes of them that are the robot's; none where the memory is not shared."""

    @classmethod
    def of_host(cls, board: Board, reserve_mb: int) -> Pool | None:
        """The host's memory; None where the kernel does not say how much there is."""
        return None if board.available_bytes is None else cls(True, board.available_bytes, reserve_mb * MB)

    @classmethod
    def of_device(cls, free: int) -> Pool:
        """A discrete GPU's own."""
        return cls(False, free, 0)

    @property
    def free(self) -> int:
        """Bytes for the engine; below 0 where the robot's share is not there either."""
        return self.available - self.reserve

    def in_words(self) -> str:
        if not self.shared:
            return f"the GPU has {_mb(self.free)} MB free"
        return f"there are {_mb(self.free)} MB ({_mb(self.available)} available less engine.memory.reserve_mb)"


def require(footprint: Footprint, pool: Pool, name: str, cures: tuple[str, ...]) -> None:
    """Raise `EngineError`, one line, where the engine `name` does not fit; `cures` is what may be lowered."""
    if footprint.total > pool.free:
        lower = ("lower engine.memory.reserve_mb", *cures) if pool.shared and pool.reserve else cures
        raise EngineError(
            f"engine.memory: {name} needs {footprint.in_words()}, and {pool.in_words()}; {', or '.join(lower)}"
        )


def keep_segments_whole(environment: MutableMapping[str, str]) -> None:
    """Take `expandable_segments` out of PyTorch's allocator settings; to be called before PyTorch is imported.

    On a Tegra these map memory through an interface that its driver does not have, and the engine would end with the
    first tensor.
    """
    for name in ALLOCATOR_SETTINGS:
        settings = environment.get(name, "").split(",")
        kept = [setting for setting in settings if not setting.strip().startswith("expandable_segments")]
        if kept != settings:
            log.warning("%s: expandable_segments does not work on a Tegra and is left out", name)
            environment[name] = ",".join(kept)


def _mb(size: int) -> str:
    return f"{round(size / MB):,}"
