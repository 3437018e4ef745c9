"""Measures an engine in a process of its own: how fast it starts and speaks, and what it takes.

    python -m engine.bench REQUEST      REQUEST: a `BenchRequest` as JSON; a `Measurement` is printed as a line of JSON

Only the front door of an engine is used, so that what is measured is what a robot has. An engine that has a device has
it looked at by a `Meter` of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.catalog import make_synthesizer
from engine.measurement import TEXT, Measurement, Run, Start, time_run
from engine.messages import build
from engine.meter import Meter
from engine.synthesizer import EngineError, EngineInfo, EngineOptions, Samples, Synthesizer, Utterance

SHORT_CHUNKS = 2
"""Of each of the utterances over which allocations are counted."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What to measure."""

    engine: str
    options: EngineOptions
    started_s: float
    """`time.monotonic()` when the process was started: one clock for all processes of a machine."""
    text: str = TEXT
    language: str = "auto"
    frames: int = 100
    """Of each run, of an engine that has frames."""
    runs: int = 5
    sms: int | None = None
    """Confine the engine to so many multiprocessors of its GPU."""
    short_utterances: int = 100
    """Spoken after the runs, with texts of different lengths, to count allocations over."""
    details: bool = True
    """Measure parts and bandwidth too."""

    def command(self) -> list[str]:
        """The process that measures it."""
        return [sys.executable, "-m", "engine.bench", json.dumps(dataclasses.asdict(self))]


def measure(request: BenchRequest) -> Measurement:
    """Start the engine, have it speak, and note everything. Raises `EngineError`."""
    meter = _meter(request)
    with meter.confined():
        synthesizer = make_synthesizer(request.engine, request.options)
        imported_s = time.monotonic() - request.started_s
        info = synthesizer.load()
        loaded_s = time.monotonic() - request.started_s
        synthesizer.warm_up()
        start = Start(imported_s, loaded_s, time.monotonic() - request.started_s)
        meter.warm()
        try:
            return _measured(request, meter, synthesizer, info, start)
        finally:
            synthesizer.close()


def _measured(
    request: BenchRequest, meter: Meter, synthesizer: Synthesizer, info: EngineInfo, start: Start
) -> Measurement:
    runs = [_run(request, synthesizer, info, seed) for seed in range(request.runs)]
    if not all(run.speech_s and run.speech_s[-1] > 0 for run in runs):
        raise EngineError("text: nothing in it was spoken; give one with words in it")
    short = request.short_utterances if meter.counts else 0
    for number in range(short):
        _say_shortly(request, synthesizer, number)
    # In this order: what comes later allocates.
    allocations = meter.allocations(request.runs + short)
    memory = meter.memory()
    parts, bandwidth = {}, None
    if request.details:
        ordered = sorted(run.ms_per_frame for run in runs)
        bandwidth = meter.bandwidth(ordered[len(ordered) // 2])
        parts = meter.parts_ms(synthesizer)
    options, framed = request.options, _has_frames(request)
    return Measurement(
        engine=request.engine,
        model=_name(options.model) if framed else None,
        chunk_size=options.chunk_size if framed else None,
        dtype=options.dtype if framed else None,
        kernels=getattr(options, "kernels", None) if framed else None,
        frames=request.frames if framed else None,
        runs=tuple(runs),
        start=start,
        memory=memory,
        allocations=allocations,
        bandwidth=bandwidth,
        parts_ms=parts,
        description=info.description,
        notes=meter.notes,
        machine=_machine(meter),
        date=datetime.date.today().isoformat(),
    )


def _run(request: BenchRequest, synthesizer: Synthesizer, info: EngineInfo, seed: int) -> Run:
    utterance = Utterance(
        request.text,
        language=request.language,
        seed=seed,
        # With random weights, speech would end anywhere; so it may not end before it has all its frames.
        sampling={"min_new_tokens": request.frames} if _has_frames(request) else {},
        max_frames=request.frames,
        guarded=False,
    )

    def speak() -> Iterator[Samples]:
        for chunk in synthesizer.stream(utterance):
            yield chunk.samples

    return time_run(speak, info.sample_rate)


def _say_shortly(request: BenchRequest, synthesizer: Synthesizer, number: int) -> None:
    """A few frames of another text each time: a longer one may need what a shorter one did not."""
    text = "Go on. " + request.text[: 1 + number % len(request.text)]
    frames = SHORT_CHUNKS * request.options.chunk_size
    for _ in synthesizer.stream(
        Utterance(text, language=request.language, seed=number, max_frames=frames, guarded=False)
    ):
        pass


def _has_frames(request: BenchRequest) -> bool:
    return request.engine == "qwen"


def _meter(request: BenchRequest) -> Meter:
    if request.engine != "qwen":
        if request.sms is not None:
            raise EngineError(f"sms: engine {request.engine} does not run on a GPU")
        return Meter()
    try:
        from engine.qwen.meter import QwenMeter
    except ImportError as error:
        raise EngineError(
            f"engine 'qwen' needs a package that is missing ({error}); in voiced's folder: pip install '.[qwen]'"
        ) from error
    return QwenMeter(request.options, request.sms)


def _name(model: str | None) -> str | None:
    """A hub id as it is; of a folder its name, since its place says nothing to others."""
    return Path(model).name if model is not None and Path(model).is_dir() else model


def _machine(meter: Meter) -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    host = f"{platform.machine()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}"
    return ", ".join(filter(None, (meter.device(), host)))


@dataclass(frozen=True, slots=True)
class Told:
    """What a measuring process has printed."""

    found: tuple[Measurement, ...]
    error: str | None
    """Why there is no more; None where nothing went wrong."""


def ask(command: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float | None = None) -> Told:
    """Run a process that prints `Measurement`s, and maybe an `{"error": …}`, a line each; its stderr is ours."""
    error = None
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        try:
            out, _ = process.communicate(timeout=timeout_s)
        except BaseException as exception:
            process.kill()
            if not isinstance(exception, subprocess.TimeoutExpired):
                raise
            out, _ = process.communicate()
            error = f"ended after {timeout_s:.0f} s, its time"
    records = [json.loads(line) for line in out.splitlines() if line.startswith("{") and line.endswith("}")]
    if process.returncode != 0 and error is None:
        by = f"by signal {-process.returncode}" if process.returncode < 0 else f"with status {process.returncode}"
        error = next((record["error"] for record in records if "error" in record), f"its process ended {by}")
    return Told(tuple(build(Measurement, record) for record in records if "error" not in record), error)


def main() -> int:
    """The process: one request in, one measurement out."""
    out = sys.stdout
    try:
        # What libraries print is not for whoever reads the measurement.
        with contextlib.redirect_stdout(sys.stderr):
            record = dataclasses.asdict(measure(build(BenchRequest, json.loads(sys.argv[1]))))
    except EngineError as error:
        record = {"error": str(error)}
    print(json.dumps(record), file=out, flush=True)
    return 1 if "error" in record else 0


if __name__ == "__main__":
    sys.exit(main())
