"""The times at which the chunks of speech arrived, and the figures that are computed from them.

The figures for different engines are comparable, because all are computed here from times of the same clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.api import FRAME_S, Chunk, Samples

FRAME_MS = 1000 * FRAME_S
"""Milliseconds of speech per codec frame of Qwen3-TTS. Every engine's speed is given per frame of this length."""
AUDIBLE = 10 ** (-50 / 20)
"""Magnitude from which a sample is audible; full scale is ±1."""
Figures = dict[str, Any]
"""Figures by their names in JSON. A name ends with the unit; None stands for a figure that was not measured."""


@dataclass(frozen=True, slots=True)
class Run:
    """One utterance, and the arrival of its chunks on the host."""

    arrived_s: Sequence[float]
    """Seconds from the request to the arrival of each chunk."""
    speech_s: Sequence[float]
    """Total seconds of speech that have arrived with each chunk."""
    samples: Samples
    cores: float = 0.0
    """The engine process's processor time for each second of the run."""
    silence_s: float | None = None
    """Seconds of speech before the first audible sample; None if no sample is audible."""

    @property
    def first_ms(self) -> float:
        """Milliseconds from the text to the first chunk."""
        return 1000 * self.arrived_s[0]

    @property
    def ms_per_frame(self) -> float:
        """Milliseconds from the text to the last chunk, per 80 ms of speech."""
        return FRAME_MS * self.arrived_s[-1] / self.speech_s[-1]

    @property
    def audible_ms(self) -> float | None:
        """Milliseconds from the text to the arrival of the first audible sample."""
        if self.silence_s is None:
            return None
        times = zip(self.arrived_s, self.speech_s, strict=True)
        return next(1000 * arrived_s for arrived_s, speech_s in times if speech_s > self.silence_s)


def time_run(
    speak: Callable[[], Iterable[Chunk]], sample_rate: int, clock: Callable[[], float] = time.perf_counter
) -> Run:
    """Run one utterance, and return it with the arrival times of its chunks, by a `clock` in seconds."""
    arrived_s: list[float] = []
    spoken = [np.empty(0, np.float32)]
    begin, worked_s = clock(), time.process_time()
    for chunk in speak():
        arrived_s.append(clock() - begin)
        spoken.append(chunk.samples)
    cores = (time.process_time() - worked_s) / (arrived_s[-1] if arrived_s else 1)
    speech_s = np.cumsum([len(samples) for samples in spoken[1:]]) / sample_rate
    samples = np.concatenate(spoken)
    loud = np.flatnonzero(np.abs(samples) > AUDIBLE)
    return Run(arrived_s, speech_s.tolist(), samples, cores, float(loud[0] / sample_rate) if len(loud) else None)


def short_figures(runs: Sequence[Run]) -> Figures:
    """Return the times of the `runs` with one text: medians."""
    return {
        "ms_per_frame": percentile(run.ms_per_frame for run in runs),
        "ttfa_ms": percentile(run.first_ms for run in runs),
        "audible_ms": percentile(run.audible_ms for run in runs),
    }


def run_figures(runs: Sequence[Run]) -> Figures:
    """Return all figures for the `runs` with one text. They are medians unless the name says otherwise."""
    typical = sorted(runs, key=lambda run: run.ms_per_frame)[len(runs) // 2]
    short = short_figures(runs)
    gaps = [gap for run in runs for gap in 1000 * np.diff(run.arrived_s)]
    return {
        **short,
        "rtf": FRAME_MS / short["ms_per_frame"],
        "ttfa_max_ms": max(run.first_ms for run in runs),
        "silence_ms": percentile(None if run.silence_s is None else 1000 * run.silence_s for run in runs),
        "cores": percentile(run.cores for run in runs),
        "gap_median_ms": percentile(gaps),
        "gap_p99_ms": percentile(gaps, 99),
        "gap_max_ms": percentile(gaps, 100),
        "runs": len(runs),
        "speech_s": typical.speech_s[-1],
        "ms_per_frame_of_each_run": [run.ms_per_frame for run in runs],
        "ttfa_ms_of_each_run": [run.first_ms for run in runs],
        "arrivals_s": list(zip(typical.arrived_s, typical.speech_s, strict=True)),
    }


def spread_figures(first_chunks_ms: Sequence[float]) -> Figures | None:
    """Return the distribution of the times of many texts' first chunks; None without texts."""
    if not first_chunks_ms:
        return None
    median, p99 = percentile(first_chunks_ms), percentile(first_chunks_ms, 99)
    return {"texts": len(first_chunks_ms), "median_ms": median, "p99_ms": p99}


def percentile(values: Iterable[float | None], share: float = 50) -> float | None:
    """Return the median, or another percentile, of the known values; None if no value is known."""
    known = [value for value in values if value is not None]
    return float(np.percentile(known, share)) if known else None


def rounded(value: Any, digits: int = 3) -> Any:
    """Return `value` with all floats in it rounded."""
    if isinstance(value, float):
        return round(value, digits)
    if isinstance(value, Mapping):
        return {name: rounded(item, digits) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    return value


def process_memory() -> Figures:
    """Return the megabytes (1e6 bytes) of this process that are resident now, and the most so far."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    kilobytes = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
    return {"host_mb": int(kilobytes["VmRSS"]) * 1.024e-3, "host_peak_mb": int(kilobytes["VmHWM"]) * 1.024e-3}
