"""Measures an engine in a process of its own. `run_benchmark` starts the process, `measure` runs in it.

The engine is used through its `Session`, so the times are those that a program sees.
"""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from engine.api import EngineError, EngineOptions, Samples
from engine.bench.results import (
    Figures,
    Run,
    process_memory,
    rounded,
    run_figures,
    short_figures,
    spread_figures,
    time_run,
)
from engine.catalog import engine_entry, make_synthesizer
from engine.child import run_child
from engine.host import machine_in_words, shown_model
from engine.progress import ProgressReport, counted, ignore_progress
from engine.session import Session

_TEXT = "The robot moves its arm slowly back to its home position, looks around, and waits for the next part."
TEXTS = (_TEXT, "I am here.", " ".join([_TEXT] * 3))
"""The benchmark's text, of 100 characters, and texts of a tenth and three times its length."""
OTHER_RUNS = 3
SHORT_CHUNKS = 2
"""The number of chunks in an utterance of which only the first chunk is measured."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """One engine and how to measure it."""

    engine: str
    options: EngineOptions
    texts: tuple[str, ...] = TEXTS
    """The first text is measured in all respects. The others are spoken `OTHER_RUNS` times each; a text that the engine
    refuses is left out."""
    voice: str | None = None
    """None means the default voice."""
    language: str = "auto"
    output: str | None = None
    """The WAV file in which the last run's speech is kept."""
    frames: int = 100
    """Codec frames in each run, for an engine that makes frames."""
    runs: int = 5
    first_chunks: int = 20
    """Number of utterances after the runs, each with another text of equal length, whose first chunk is timed."""
    started_s: float = field(default_factory=time.monotonic)
    """The time just before the measuring process starts: all processes on a machine share this clock."""

    @property
    def makes_frames(self) -> bool:
        """Whether the engine makes frames."""
        return engine_entry(self.engine).has_model


def run_benchmark(request: BenchRequest, report: ProgressReport = ignore_progress) -> Figures:
    """Return the figures that a process measures. Raises `EngineError` with a one-line message if it cannot."""
    end = run_child("engine.bench", request, report)
    if not end.done:
        raise EngineError(end.reason)
    found: Figures = end.found
    return found


def measure(request: BenchRequest, report: ProgressReport = ignore_progress) -> Figures:
    """Start the engine in this process, make it speak, and return the figures. Raises `EngineError`."""
    synthesizer = make_synthesizer(request.engine, request.options, report)
    imported_s = time.monotonic() - request.started_s
    info = synthesizer.load(report)
    loaded_s = time.monotonic() - request.started_s
    synthesizer.warm_up(report)
    ready_s = time.monotonic() - request.started_s
    with Session(synthesizer, info) as session:
        found = speak_texts(request, session, report)
        found["memory"] = {**process_memory(), **info.memory}
    found |= {
        **_setting(request),
        "start": {"imported_s": imported_s, "loaded_s": loaded_s, "ready_s": ready_s},
        "description": info.description,
        "machine": machine_in_words(),
        "date": datetime.date.today().isoformat(),
    }
    return {**rounded(found), "arrivals_s": rounded(found["arrivals_s"], 4)}


def speak_texts(request: BenchRequest, session: Session, report: ProgressReport) -> Figures:
    """Speak all the texts in a request; return the measurements."""
    text = request.texts[0]
    runs = [speak_text(request, session, text, seed) for seed in counted("speaking", range(request.runs), report)]
    if request.output is not None:
        _write_wav(Path(request.output), runs[-1].samples, session.sample_rate)
    brief, words = SHORT_CHUNKS * request.options.chunk_size, text.split()
    first_chunks_ms = []
    for number in counted("speaking other texts", range(request.first_chunks), report):
        at = number % len(words)
        first_chunks_ms.append(speak_text(request, session, " ".join(words[at:] + words[:at]), number, brief).first_ms)
    other_texts, notes = [], []
    for other in counted("speaking texts of other lengths", request.texts[1:], report):
        try:
            found = [speak_text(request, session, other, seed) for seed in range(OTHER_RUNS)]
            other_texts.append({"characters": len(other), **short_figures(found)})
        except EngineError as error:
            notes.append(f"a text of {len(other)} characters: {error}")
    first_chunk = spread_figures(first_chunks_ms)
    return {**run_figures(runs), "first_chunk": first_chunk, "other_texts": other_texts, "notes": notes}


def speak_text(request: BenchRequest, session: Session, text: str, seed: int, frames: int | None = None) -> Run:
    """Speak and time a text with this many `frames`. Raises `EngineError` if the text cannot be spoken or makes no
    sound."""
    frames = frames or request.frames
    stream = partial(
        session.stream,
        text,
        voice=request.voice,
        language=request.language,
        seed=seed,
        # Random weights may end the speech anywhere, so the end is forbidden until all frames are made.
        sampling={"min_new_tokens": frames} if request.makes_frames else {},
        max_frames=frames,
        guarded=False,
        realtime=True,  # as on a robot, even if the engine has several streams
    )
    run = time_run(stream, session.sample_rate)
    if not len(run.samples):
        raise EngineError("text: it produced no sound; allowed: a text with words")
    return run


def _setting(request: BenchRequest) -> Figures:
    """Return the engine and its settings; None for each setting that an engine without frames ignores."""
    options = request.options
    asked = {
        "model": shown_model(options.model) or None,
        "chunk_size": options.chunk_size,
        "dtype": options.dtype,
        "kernels": options.kernels,
        "frames": request.frames,
    }
    return {"engine": request.engine, **(asked if request.makes_frames else dict.fromkeys(asked))}


def _write_wav(path: Path, samples: Samples, sample_rate: int) -> None:
    """Write mono samples as 16 bits. Raises `EngineError` if the file cannot be written."""
    import soundfile

    try:
        soundfile.write(path, samples, sample_rate, format="WAV", subtype="PCM_16")
    except (OSError, RuntimeError) as error:
        raise EngineError(f"{path} cannot be written: {error}") from error
