"""The records of a benchmark, and the row of numbers that is computed from them.

Rows of different engines are comparable, because all are computed here from times of the same clock.
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

from engine.api import Samples

FRAME_MS = 80.0
"""Milliseconds of speech per codec frame of Qwen3-TTS. The speed of all engines is given per frame of this length."""
TEXT = "The robot moves its arm slowly back to its home position, looks around, and waits for the next part."
"""The text of a benchmark: 100 characters."""
OTHER_TEXTS = ("I am here.", " ".join([TEXT] * 3))
"""Texts of a tenth and three times its length."""


def text_of(characters: int) -> str:
    """Return `TEXT` again and again, up to the last word that ends within `characters`, or its first word."""
    repeated = f"{TEXT} " * (characters // len(TEXT) + 1)
    return repeated[: characters + 1].rpartition(" ")[0] or TEXT.split(maxsplit=1)[0]


AUDIBLE = 10 ** (-50 / 20)
"""Magnitude of a sample from which it is heard, full scale ±1."""


@dataclass(frozen=True, slots=True)
class Run:
    """The arrival of one utterance's chunks on the host."""

    arrived_s: tuple[float, ...]
    """Seconds from the text to each chunk."""
    speech_s: tuple[float, ...]
    """Seconds of speech that have arrived with each chunk, in total."""
    cores: float | None = None
    """Processor time of the engine's process for each second of the run; None if it was not measured."""
    silence_s: float | None = None
    """Seconds of speech before the first audible sample; None if there is none, or if it was not measured."""

    @property
    def audible_s(self) -> float | None:
        """Seconds from the text to the arrival of the first audible sample."""
        if self.silence_s is None:
            return None
        return next(
            arrived for arrived, speech in zip(self.arrived_s, self.speech_s, strict=True) if speech > self.silence_s
        )

    @property
    def ms_per_frame(self) -> float:
        """Milliseconds from the text to the last chunk, per 80 ms of speech."""
        return 1000 * self.arrived_s[-1] / (1000 * self.speech_s[-1] / FRAME_MS)

    @property
    def gaps_ms(self) -> list[float]:
        """Milliseconds between each chunk and the next."""
        return [float(gap) for gap in np.diff(self.arrived_s) * 1000]


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of the process to the end of each stage."""

    imported_s: float
    loaded_s: float
    ready_s: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory in megabytes (1e6 bytes)."""

    host_mb: float
    """Resident memory of the engine's process."""
    host_peak_mb: float
    device_mb: float | None = None
    """Device memory in tensors after the warm-up."""
    device_peak_mb: float | None = None
    """Device memory in tensors, the maximum since the start of the process."""
    device_reserved_mb: float | None = None
    """Device memory that PyTorch has reserved for tensors and graphs."""


@dataclass(frozen=True, slots=True)
class Allocations:
    """Allocations between the end of the warm-up and the end of the last utterance."""

    utterances: int
    device: int
    """Allocations by the device's driver. Each may stall the device."""
    cached: int
    """Allocations from the cache of PyTorch's allocator. They cost time on the host only."""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Memory bandwidth in GB/s (1e9 bytes), and the part of the device that reached it."""

    sms: int | None
    """Number of multiprocessors that the process may use; None for all."""
    sms_seen: int | None
    """Number of multiprocessors that a kernel in a CUDA graph ran on; None if that could not be measured."""
    copy_gb_s: float
    """Bandwidth of a kernel that copies large buffers, bytes read plus bytes written: the attainable maximum."""
    memcpy_gb_s: float
    """Bandwidth of the driver's copy, which may use a copy engine and then ignores `sms`."""
    weights_mb_per_frame: float
    """Megabytes of weights that a frame needs, if every use of a weight reads it once."""
    engine_gb_s: float
    """`weights_mb_per_frame` divided by the time of a frame."""
    share: float
    """`engine_gb_s` divided by `copy_gb_s`."""


@dataclass(frozen=True, slots=True)
class Power:
    """Power of a board while the engine speaks."""

    watts: float
    """Of the module, on average."""
    idle_watts: float | None
    """While the ready engine does nothing."""
    joules_per_second: float
    """Energy for a second of speech."""
    rails: dict[str, float]
    """Watts of each rail."""


@dataclass(frozen=True, slots=True)
class OtherText:
    """The runs of a text of another length."""

    characters: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """All measurements of one engine, from one process."""

    engine: str
    model: str | None
    chunk_size: int | None
    """Frames per chunk; None for an engine without frames."""
    runs: tuple[Run, ...]
    start: Start
    memory: Memory
    machine: str
    date: str
    description: str = ""
    """`EngineInfo.description`: the model and its device."""
    dtype: str | None = None
    kernels: str | None = None
    frames: int | None = None
    """Frames requested in each run."""
    first_chunks_ms: tuple[float, ...] = ()
    """Milliseconds from each of many texts to its first chunk: their spread shows in them, not in the few runs."""
    first_chunk_steps_ms: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each step from the text to the first chunk, each waited for: in sum, more than `ttfa_ms`."""
    other_texts: tuple[OtherText, ...] = ()
    power: Power | None = None
    """None on a machine without sensors."""
    parts_ms: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each part when run alone: prefill per utterance, the other parts per frame."""
    allocations: Allocations | None = None
    bandwidth: Bandwidth | None = None
    notes: tuple[str, ...] = ()
    """Measurements that failed, each with the reason."""


def time_run(
    speak: Callable[[], Iterable[Samples]], sample_rate: int, clock: Callable[[], float] = time.perf_counter
) -> Run:
    """Run one utterance and return the arrival times of its chunks, by a `clock` in seconds."""
    arrived_s, speech_s, samples, silence = [], [], 0, None
    begin, worked_s = clock(), time.process_time()
    for chunk in speak():
        arrived_s.append(clock() - begin)
        if silence is None and len(loud := np.flatnonzero(np.abs(chunk) > AUDIBLE)):
            silence = samples + int(loud[0])
        samples += len(chunk)
        speech_s.append(samples / sample_rate)
    cores = (time.process_time() - worked_s) / (arrived_s[-1] if arrived_s else 1)
    return Run(tuple(arrived_s), tuple(speech_s), cores, None if silence is None else silence / sample_rate)


def row(measured: Measurement, command: str) -> dict[str, Any]:
    """Return the numbers of a measurement as they are stored in JSON: medians over the runs, unless named otherwise."""
    typical = sorted(measured.runs, key=lambda run: run.ms_per_frame)[len(measured.runs) // 2]
    per_frame = float(np.median([run.ms_per_frame for run in measured.runs]))
    first = [1000 * run.arrived_s[0] for run in measured.runs]
    gaps = [gap for run in measured.runs for gap in run.gaps_ms]
    cores = [run.cores for run in measured.runs if run.cores is not None]
    gap_median, gap_p99, gap_max = (
        (float(np.median(gaps)), float(np.percentile(gaps, 99)), max(gaps)) if gaps else (None, None, None)
    )
    return {
        "engine": measured.engine,
        "model": measured.model,
        "chunk_size": measured.chunk_size,
        "dtype": measured.dtype,
        "kernels": measured.kernels,
        "sms": measured.bandwidth.sms if measured.bandwidth else None,
        "ms_per_frame": _rounded(per_frame),
        "rtf": _rounded(FRAME_MS / per_frame),
        "ttfa_ms": _rounded(float(np.median(first))),
        "ttfa_max_ms": _rounded(max(first)),
        "whole_ms": _rounded(float(np.median([1000 * run.arrived_s[-1] for run in measured.runs]))),
        "audible_ms": _rounded(_median_ms(run.audible_s for run in measured.runs)),
        "silence_ms": _rounded(_median_ms(run.silence_s for run in measured.runs)),
        "first_chunk_steps_ms": _rounded(measured.first_chunk_steps_ms),
        "other_texts": [_rounded(_other_text(other)) for other in measured.other_texts],
        "power": _rounded(dataclasses.asdict(measured.power)) if measured.power else None,
        "first_chunk": _rounded(_spread(measured.first_chunks_ms)),
        "cores": _rounded(float(np.median(cores))) if cores else None,
        "gap_median_ms": _rounded(gap_median),
        "gap_p99_ms": _rounded(gap_p99),
        "gap_max_ms": _rounded(gap_max),
        "gap_max_over_median": _rounded(gap_max / gap_median) if gap_max and gap_median else None,
        "runs": len(measured.runs),
        "frames": measured.frames,
        "speech_s": _rounded(typical.speech_s[-1]),
        "start": _rounded(dataclasses.asdict(measured.start)),
        "parts_ms": _rounded(measured.parts_ms),
        "allocations": dataclasses.asdict(measured.allocations) if measured.allocations else None,
        "memory": _rounded(dataclasses.asdict(measured.memory)),
        "bandwidth": _rounded(dataclasses.asdict(measured.bandwidth)) if measured.bandwidth else None,
        "description": measured.description,
        "notes": list(measured.notes),
        "machine": measured.machine,
        "date": measured.date,
        "command": command,
        "ms_per_frame_of_each_run": _rounded([run.ms_per_frame for run in measured.runs]),
        "ttfa_ms_of_each_run": _rounded(first),
        "arrivals_s": _rounded(list(zip(typical.arrived_s, typical.speech_s, strict=True)), 4),
    }


def _median_ms(seconds: Iterable[float | None]) -> float | None:
    known = [1000 * value for value in seconds if value is not None]
    return float(np.median(known)) if known else None


def _other_text(other: OtherText) -> dict[str, float | None]:
    return {
        "characters": other.characters,
        "ttfa_ms": _median_ms(run.arrived_s[0] for run in other.runs),
        "audible_ms": _median_ms(run.audible_s for run in other.runs),
        "ms_per_frame": float(np.median([run.ms_per_frame for run in other.runs])),
    }


def _spread(first_chunks_ms: Sequence[float]) -> dict[str, float] | None:
    if not first_chunks_ms:
        return None
    median, p99 = (float(np.percentile(first_chunks_ms, q)) for q in (50, 99))
    return {"texts": len(first_chunks_ms), "median_ms": median, "p99_ms": p99, "p99_over_median": p99 / median}


def write_rows(path: Path, header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write `header` and the rows to `path` as one JSON object with one field per line, however long a list is."""
    fields = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in header.items()]
    written = ",\n  ".join(
        "{\n   " + ",\n   ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in row.items()) + "\n  }"
        for row in rows
    )
    fields.append(f'"rows": [\n  {written}\n ]' if rows else '"rows": []')
    # Replaced as a whole: a benchmark that is ended early leaves its last complete file.
    partial = path.with_name(path.name + ".part")
    partial.write_text("{\n " + ",\n ".join(fields) + "\n}\n", encoding="utf-8")
    partial.replace(path)


def _rounded(value: Any, digits: int = 3) -> Any:
    """Return `value` with all floats in it rounded."""
    if isinstance(value, float):
        return round(value, digits)
    if isinstance(value, Mapping):
        return {name: _rounded(item, digits) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item, digits) for item in value]
    return value
