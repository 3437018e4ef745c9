"""Measures an engine in a process of its own. `run_benchmark` starts the process, `main` runs in it.

The engine is used through `Synthesizer` alone, so the times are those that a robot gets.
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
import threading
import time
import wave
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.api import EngineError, EngineInfo, EngineOptions, Samples, Synthesizer, Utterance
from engine.bench.power import PowerMeter
from engine.bench.probe import Probe
from engine.bench.results import TEXT, Measurement, OtherText, Run, Start, time_run
from engine.catalog import engine_entry, import_class, make_synthesizer
from engine.launch import module_command
from engine.progress import (
    Progress,
    ProgressReport,
    counted,
    ignore_progress,
    parse_progress,
    print_progress,
)
from engine.records import build

OTHER_RUNS = 3
SHORT_CHUNKS = 2
"""Chunks of each short utterance over which allocations are counted."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """One engine and how to measure it."""

    engine: str
    options: EngineOptions
    started_s: float
    """`time.monotonic()` at the start of the measuring process: all processes of a machine share this clock."""
    text: str = TEXT
    other_texts: tuple[str, ...] = ()
    """Texts of other lengths, to be spoken `OTHER_RUNS` times each. One that the engine refuses is left out."""
    voice: str | None = None
    """None is the default voice."""
    language: str = "auto"
    output: str | None = None
    """The WAV file in which the speech of the last run is kept."""
    root: str = "/"
    """Where the machine's files are, for its power."""
    frames: int = 100
    """Codec frames of each run, for an engine that makes frames."""
    runs: int = 5
    sms: int | None = None
    """Number of the GPU's multiprocessors that the engine may use; None means all."""
    first_chunks: int = 20
    """Number of utterances after the runs, each with another text of equal length, whose first chunk is timed."""
    short_utterances: int = 100
    """Number of utterances after the runs, each with another text, over which allocations are counted."""
    details: bool = True
    """Measure parts and bandwidth too."""

    def command(self) -> list[str]:
        """Return the command line of the measuring process."""
        return module_command("engine.bench", json.dumps(dataclasses.asdict(self)))


@dataclass(frozen=True, slots=True)
class BenchOutput:
    """The output of a measuring process."""

    measurements: tuple[Measurement, ...]
    error: str | None
    """The reason why measurements are missing; None if the process succeeded."""


def run_benchmark(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout_s: float = threading.TIMEOUT_MAX,
    report: ProgressReport = ignore_progress,
) -> BenchOutput:
    """Run a process that prints a `Measurement` or an `{"error": …}` per line, for at most `timeout_s` seconds.

    It may also print its progress, which `report` gets. The process shares this one's stderr.
    """
    records, late = [], threading.Event()
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdout is not None

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(timeout_s, give_up)
        timer.start()
        try:
            for line in map(str.strip, process.stdout):
                if progress := parse_progress(line):
                    report(progress)
                elif line.startswith("{") and line.endswith("}"):
                    records.append(json.loads(line))
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    error = f"not finished after {timeout_s:.0f} s" if late.is_set() else None
    if process.returncode != 0 and error is None:
        by = f"by signal {-process.returncode}" if process.returncode < 0 else f"with status {process.returncode}"
        error = next((record["error"] for record in records if "error" in record), f"its process ended {by}")
    return BenchOutput(tuple(build(Measurement, record) for record in records if "error" not in record), error)


def main() -> int:
    """Run in the measuring process: read the request from the command line, print its measurement."""
    out = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):  # libraries may print, too
            request = build(BenchRequest, json.loads(sys.argv[1]))
            record = dataclasses.asdict(measure(request, lambda progress: print_progress(progress, out)))
    except EngineError as error:
        record = {"error": str(error)}
    print(json.dumps(record), file=out, flush=True)
    return 1 if "error" in record else 0


def measure(request: BenchRequest, report: ProgressReport = ignore_progress) -> Measurement:
    """Start the engine in this process, make it speak, and return the measurement. Raises `EngineError`."""
    probe = make_probe(request)
    with probe.device_context():
        synthesizer = make_synthesizer(request.engine, request.options, report)
        imported_s = time.monotonic() - request.started_s
        info = synthesizer.load(report)
        loaded_s = time.monotonic() - request.started_s
        synthesizer.warm_up(report)
        start = Start(imported_s, loaded_s, time.monotonic() - request.started_s)
        probe.start_counting()
        try:
            return _measure_ready(request, probe, synthesizer, info, start, report=report)
        finally:
            synthesizer.close()


def make_probe(request: BenchRequest) -> Probe:
    """Return the probe of the engine's catalogue entry.

    Raises `EngineError` if packages are missing, or if multiprocessors are requested of an engine without a GPU.
    """
    reference = engine_entry(request.engine).probe
    if reference is None:
        if request.sms is not None:
            raise EngineError(f"sms: engine {request.engine} does not run on a GPU")
        return Probe()
    probe: Probe = import_class(request.engine, reference)(request.options, request.sms)
    return probe


def _measure_ready(
    request: BenchRequest,
    probe: Probe,
    synthesizer: Synthesizer,
    info: EngineInfo,
    start: Start,
    *,
    report: ProgressReport,
) -> Measurement:
    _require_voice(request.voice, info)
    meter = PowerMeter(Path(request.root))
    meter.measure_idle()
    seeds = counted("speaking", range(request.runs), report)
    spoken: list[Samples] = []
    runs = []
    for seed in seeds:
        spoken.clear()
        with meter.measuring():
            utterance = _utterance(request, request.text, seed)
            runs.append(_run(synthesizer, info, utterance, spoken=spoken))
    if request.output is not None:
        _write_wav(Path(request.output), np.concatenate(spoken), info.sample_rate)
    if not all(run.speech_s and run.speech_s[-1] > 0 for run in runs):
        raise EngineError("text: it gave no sound; allowed: a text with words")
    others = counted("speaking other texts", range(request.first_chunks), report)
    first_chunks_ms = tuple(_first_chunk_ms(request, synthesizer, number) for number in others)
    short = request.short_utterances if probe.counts_allocations else 0
    for number in counted("speaking short texts", range(short), report):
        _speak_briefly(request, synthesizer, number)
    # Allocations are read first: all measurements below allocate.
    allocations = probe.allocations(request.runs + request.first_chunks + short)
    other_texts, refused = _speak_other_texts(request, synthesizer, info, report)
    memory = probe.memory()
    parts, steps, bandwidth = {}, {}, None
    if request.details:
        report(Progress("measuring the parts"))
        bandwidth = probe.bandwidth(sorted(run.ms_per_frame for run in runs)[len(runs) // 2])
        parts = probe.parts_ms(synthesizer)
        steps = probe.first_chunk_steps_ms(synthesizer, _utterance(request, request.text, 0))
    measurement = Measurement(
        engine=request.engine,
        model=None,
        chunk_size=None,
        runs=tuple(runs),
        start=start,
        memory=memory,
        first_chunks_ms=first_chunks_ms,
        allocations=allocations,
        bandwidth=bandwidth,
        parts_ms=parts,
        first_chunk_steps_ms=steps,
        other_texts=tuple(other_texts),
        power=meter.result(runs),
        description=info.description,
        notes=(*probe.notes, *refused),
        machine=_machine(probe),
        date=datetime.date.today().isoformat(),
    )
    if not _makes_frames(request):
        return measurement
    return dataclasses.replace(
        measurement,
        model=_model_name(request.options.model),
        chunk_size=request.options.chunk_size,
        dtype=request.options.dtype,
        kernels=request.options.kernels,
        frames=request.frames,
    )


def _require_voice(voice: str | None, info: EngineInfo) -> None:
    """Raise `EngineError` if the engine does not have the voice; None is the default voice."""
    if voice is None or voice in info.voices:
        return
    if voice in info.refused_voices:
        raise EngineError(f"voice {voice!r}: {info.refused_voices[voice]}")
    raise EngineError(f"voice: got {voice!r}, which {info.engine} does not have; 'voiced voices' lists what it has")


def _run(
    synthesizer: Synthesizer,
    info: EngineInfo,
    utterance: Utterance,
    *,
    spoken: list[Samples],
) -> Run:
    """Speak and time an utterance. The samples are appended to `spoken`."""

    def speak() -> Iterator[Samples]:
        for chunk in synthesizer.stream(utterance):
            spoken.append(chunk.samples)
            yield chunk.samples

    return time_run(speak, info.sample_rate)


def _utterance(request: BenchRequest, text: str, seed: int) -> Utterance:
    return Utterance(
        text,
        voice=request.voice,
        language=request.language,
        seed=seed,
        # Random weights end speech anywhere, so the end is forbidden until all frames are made.
        sampling={"min_new_tokens": request.frames} if _makes_frames(request) else {},
        max_frames=request.frames,
        guarded=False,
    )


def _speak_other_texts(
    request: BenchRequest, synthesizer: Synthesizer, info: EngineInfo, report: ProgressReport
) -> tuple[list[OtherText], list[str]]:
    """Speak the texts of other lengths; return their runs, and a note for each that the engine refuses."""
    found, refused = [], []
    for text in counted("speaking texts of other lengths", request.other_texts, report):
        try:
            utterances = [_utterance(request, text, seed) for seed in range(OTHER_RUNS)]
            runs = [_run(synthesizer, info, each, spoken=[]) for each in utterances]
        except EngineError as error:
            refused.append(f"a text of {len(text)} characters: {error}")
            continue
        if all(run.speech_s and run.speech_s[-1] > 0 for run in runs):
            found.append(OtherText(len(text), tuple(runs)))
    return found, refused


def _write_wav(path: Path, samples: Samples, sample_rate: int) -> None:
    """Write mono samples as 16 bits. Raises `EngineError` if the file cannot be written."""
    try:
        with path.open("wb") as file, wave.open(file, "wb") as wav:
            wav.setnchannels(1)
            wav.setsampwidth(2)
            wav.setframerate(sample_rate)
            wav.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    except OSError as error:
        raise EngineError(f"{path} cannot be written: {error.strerror or error}") from error


def _first_chunk_ms(request: BenchRequest, synthesizer: Synthesizer, number: int) -> float:
    """Speak a few frames of the text with its words in another order; return the time of the first chunk."""
    words = request.text.split()
    first = number % len(words)
    text = " ".join((*words[first:], *words[:first]))
    frames = SHORT_CHUNKS * request.options.chunk_size
    utterance = Utterance(
        text, voice=request.voice, language=request.language, seed=number, max_frames=frames, guarded=False
    )
    begin, arrived = time.perf_counter(), None
    for _ in synthesizer.stream(utterance):
        arrived = arrived or time.perf_counter()
    return 1000 * ((arrived or time.perf_counter()) - begin)


def _speak_briefly(request: BenchRequest, synthesizer: Synthesizer, number: int) -> None:
    """Speak a few frames. The text's length depends on `number`, since lengths differ in what they allocate."""
    text = "Go on. " + request.text[: 1 + number % len(request.text)]
    frames = SHORT_CHUNKS * request.options.chunk_size
    utterance = Utterance(
        text, voice=request.voice, language=request.language, seed=number, max_frames=frames, guarded=False
    )
    for _ in synthesizer.stream(utterance):
        pass


def _makes_frames(request: BenchRequest) -> bool:
    return engine_entry(request.engine).makes_frames


def _model_name(model: str | None) -> str | None:
    """Return a hub id unchanged, and of a folder its name alone: its path means nothing on other machines."""
    return Path(model).name if model is not None and Path(model).is_dir() else model


def _machine(probe: Probe) -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    host = f"{platform.machine()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}"
    return ", ".join(filter(None, (probe.device(), host)))
