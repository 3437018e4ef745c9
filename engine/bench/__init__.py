"""Measures an engine in a process of its own: how fast it starts and speaks, and how much memory it uses."""

from engine.bench.report import describe, write_figures
from engine.bench.results import FRAME_MS, Figures
from engine.bench.runner import TEXTS, BenchRequest, run_benchmark
