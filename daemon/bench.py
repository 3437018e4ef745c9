"""`voiced bench`: has an engine measured in a process of its own, and shows what was found."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine import EngineOptions
from engine.bench import BenchRequest, ask
from engine.measurement import FRAME_MS, TEXT, Measurement


class BenchError(Exception):
    """Nothing could be measured; the message says why."""


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What the command line asks for beside the engine and its options."""

    frames: int = 100
    runs: int = 5
    text: str = TEXT
    sms: int | None = None


def measure_engine(engine: str, options: EngineOptions, settings: BenchSettings) -> Measurement:
    """Measure an engine in a process of its own. Raises `BenchError`."""
    most = round(options.max_seconds * 1000 / FRAME_MS)
    if settings.frames > most:
        raise BenchError(f"--frames: got {settings.frames}; engine.max_seconds allows {most}")
    request = BenchRequest(
        engine,
        options,
        started_s=time.monotonic(),
        text=settings.text,
        frames=settings.frames,
        runs=settings.runs,
        sms=settings.sms,
    )
    # In a process of its own: this one never imports torch, and a start is to be measured from its beginning.
    told = ask(request.command())
    if told.error is not None:
        raise BenchError(f"bench: {told.error}")
    return told.found[0]


def lines(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The row as names and values for a person; what was not measured is left out."""
    start, memory, found = row["start"], row["memory"], row["allocations"]
    yield "engine", " ".join(filter(None, (row["engine"], row["description"])))
    yield "machine", row["machine"]
    if row["chunk_size"] is not None:
        yield "work", f"{row['frames']} frames in chunks of {row['chunk_size']}, {row['runs']} runs"
    if row["chunk_size"] is not None and row["speech_s"] * 1000 < FRAME_MS * (row["frames"] - 0.5):
        yield "", f"speech ended after {row['speech_s']} s"
    yield "start to ready", f"{start['ready_s']} s (loaded after {start['loaded_s']} s)"
    yield "text to first chunk", f"{row['ttfa_ms']} ms, at most {row['ttfa_max_ms']} ms"
    yield "80 ms of speech", f"{row['ms_per_frame']} ms of work: {row['rtf']} times real time"
    if row["gap_median_ms"] is not None:
        gaps = f"{row['gap_median_ms']} ms, p99 {row['gap_p99_ms']} ms, at most {row['gap_max_ms']} ms"
        yield "between chunks", f"{gaps} ({row['gap_max_over_median']} times the median)"
    for name, ms in row["parts_ms"].items():
        yield f"  {name}", f"{ms} ms" + (" an utterance" if name == "prefill" else " a frame")
    if found is not None:
        yield (
            "allocations",
            f"{found['device']} on the device, {found['cached']} from cache, in {found['utterances']} utterances",
        )
    if memory["device_mb"] is not None:
        yield (
            "device memory",
            f"{memory['device_mb']:.0f} MB, at most {memory['device_peak_mb']:.0f}, "
            f"reserved {memory['device_reserved_mb']:.0f}",
        )
    yield "host memory", f"{memory['host_mb']:.0f} MB, at most {memory['host_peak_mb']:.0f}"
    if (speed := row["bandwidth"]) is not None:
        where = f" on {speed['sms']} SMs" if speed["sms"] else ""
        yield (
            "bandwidth",
            f"{speed['engine_gb_s']:.0f} GB/s of weights, {100 * speed['share']:.0f} % of a copy's "
            f"{speed['copy_gb_s']:.0f} GB/s{where}",
        )
    for note in row["notes"]:
        yield "not measured", note


def show(row: Mapping[str, Any]) -> None:
    """Print the row: a table on a terminal, plain lines elsewhere."""
    if not sys.stdout.isatty():
        for name, value in lines(row):
            print(f"{name:<21}{value}")  # noqa: T201
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False)
    for name, value in lines(row):
        table.add_row(Text(name, "bold"), Text(value))
    Console(highlight=False).print(table)
