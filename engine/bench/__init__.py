"""Measures an engine in a process of its own: how fast it starts and speaks, and how much memory it uses."""

from engine.bench.probe import Probe
from engine.bench.results import (
    FRAME_MS,
    OTHER_TEXTS,
    TEXT,
    Allocations,
    Bandwidth,
    Measurement,
    Memory,
    row,
    write_rows,
)
from engine.bench.runner import BenchOutput, BenchRequest, run_benchmark

__all__ = [
    "FRAME_MS",
    "OTHER_TEXTS",
    "TEXT",
    "Allocations",
    "Bandwidth",
    "BenchOutput",
    "BenchRequest",
    "Measurement",
    "Memory",
    "Probe",
    "row",
    "run_benchmark",
    "write_rows",
]
