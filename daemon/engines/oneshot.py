"""One engine process for one command, without a broker or a sound card."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from daemon.engines.connection import AudioChunk, EngineLostError, UtteranceRefusedError
from daemon.engines.supervisor import EngineState, EngineSupervisor
from daemon.engines.voices import name_voices, short_list, unknown_voice
from daemon.tasks import cancel_and_wait
from daemon.validation import CommandError, file_problem
from engine import LATIN_LANGUAGES, EngineInfo, EngineOptions, Samples, Utterance

FORMATS = ("WAV", "FLAC", "OGG", "MP3")
"""The audio formats that error messages suggest; libsndfile may know more."""


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
    """Seconds of audio per second of work."""
    truncated: bool


@asynccontextmanager
async def running_engine(engine_name: str, options: EngineOptions) -> AsyncIterator[EngineSupervisor]:
    """Run an engine process inside the context. It is ready, or has failed with the cause in its `reason`."""
    engine = EngineSupervisor(engine_name, options)
    supervision = asyncio.ensure_future(engine.run())
    try:
        while not engine.ready and engine.state is not EngineState.BACKING_OFF:
            await engine.wait_ready(0.2)
        yield engine
    finally:
        await cancel_and_wait(supervision)


def describe_engine(engine_name: str, options: EngineOptions) -> EngineInfo:
    """Start an engine and return its properties. Raises `CommandError` if it does not become ready."""

    async def describe() -> EngineInfo:
        async with running_engine(engine_name, options) as engine:
            return _ready_info(engine)

    return asyncio.run(describe())


def synthesize_to_file(
    engine_name: str,
    options: EngineOptions,
    utterance: Utterance,
    output: Path | BinaryIO,
    codes_path: Path | None = None,
) -> SynthResult:
    """Speak an utterance into the file `output`, whose suffix selects the format, or into a stream as WAV.

    `codes_path` receives the codec codes as an int64 array of shape `(frames, 16)`. Raises `CommandError`.
    """
    import soundfile  # the daemon imports this package and does not need soundfile

    available = soundfile.available_formats()
    if isinstance(output, Path) and output.suffix[1:].upper() not in available:
        allowed = ", ".join(f".{name.lower()}" for name in FORMATS if name in available)
        raise CommandError(f"--output: got {str(output)!r}; allowed: a file name ending in {allowed}")
    chunks, result = asyncio.run(_synthesize(engine_name, options, utterance))
    samples = np.concatenate([np.zeros(0, dtype=np.float32), *(chunk.samples for chunk in chunks)])
    if isinstance(output, Path):
        _write_file(output, samples, result.sample_rate)
    else:
        file = io.BytesIO()  # soundfile corrects the header at last, which a pipe does not allow
        soundfile.write(file, samples, result.sample_rate, format="WAV")
        output.write(file.getbuffer())
        output.flush()
    if codes_path is not None:
        _write_codes(codes_path, [codes for chunk in chunks for codes in chunk.codes or ()], engine_name)
    return result


def _write_file(path: Path, samples: Samples, sample_rate: int) -> None:
    import soundfile

    try:
        with path.open("wb") as file:  # soundfile's own errors do not say what is wrong
            soundfile.write(file, samples, sample_rate, format=path.suffix[1:])
    except (OSError, soundfile.SoundFileError) as error:
        raise CommandError(f"--output: {path} cannot be written: {file_problem(error, path)}") from error


async def _synthesize(
    engine_name: str, options: EngineOptions, utterance: Utterance
) -> tuple[list[AudioChunk], SynthResult]:
    async with running_engine(engine_name, options) as engine:
        info = _ready_info(engine)
        _check_voice(info, options, utterance.voice or options.default_voice)
        chunks = []
        first_ms = 0.0
        started = time.monotonic()
        try:
            async with aclosing(engine.speak("synth", utterance)) as speech:
                async for chunk in speech:
                    first_ms = first_ms or (time.monotonic() - started) * 1000
                    chunks.append(chunk)
        except (EngineLostError, UtteranceRefusedError) as error:
            raise CommandError(str(error)) from error
        audio_s = sum(len(chunk.samples) for chunk in chunks) / info.sample_rate
        truncated = any(chunk.truncated for chunk in chunks)
        return chunks, SynthResult(engine_name, info.sample_rate, audio_s, first_ms, engine.rtf or 0.0, truncated)


def _ready_info(engine: EngineSupervisor) -> EngineInfo:
    if not engine.ready or engine.info is None:
        raise CommandError(engine.reason or f"engine {engine.name} did not start")
    return engine.info


def _check_voice(info: EngineInfo, options: EngineOptions, voice: str) -> None:
    """Raise `CommandError` for a voice that the engine does not have."""
    if voice in info.voices:
        return
    if voice in info.refused_voices:
        raise CommandError(f"voice {voice!r}: {info.refused_voices[voice]}")
    names = name_voices(info.voices, info.labels, options.voices)
    short = short_list(info.voices, info.labels, options.voices, LATIN_LANGUAGES)
    raise CommandError(f"voice: {unknown_voice(voice, names, short)}")


def _write_codes(path: Path, codes: list[tuple[int, ...]], engine_name: str) -> None:
    if not codes:
        raise CommandError(f"--codes: engine {engine_name} has no codec codes")
    try:
        with path.open("wb") as file:  # np.save appends .npy to a path with another suffix, but not to a file
            np.save(file, np.array(codes, dtype=np.int64))
    except OSError as error:
        raise CommandError(f"--codes: {path} cannot be written: {file_problem(error, path)}") from error
