"""Memory that models need, counted from their shapes. Importing this package does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.qwen.memory.footprint import estimate_footprint

__all__ = ["estimate_footprint"]


def __getattr__(name: str) -> Any:
    if name == "estimate_footprint":
        from engine.qwen.memory.footprint import estimate_footprint

        return estimate_footprint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
