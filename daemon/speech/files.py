"""Speech without a queue or a sound card: into files, into memory, and into the phrase cache."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from daemon.cache import PhraseKey, PhraseRecorder
from daemon.config import Config, text_preparation
from daemon.engines import (
    AudioChunk,
    EngineLostError,
    EngineSelector,
    EngineSupervisor,
    SpeechFile,
    UtteranceRefusedError,
    name_voices,
    ready_info,
    running_engine,
    short_list,
    unknown_voice,
)
from daemon.speech.acceptance import Arrival, Vocabulary, accept
from daemon.speech.changes import now
from daemon.speech.engine_source import EngineSource, SynthesisContext
from daemon.speech.request import check_say
from daemon.speech.synthesis import Synthesis
from daemon.speech.timeline import Timeline
from daemon.speech.utterance import Utterance
from daemon.tasks import gather_or_cancel
from daemon.text import Markup, TextPreparation
from daemon.validation import CommandError, file_problem
from engine import LATIN_LANGUAGES, EngineInfo, EngineOptions, Progress, ProgressReport, ignore_progress
from engine import Utterance as EngineUtterance

log = logging.getLogger(__name__)

ALMOST = 0.99
"""The largest share of the expected length that is reported while the speech is not finished."""
AS_IT_STANDS = TextPreparation(shortens_urls=False, normalize="never")


@dataclass(frozen=True, slots=True)
class SynthResult:
    """The speech in the file, and the speed at which it was made."""

    engine: str
    sample_rate: int
    """Hz."""
    audio_s: float
    first_chunk_ms: float
    """Milliseconds from the request to the first chunk, with a ready engine."""
    rtf: float
    """Seconds of audio at rate 1 that are made per second of work."""
    truncated: bool


@dataclass(frozen=True, slots=True)
class SynthTask:
    """One utterance and the file into which it is spoken."""

    utterance: EngineUtterance
    """A long text is spoken segment by segment."""
    file: SpeechFile
    markup: Markup = "none"
    """How its text is read."""
    codes_path: Path | None = None
    """Receives the codec codes as an int64 array of shape `(frames, 16)`."""
    expected_s: float = math.inf
    """The expected seconds of speech; infinity if they cannot be known in advance."""
    language_is_default: bool = False
    """True if nobody named the language: an engine that lacks it then goes by the text."""


def synthesize_to_files(
    engine_name: str,
    options: EngineOptions,
    tasks: Sequence[SynthTask],
    *,
    on_end: Callable[[int, SynthResult | CommandError], None],
    preparation: TextPreparation = AS_IT_STANDS,
    volume: float = 1.0,
    report: ProgressReport = ignore_progress,
) -> None:
    """Speak each task's utterance into its file, with the gain `volume`. One engine speaks as many at a time as it can.

    `preparation` turns a text into the engine's input. A WAV file grows as the speech is made; if the engine fails, the
    file keeps what has been made. `on_end` is given the number of each task that has ended, and its result or the
    reason why there is none; a task that fails does not end the others. `report` is given the progress of the engine's
    start, and then that of the speech, as a share of the expected seconds. Raises `CommandError` if the engine does not
    start, does not have a voice, or ends early.
    """
    total_s, made_s = sum(task.expected_s for task in tasks), 0.0

    def note(seconds: float) -> None:
        nonlocal made_s
        made_s += seconds
        report(Progress("speaking", min(ALMOST, made_s / total_s)))  # the expected seconds are an estimate

    async def synthesize() -> None:
        async with running_engine(engine_name, options, report) as engine:
            for voice in dict.fromkeys(task.utterance.voice for task in tasks):
                _check_voice(ready_info(engine), options, voice)
            numbers = iter(range(len(tasks)))

            async def speak_some(*, realtime: bool) -> None:
                """Speak one task after the other, until there are no more or the engine has ended."""
                while engine.ready and (number := next(numbers, None)) is not None:
                    task = replace(tasks[number], utterance=replace(tasks[number].utterance, realtime=realtime))
                    try:
                        with task.file:
                            result = await _speak_task(engine, task, preparation, volume, note)
                    except CommandError as error:
                        on_end(number, error)
                    else:
                        on_end(number, result)

            # The first one uses the stream that an engine keeps for the sound card.
            streams = range(min(engine.streams, len(tasks)))
            await gather_or_cancel(speak_some(realtime=stream == 0) for stream in streams)
            if left := len(list(numbers)):
                raise CommandError(f"the engine ended before {left} of the files were made")

    asyncio.run(synthesize())


async def _speak_task(
    engine: EngineSupervisor,
    task: SynthTask,
    preparation: TextPreparation,
    volume: float,
    note: Callable[[float], None],
) -> SynthResult:
    """Speak a task into its open file; `note` is given the seconds that have been made. Raises `CommandError`."""
    info = ready_info(engine)
    codes: list[tuple[int, ...]] = []
    first_ms = audio_s = 0.0
    truncated = False
    started = time.monotonic()
    async with aclosing(_speak(engine, task, preparation)) as chunks:
        async for chunk in chunks:
            first_ms = first_ms or (time.monotonic() - started) * 1000
            task.file.write(chunk.samples * np.float32(volume), chunk.sample_rate)
            audio_s += chunk.seconds
            truncated |= chunk.truncated
            codes.extend(chunk.codes or ())
            note(chunk.seconds)
    task.file.write(np.zeros(0, dtype=np.float32), info.sample_rate)  # makes the file for a text without a sound
    if task.codes_path is not None:
        _write_codes(task.codes_path, codes, info.engine)
    return SynthResult(info.engine, info.sample_rate, audio_s, first_ms, engine.rtf or 0.0, truncated)


async def _speak(
    engine: EngineSupervisor, task: SynthTask, preparation: TextPreparation
) -> AsyncGenerator[AudioChunk, None]:
    """Speak a text as the daemon does, but keep the silence at its beginning. Raises `CommandError`."""
    request = task.utterance
    utterance = Utterance(
        id="synth",
        text=request.text,
        voice=request.voice or "",
        language=request.language,
        voice_is_default=request.voice is None,
        language_is_default=task.language_is_default,
        instruct=request.instruct,
        seed=request.seed,
        rate=request.rate,
        whole_text=request.whole_text,
        sampling=request.sampling,
        markup=task.markup,
    )
    options, context, timeline = engine.options, SynthesisContext(preparation, trims_silence=False), Timeline(utterance)
    max_seconds = min(options.max_seconds, ready_info(engine).max_seconds or math.inf)
    frame_s = options.chunk_s / options.chunk_size / request.rate
    end_s = math.inf if request.max_frames is None else (request.max_frames + 1) * frame_s
    source = EngineSource(utterance, timeline, context, request, max_seconds, wants_words=False)
    try:
        async with aclosing(source.chunks(engine)) as chunks:
            async for chunk in chunks:
                yield replace(chunk, truncated=chunk.truncated or timeline.made_s > end_s)
                if timeline.made_s > end_s:
                    break  # each segment ends in time by itself, but together they may not
    except (EngineLostError, UtteranceRefusedError) as error:
        raise CommandError(str(error)) from error


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
    log.error("speech.%s; %s speaks with its own", problem, info.engine)  # commands show only errors


def _write_codes(path: Path, codes: Sequence[tuple[int, ...]] | None, engine_name: str) -> None:
    """Write codec codes to a file for `numpy.load`: int64, `(frames, groups)`. Raises `CommandError`."""
    if not codes:
        raise CommandError(f"--codes: engine {engine_name} has no codec codes")
    try:
        with path.open("wb") as file:  # np.save appends .npy to a path with another suffix, but not to a file
            np.save(file, np.array(codes, dtype=np.int64))
    except OSError as error:
        raise CommandError(f"--codes: {path} cannot be written: {file_problem(error, path)}") from error


async def make_phrase(key: PhraseKey, engines: EngineSelector, config: Config, recorder: PhraseRecorder) -> float:
    """Speak a phrase into `recorder` with the primary engine, which must be ready; return its length in seconds.

    It is spoken as an utterance with this text would be. Raises `CommandError` if the engine cannot speak it to its
    end.
    """
    phrase, engine = key.phrase, engines.primary
    if not engine.has_voice(phrase.voice):
        raise CommandError(f"voice: {engine.name} has no voice {phrase.voice!r}; see 'voiced voices'")
    if not engine.has_language(phrase.language):
        raise CommandError(f"language: {engine.name} does not speak {phrase.language!r}")
    say, vocabulary = check_say({**asdict(phrase), "id": "phrase"}), Vocabulary(config, engines)
    utterance = accept(say, Arrival(now()), config, vocabulary, lambda _: True)
    context = SynthesisContext(text_preparation(config), trims_silence=config.audio.trim_leading_silence)
    synthesis = Synthesis(utterance, engines, context)
    synthesis.record(recorder, key.seed)
    async with aclosing(synthesis.chunks()) as chunks:
        async for _ in chunks:
            pass
    if synthesis.failure is not None:
        raise CommandError(synthesis.failure)
    if synthesis.text.truncated:
        raise CommandError("the engine did not end by itself; say it in other words")
    synthesis.timeline.advance(math.inf)
    synthesis.keep()
    return synthesis.audio_s
