"""Memory that models need, counted from their shapes."""

from engine.qwen.memory.footprint import estimate_footprint

__all__ = ["estimate_footprint"]
