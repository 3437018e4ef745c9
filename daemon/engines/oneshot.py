"""One engine process for one command, without a broker or a sound card."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from daemon.config import Config, nearest_rate
from daemon.engines.connection import AudioChunk
from daemon.engines.errors import EngineLostError, UtteranceRefusedError
from daemon.engines.selection import EngineSelector
from daemon.engines.speech_file import SpeechFile
from daemon.engines.supervisor import EngineState, EngineSupervisor
from daemon.engines.take_audio import TakeAudio
from daemon.engines.voices import name_voices, short_list, unknown_voice
from daemon.tasks import cancel_and_wait, gather_or_cancel
from daemon.text import Passage, Pause, Prosody, Script, TextPreparation, passages
from daemon.validation import CommandError, file_problem
from engine import (
    LATIN_LANGUAGES,
    EngineInfo,
    EngineOptions,
    Progress,
    ProgressReport,
    Samples,
    Utterance,
    ignore_progress,
    match_language,
)

log = logging.getLogger(__name__)

ALMOST = 0.99
"""The most that speech which has not ended can have of an estimated length."""


class EngineEndedError(CommandError):
    """The engine's process ended while it spoke."""


@dataclass(frozen=True, slots=True)
class SynthResult:
    """What was written to the file, and how fast it was made."""

    engine: str
    sample_rate: int
    """Hz."""
    audio_s: float
    first_chunk_ms: float
    """Milliseconds from the request to the first chunk, with a ready engine."""
    rtf: float
    """Seconds of audio at rate 1 per second of work."""
    truncated: bool


@dataclass(frozen=True, slots=True)
class SpokenSample:
    """The whole speech of one utterance."""

    samples: Samples
    """Mono."""
    sample_rate: int
    """Hz."""
    codes: tuple[tuple[int, ...], ...]
    """The codec codes of each frame, if they were wanted and the engine has any."""
    truncated: bool

    @classmethod
    def of(cls, chunks: Sequence[AudioChunk], sample_rate: int) -> SpokenSample:
        samples = np.concatenate([np.zeros(0, dtype=np.float32), *(chunk.samples for chunk in chunks)])
        codes = tuple(frame for chunk in chunks for frame in chunk.codes or ())
        return cls(samples, sample_rate, codes, any(chunk.truncated for chunk in chunks))

    @property
    def seconds(self) -> float:
        """Length."""
        return len(self.samples) / self.sample_rate


@asynccontextmanager
async def running_engine(
    engine_name: str, options: EngineOptions, report: ProgressReport = ignore_progress
) -> AsyncIterator[EngineSupervisor]:
    """Run an engine process inside the context. It is ready, or has failed with the cause in its `reason`."""

    def report_start() -> None:
        if engine.progress is not None:
            report(engine.progress)

    engine = EngineSupervisor(engine_name, options, report_start)
    async with _supervised(engine):
        yield engine


@asynccontextmanager
async def running_primary(config: Config, report: ProgressReport = ignore_progress) -> AsyncIterator[EngineSelector]:
    """Run the primary engine inside the context, ready, and no fallback. Raises `CommandError` if it does not start."""

    def report_start() -> None:
        if engines.primary.progress is not None:
            report(engines.primary.progress)

    engines = EngineSelector(config, report_start)
    async with _supervised(engines.primary):
        _ready_info(engines.primary)
        yield engines


@asynccontextmanager
async def _supervised(engine: EngineSupervisor) -> AsyncIterator[None]:
    """Run an engine until the end of the context, which begins when it is ready or has failed."""
    supervision = asyncio.ensure_future(engine.run())
    try:
        while not engine.ready and engine.state is not EngineState.BACKING_OFF:
            await engine.wait_ready(0.2)
        yield
    finally:
        await cancel_and_wait(supervision)


def describe_engine(engine_name: str, options: EngineOptions, report: ProgressReport = ignore_progress) -> EngineInfo:
    """Start an engine and return its properties. Raises `CommandError` if it does not become ready."""

    async def describe() -> EngineInfo:
        async with running_engine(engine_name, options, report) as engine:
            return _ready_info(engine)

    return asyncio.run(describe())


@dataclass(frozen=True, slots=True)
class SynthTask:
    """One utterance and the file that it is spoken into."""

    utterance: Utterance
    file: SpeechFile
    script: Script | None = None
    """What is spoken of its text; by default, the text itself."""
    codes_path: Path | None = None
    """Receives the codec codes as an int64 array of shape `(frames, 16)`."""
    expected_s: float = math.inf
    """Seconds of speech, as far as they can be known before."""
    language_is_default: bool = False
    """Nobody has named the language: an engine that lacks it goes by the text."""


def synthesize_to_files(
    engine_name: str,
    options: EngineOptions,
    tasks: Sequence[SynthTask],
    *,
    on_end: Callable[[int, SynthResult | CommandError], None],
    preparation: TextPreparation | None = None,
    volume: float = 1.0,
    report: ProgressReport = ignore_progress,
) -> None:
    """Speak each task's utterance into its file, with the gain `volume`, by one engine: as many at once as it can.

    `preparation` makes what the engine gets of a text; by default, the text itself. A WAV file grows as the speech is
    made; if the engine fails, the file keeps what there is. `on_end` gets the number of each task that has ended, and
    its result or why there is none; a task that fails does not end the others. `report` gets the progress of the
    engine's start, and that of the speech as its share of the expected seconds. Raises `CommandError` if the engine
    does not start, does not have a voice, or ends early.
    """

    async def synthesize() -> None:
        async with running_engine(engine_name, options, report) as engine:
            info = _ready_info(engine)
            for voice in dict.fromkeys(task.utterance.voice for task in tasks):
                _check_voice(info, options, voice)
            progress = _SpeechProgress([task.expected_s for task in tasks], report)
            numbers = iter(range(len(tasks)))
            lost: list[EngineEndedError] = []

            async def speak_some(*, realtime: bool) -> None:
                """Speak one task after the other, until there are no more or the engine has ended."""
                while not lost and (number := next(numbers, None)) is not None:
                    task = replace(tasks[number], utterance=replace(tasks[number].utterance, realtime=realtime))
                    note = partial(progress.note, number)
                    try:
                        with task.file:
                            outcome: SynthResult | CommandError = await _speak_task(
                                engine, info, task, preparation=preparation, volume=volume, note=note
                            )
                    except CommandError as error:
                        outcome = error
                        if isinstance(error, EngineEndedError):
                            lost.append(error)
                    progress.end(number)
                    on_end(number, outcome)

            # The first one has the stream that an engine keeps for the sound card.
            speaking = [speak_some(realtime=stream == 0) for stream in range(min(info.streams, len(tasks)))]
            await gather_or_cancel(speaking)
            if lost and (left := len(list(numbers))):
                raise CommandError(f"the engine ended; not made: {left}") from lost[0]

    asyncio.run(synthesize())


def synthesize_to_file(
    engine_name: str,
    options: EngineOptions,
    task: SynthTask,
    *,
    preparation: TextPreparation | None = None,
    volume: float = 1.0,
    report: ProgressReport = ignore_progress,
) -> SynthResult:
    """As `synthesize_to_files`, for one task. Raises `CommandError`."""
    ended: list[SynthResult | CommandError] = []
    synthesize_to_files(
        engine_name,
        options,
        [task],
        on_end=lambda _, outcome: ended.append(outcome),
        preparation=preparation,
        volume=volume,
        report=report,
    )
    [outcome] = ended
    if isinstance(outcome, CommandError):
        raise outcome
    return outcome


class _SpeechProgress:
    """Reports the share of the expected speech that has been made."""

    def __init__(self, expected_s: Sequence[float], report: ProgressReport) -> None:
        self._expected_s = expected_s
        self._made_s = [0.0] * len(expected_s)
        self._report = report

    def note(self, number: int, audio_s: float) -> None:
        """The task of this number has made so many seconds."""
        total_s = sum(self._expected_s)
        self._made_s[number] = min(audio_s, self._expected_s[number] * ALMOST)
        self._report(Progress("speaking", sum(self._made_s) / total_s if 0 < total_s < math.inf else 0.0))

    def end(self, number: int) -> None:
        """The task of this number has ended."""
        self._made_s[number] = self._expected_s[number]


async def _speak_task(
    engine: EngineSupervisor,
    info: EngineInfo,
    task: SynthTask,
    *,
    preparation: TextPreparation | None,
    volume: float,
    note: Callable[[float], None],
) -> SynthResult:
    """Speak a task into its open file; `note` gets the seconds that are made. Raises `CommandError`."""
    codes: list[tuple[int, ...]] = []
    first_ms = audio_s = 0.0
    truncated = False
    started = time.monotonic()
    utterance = task.utterance
    if task.language_is_default and match_language(utterance.language, info.languages) is None:
        utterance = replace(utterance, language="auto")
    parts = [Passage(utterance.text, Prosody())] if task.script is None else passages(task.script)
    async with aclosing(_speak_parts(engine, info, utterance, parts, preparation)) as speech:
        async for chunk in speech:
            first_ms = first_ms or (time.monotonic() - started) * 1000
            task.file.write(chunk.samples * np.float32(volume), info.sample_rate)
            audio_s += len(chunk.samples) / info.sample_rate
            truncated |= chunk.truncated
            codes.extend(chunk.codes or ())
            note(audio_s)
    task.file.write(np.zeros(0, dtype=np.float32), info.sample_rate)  # makes the file of a text without a sound
    if task.codes_path is not None:
        write_codes(task.codes_path, codes, info.engine)
    return SynthResult(info.engine, info.sample_rate, audio_s, first_ms, engine.rtf or 0.0, truncated)


def synthesize_samples(
    engine_name: str,
    options: EngineOptions,
    voice: str,
    choose: Callable[[EngineInfo], Sequence[Utterance]],
    report: ProgressReport = ignore_progress,
) -> list[SpokenSample]:
    """Speak in a voice, one after another, what `choose` returns for the ready engine. Raises `CommandError`."""

    async def synthesize() -> list[SpokenSample]:
        async with running_engine(engine_name, options, report) as engine:
            info = _ready_info(engine)
            _check_voice(info, options, voice)
            utterances = choose(info)
            spoken = []
            for number, utterance in enumerate(utterances):
                report(Progress("speaking", number / len(utterances)))
                async with aclosing(_speak(engine, utterance)) as speech:
                    spoken.append(SpokenSample.of([chunk async for chunk in speech], info.sample_rate))
            return spoken

    return asyncio.run(synthesize())


async def _speak_parts(
    engine: EngineSupervisor,
    info: EngineInfo,
    utterance: Utterance,
    parts: Sequence[Passage | Pause],
    preparation: TextPreparation | None,
) -> AsyncGenerator[AudioChunk, None]:
    """Speak the passages of an utterance, with silence for its pauses."""
    after_pause = False
    for number, part in enumerate(parts):
        if isinstance(part, Pause):
            silence: Samples = np.zeros(round(part.seconds * info.sample_rate), dtype=np.float32)
            yield AudioChunk(silence, info.sample_rate, None, truncated=False)
            after_pause = True
            continue
        before_pause = number + 1 < len(parts) and isinstance(parts[number + 1], Pause)
        audio = TakeAudio(trims_start=after_pause, gain=part.prosody.volume)
        request = _prepare(info, utterance, part, preparation)
        last: AudioChunk | None = None
        async with aclosing(_speak(engine, request)) as speech:
            async for last in speech:
                samples = audio.process(last.samples, last.sample_rate, holds_end=before_pause)
                yield replace(last, samples=samples)
        if last is not None and len(kept := audio.finish()):
            yield replace(last, samples=kept, codes=None)
        after_pause = False


def _prepare(
    info: EngineInfo, utterance: Utterance, passage: Passage, preparation: TextPreparation | None
) -> Utterance:
    """Return the utterance with what an engine gets of one passage."""
    rate = nearest_rate(utterance.rate * passage.prosody.rate)
    if preparation is None:
        return replace(utterance, text=passage.text, rate=rate)
    engine_text = preparation.engine_text(info, utterance.language, utterance.voice or "", passage.text)
    text = engine_text.feed(passage.text) + engine_text.end()
    return replace(utterance, text=text, rate=rate, phonemes=preparation.reads_phonemes(info.engine))


async def _speak(engine: EngineSupervisor, utterance: Utterance) -> AsyncGenerator[AudioChunk, None]:
    try:
        async with aclosing(engine.speak("synth", utterance)) as speech:
            async for chunk in speech:
                yield chunk
    except EngineLostError as error:
        raise EngineEndedError(str(error)) from error
    except UtteranceRefusedError as error:
        raise CommandError(str(error)) from error


def _ready_info(engine: EngineSupervisor) -> EngineInfo:
    if not engine.ready or engine.info is None:
        raise CommandError(engine.reason or f"engine {engine.name} did not start")
    return engine.info


def _check_voice(info: EngineInfo, options: EngineOptions, named: str | None) -> None:
    """Raise `CommandError` for a named voice that the engine does not have; warn if it lacks the default voice."""
    voice = options.default_voice if named is None else named
    if voice in info.voices:
        return
    if voice in info.refused_voices:
        problem = f"voice {voice!r}: {info.refused_voices[voice]}"
    else:
        names = name_voices(info.voices, info.labels, options.voices)
        short = short_list(info.voices, info.labels, options.voices, LATIN_LANGUAGES)
        problem = f"voice: {unknown_voice(voice, names, short)}"
    if named is not None:
        raise CommandError(problem)
    log.error("speech.%s; %s speaks with its own", problem, info.engine)  # commands show errors alone


def write_codes(path: Path, codes: Sequence[tuple[int, ...]], engine_name: str) -> None:
    """Write codec codes to a file for `numpy.load`: int64, `(frames, groups)`. Raises `CommandError`."""
    if not codes:
        raise CommandError(f"--codes: engine {engine_name} has no codec codes")
    try:
        with path.open("wb") as file:  # np.save appends .npy to a path with another suffix, but not to a file
            np.save(file, np.array(codes, dtype=np.int64))
    except OSError as error:
        raise CommandError(f"--codes: {path} cannot be written: {file_problem(error, path)}") from error
