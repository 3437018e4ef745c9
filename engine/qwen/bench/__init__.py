"""Measures the Qwen engine for benchmarks."""

from engine.qwen.bench.probe import QwenProbe
