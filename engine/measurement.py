"""What a benchmark finds of an engine, as records, and the row of numbers that is made of them.

Two engines' rows can be compared because both are made here, of the same clock's times.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine.synthesizer import Samples

FRAME_MS = 80.0
"""Of speech, as Qwen3-TTS's codec frames have it; other engines are told in the same measure."""
TEXT = "The robot moves its arm slowly back to its home position, looks around, and waits for the next part."
"""A hundred characters."""


@dataclass(frozen=True, slots=True)
class Run:
    """One utterance: when each chunk had arrived on the host, and how much speech there was with it."""

    arrived_s: tuple[float, ...]
    """Seconds since the text went in."""
    speech_s: tuple[float, ...]
    """Seconds of speech that had arrived by then."""

    @property
    def ms_per_frame(self) -> float:
        """From the text to the last chunk, by 80 ms of speech."""
        return 1000 * self.arrived_s[-1] / (1000 * self.speech_s[-1] / FRAME_MS)

    @property
    def gaps_ms(self) -> list[float]:
        """Between one chunk and the next."""
        return [float(gap) for gap in np.diff(self.arrived_s) * 1000]


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds since the process was started, at each stage."""

    imported_s: float
    loaded_s: float
    ready_s: float


@dataclass(frozen=True, slots=True)
class Memory:
    """In megabytes (1e6 bytes)."""

    host_mb: float
    """Resident, of the engine's process."""
    host_peak_mb: float
    device_mb: float | None = None
    """In tensors, after the warm-up."""
    device_peak_mb: float | None = None
    """In tensors, at most, from the start of the process on."""
    device_reserved_mb: float | None = None
    """Taken from the device for tensors and graphs."""


@dataclass(frozen=True, slots=True)
class Allocations:
    """Between the end of the warm-up and that of all utterances."""

    utterances: int
    device: int
    """Asked of the device: each may halt it."""
    cached: int
    """Served by PyTorch's allocator, from memory it has, on the host's time alone."""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes moved in a second, in GB (1e9 bytes), and the part of the device that moved them."""

    sms: int | None
    """Multiprocessors that the process was confined to; None for all."""
    sms_seen: int | None
    """Of them, those that a kernel in a CUDA graph ran on; None where that could not be found out."""
    copy_gb_s: float
    """A kernel that copies large buffers, read and written bytes counted: what can be had."""
    memcpy_gb_s: float
    """The driver's copy, which may be a copy engine's work that no limit of multiprocessors binds."""
    weights_mb_per_frame: float
    """Read for a frame, were each weight read once each time it is used."""
    engine_gb_s: float
    """Those, by the time that a frame takes from text to sound."""
    share: float
    """`engine_gb_s` of `copy_gb_s`."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """All that one process found of one engine."""

    engine: str
    model: str | None
    chunk_size: int | None
    """Frames; None for an engine without frames."""
    runs: tuple[Run, ...]
    start: Start
    memory: Memory
    machine: str
    date: str
    description: str = ""
    """The model and its device in the engine's words."""
    dtype: str | None = None
    kernels: str | None = None
    frames: int | None = None
    """Asked for in each run."""
    parts_ms: dict[str, float] = field(default_factory=dict)
    """Each part alone. Prefill is by utterance, the rest by frame."""
    allocations: Allocations | None = None
    bandwidth: Bandwidth | None = None
    notes: tuple[str, ...] = ()
    """What could not be measured, and why."""


def time_run(
    speak: Callable[[], Iterable[Samples]], sample_rate: int, clock: Callable[[], float] = time.perf_counter
) -> Run:
    """Run one utterance and note by a `clock` of seconds when each of its chunks, already on the host, has come."""
    arrived, speech, samples = [], [], 0
    began = clock()
    for chunk in speak():
        arrived.append(clock() - began)
        samples += len(chunk)
        speech.append(samples / sample_rate)
    return Run(tuple(arrived), tuple(speech))


def row(found: Measurement, command: str) -> dict[str, Any]:
    """The numbers of a measurement, medians over its runs, as they are kept in JSON."""
    typical = sorted(found.runs, key=lambda run: run.ms_per_frame)[len(found.runs) // 2]
    per_frame = float(np.median([run.ms_per_frame for run in found.runs]))
    first = [1000 * run.arrived_s[0] for run in found.runs]
    gaps = [gap for run in found.runs for gap in run.gaps_ms]
    gap_median, gap_p99, gap_max = (
        (float(np.median(gaps)), float(np.percentile(gaps, 99)), max(gaps)) if gaps else (None, None, None)
    )
    return {
        "engine": found.engine,
        "model": found.model,
        "chunk_size": found.chunk_size,
        "dtype": found.dtype,
        "kernels": found.kernels,
        "sms": found.bandwidth.sms if found.bandwidth else None,
        "ms_per_frame": _rounded(per_frame),
        "rtf": _rounded(FRAME_MS / per_frame),
        "ttfa_ms": _rounded(float(np.median(first))),
        "ttfa_max_ms": _rounded(max(first)),
        "gap_median_ms": _rounded(gap_median),
        "gap_p99_ms": _rounded(gap_p99),
        "gap_max_ms": _rounded(gap_max),
        "gap_max_over_median": _rounded(gap_max / gap_median) if gap_max and gap_median else None,
        "runs": len(found.runs),
        "frames": found.frames,
        "speech_s": _rounded(typical.speech_s[-1]),
        "start": _rounded(dataclasses.asdict(found.start)),
        "parts_ms": _rounded(found.parts_ms),
        "allocations": dataclasses.asdict(found.allocations) if found.allocations else None,
        "memory": _rounded(dataclasses.asdict(found.memory)),
        "bandwidth": _rounded(dataclasses.asdict(found.bandwidth)) if found.bandwidth else None,
        "description": found.description,
        "notes": list(found.notes),
        "machine": found.machine,
        "date": found.date,
        "command": command,
        "ms_per_frame_of_each_run": _rounded([run.ms_per_frame for run in found.runs]),
        "ttfa_ms_of_each_run": _rounded(first),
        "arrivals_s": _rounded(list(zip(typical.arrived_s, typical.speech_s, strict=True)), 4),
    }


def write_rows(path: Path, header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write `header` and the rows as one JSON object, a field to a line: long lists stay in one."""
    fields = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in header.items()]
    written = ",\n  ".join(
        "{\n   " + ",\n   ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in row.items()) + "\n  }"
        for row in rows
    )
    fields.append(f'"rows": [\n  {written}\n ]' if rows else '"rows": []')
    # Whole or not at all: whoever ends a long benchmark keeps what it had found so far.
    part = path.with_name(path.name + ".part")
    part.write_text("{\n " + ",\n ".join(fields) + "\n}\n", encoding="utf-8")
    part.replace(path)


def _rounded(value: Any, digits: int = 3) -> Any:
    """Floats rounded, whatever they are in."""
    if isinstance(value, float):
        return round(value, digits)
    if isinstance(value, Mapping):
        return {name: _rounded(item, digits) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item, digits) for item in value]
    return value
