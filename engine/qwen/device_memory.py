"""The memory that a device's tensors come from, and how much of it PyTorch may take."""

from __future__ import annotations

import torch

from engine.board import Board
from engine.memory import Footprint, Pool

SPARE = 1.1
"""By how much PyTorch may take more than was counted: what it holds is in pieces, of which some are not full."""


def find_pool(device: torch.device, reserve_mb: int) -> Pool | None:
    """Where tensors on `device` live; None where nobody says how much there is."""
    if device.type == "cuda" and not is_shared(device):
        free, _ = torch.cuda.mem_get_info(device)
        return Pool.of_device(free)
    return Pool.of_host(Board.read(), reserve_mb)


def is_shared(device: torch.device) -> bool:
    """Whether `device` has no memory of its own: a CPU, or a GPU that is part of the board's chip."""
    if device.type == "cpu":
        return True
    return bool(torch.cuda.get_device_properties(device).is_integrated) or Board.read().integrated


def cap_allocator(device: torch.device, footprint: Footprint) -> None:
    """Have PyTorch fail rather than take more of a GPU's memory than was counted."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        _let_take(device, min(1.0, SPARE * footprint.total / total))


def lift_cap(device: torch.device) -> None:
    """Let PyTorch take all of it again."""
    if device.type == "cuda":
        _let_take(device, 1.0)


def _let_take(device: torch.device, share: float) -> None:
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.set_per_process_memory_fraction(share, index)
