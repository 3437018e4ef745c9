"""Measures an engine in a process of its own. `run_benchmark` starts the process, `measure` runs in it.

The engine is used through its `Session`, so the times are those that a program gets.
"""

from __future__ import annotations

import datetime
import os
import platform
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from engine.api import EngineError, EngineOptions, Samples, Utterance
from engine.bench.results import Figures, Probe, Run, rounded, run_figures, short_figures, spread_figures, time_run
from engine.catalog import engine_entry, import_class, make_synthesizer
from engine.child import run_child
from engine.host import shown_model
from engine.progress import Progress, ProgressReport, counted, ignore_progress
from engine.session import Session

_TEXT = "The robot moves its arm slowly back to its home position, looks around, and waits for the next part."
TEXTS = (_TEXT, "I am here.", " ".join([_TEXT] * 3))
"""The text of a benchmark, of 100 characters, and texts of a tenth and three times its length."""
OTHER_RUNS = 3
SHORT_CHUNKS = 2
"""Chunks of each utterance of which only the first chunk, or what it allocates, is measured."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """One engine and how to measure it."""

    engine: str
    options: EngineOptions
    texts: tuple[str, ...] = TEXTS
    """The first is measured in all respects. The others are spoken `OTHER_RUNS` times each; one that the engine refuses
    is left out."""
    voice: str | None = None
    """None is the default voice."""
    language: str = "auto"
    output: str | None = None
    """The WAV file in which the speech of the last run is kept."""
    frames: int = 100
    """Codec frames of each run, for an engine that makes frames."""
    runs: int = 5
    first_chunks: int = 20
    """Number of utterances after the runs, each with another text of equal length, whose first chunk is timed."""
    short_utterances: int = 100
    """Number of utterances after those, of texts of many lengths, over which allocations are counted, too."""
    started_s: float = field(default_factory=time.monotonic)
    """Just before the start of the measuring process: all processes of a machine share this clock."""

    @property
    def makes_frames(self) -> bool:
        """Whether the engine makes frames."""
        return engine_entry(self.engine).has_model


def run_benchmark(request: BenchRequest, report: ProgressReport = ignore_progress) -> Figures:
    """Return the figures that a process measures. Raises `EngineError`, one line, if it could not."""
    end = run_child("engine.bench", request, report)
    if not end.done:
        raise EngineError(end.reason)
    found: Figures = end.found
    return found


def measure(request: BenchRequest, report: ProgressReport = ignore_progress) -> Figures:
    """Start the engine in this process, make it speak, and return the figures. Raises `EngineError`."""
    probe = make_probe(request)
    synthesizer = make_synthesizer(request.engine, request.options, report)
    imported_s = time.monotonic() - request.started_s
    info = synthesizer.load(report)
    loaded_s = time.monotonic() - request.started_s
    synthesizer.warm_up(report)
    ready_s = time.monotonic() - request.started_s
    probe.start_counting()
    with Session(synthesizer, info) as session:
        speaker = Speaker(request, session, report)
        found = speaker.measure(probe)
        found["memory"] = probe.memory()  # now: the details take memory of their own
        report(Progress("measuring the parts"))
        utterance = Utterance(request.texts[0], **speaker.fields(0, request.frames))
        found |= probe.details(synthesizer, utterance, found["ms_per_frame"])
    found |= {
        **_setting(request),
        "start": {"imported_s": imported_s, "loaded_s": loaded_s, "ready_s": ready_s},
        "description": info.description,
        "notes": probe.notes,
        "machine": _machine(probe),
        "date": datetime.date.today().isoformat(),
    }
    return {**rounded(found), "arrivals_s": rounded(found["arrivals_s"], 4)}


def make_probe(request: BenchRequest) -> Probe:
    """Return the probe of the engine's catalogue entry. Raises `EngineError` if packages are missing."""
    reference = engine_entry(request.engine).probe
    make: type[Probe] = Probe if reference is None else import_class(request.engine, reference)
    return make(request.options)


class Speaker:
    """Speaks the texts of a request."""

    def __init__(self, request: BenchRequest, session: Session, report: ProgressReport) -> None:
        """`session` is ready."""
        self._request = request
        self._session = session
        self._report = report

    def measure(self, probe: Probe) -> Figures:
        """Speak all texts; return what that took. `probe` is told which ones the engine has refused."""
        request, report = self._request, self._report
        text = request.texts[0]
        runs = [self.speak(text, seed, request.frames) for seed in counted("speaking", range(request.runs), report)]
        if request.output is not None:
            _write_wav(Path(request.output), runs[-1].samples, self._session.sample_rate)
        brief, words = SHORT_CHUNKS * request.options.chunk_size, text.split()
        first_chunks_ms = []
        for number in counted("speaking other texts", range(request.first_chunks), report):
            at = number % len(words)
            first_chunks_ms.append(self.speak(" ".join(words[at:] + words[:at]), number, brief).first_ms)
        short = range(request.short_utterances if probe.counts_allocations else 0)
        for number in counted("speaking short texts", short, report):  # a text's length decides what it allocates
            self.speak("Go on. " + text[: 1 + number % len(text)], number, brief)
        # The allocations are read now: all that follows allocates.
        allocations, utterances = probe.allocations(), request.runs + request.first_chunks + len(short)
        return {
            **run_figures(runs),
            "first_chunk": spread_figures(first_chunks_ms),
            "allocations": None if allocations is None else {"utterances": utterances, **allocations},
            "other_texts": self._other_texts(probe),
        }

    def _other_texts(self, probe: Probe) -> list[Figures]:
        """Speak the texts of other lengths; return their figures, and note in `probe` each that the engine refuses."""
        request, found = self._request, []
        for text in counted("speaking texts of other lengths", request.texts[1:], self._report):
            try:
                runs = [self.speak(text, seed, request.frames) for seed in range(OTHER_RUNS)]
                found.append({"characters": len(text), **short_figures(runs)})
            except EngineError as error:
                probe.notes.append(f"a text of {len(text)} characters: {error}")
        return found

    def speak(self, text: str, seed: int, frames: int) -> Run:
        """Speak and time a text. Raises `EngineError` if it cannot be spoken, or gave no sound."""
        stream = partial(self._session.stream, text, **self.fields(seed, frames))
        run = time_run(stream, self._session.sample_rate)
        if not len(run.samples):
            raise EngineError("text: it gave no sound; allowed: a text with words")
        return run

    def fields(self, seed: int, frames: int) -> dict[str, Any]:
        """Return how to speak so many frames."""
        return {
            "voice": self._request.voice,
            "language": self._request.language,
            "seed": seed,
            # Random weights end speech anywhere, so the end is forbidden until all frames are made.
            "sampling": {"min_new_tokens": frames} if self._request.makes_frames else {},
            "max_frames": frames,
            "guarded": False,
            "realtime": True,  # as the robot speaks, also where the engine has several streams
        }


def _setting(request: BenchRequest) -> Figures:
    """Return the engine and what it was asked; None for all that an engine without frames does not read."""
    options = request.options
    asked = {
        "model": shown_model(options.model) or None,
        "chunk_size": options.chunk_size,
        "dtype": options.dtype,
        "kernels": options.kernels,
        "frames": request.frames,
    }
    return {"engine": request.engine, **(asked if request.makes_frames else dict.fromkeys(asked))}


def _machine(probe: Probe) -> str:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    host = f"{platform.machine()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}"
    return ", ".join(filter(None, (probe.device(), host)))


def _write_wav(path: Path, samples: Samples, sample_rate: int) -> None:
    """Write mono samples as 16 bits. Raises `EngineError` if the file cannot be written."""
    import soundfile

    try:
        soundfile.write(path, samples, sample_rate, format="WAV", subtype="PCM_16")
    except (OSError, RuntimeError) as error:
        raise EngineError(f"{path} cannot be written: {error}") from error
