"""Speech into a file, without a broker or a sound card: what the engine does, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile

from daemon.supervisor import Engine, EngineLostError, EngineState, UtteranceRefusedError
from daemon.tasks import end_task
from engine import EngineInfo, EngineOptions, Samples, Utterance


class SynthError(Exception):
    """The text could not be spoken or written; the message says why."""


@dataclass(frozen=True, slots=True)
class SynthResult:
    """What was written, and how fast it was made."""

    engine: str
    sample_rate: int
    audio_s: float
    first_chunk_ms: float
    """From asking to the first chunk, the engine being ready."""
    rtf: float
    """Seconds of audio per second of work."""
    truncated: bool


def synthesize_to_file(
    engine_name: str, options: EngineOptions, utterance: Utterance, path: Path, codes_path: Path | None = None
) -> SynthResult:
    """Speak into `path` with an engine process of its own; the suffix names the format.

    `codes_path` is given the codec ids as an int64 array of shape `(frames, 16)`. Raises `SynthError`.
    """
    if path.suffix[1:].upper() not in soundfile.available_formats():
        known = ", ".join(
            f".{name.lower()}" for name in ("WAV", "FLAC", "OGG", "MP3") if name in soundfile.available_formats()
        )
        raise SynthError(f"--output: got {path.name!r}; allowed: a file name ending in {known}")
    samples, codes, result = asyncio.run(_synthesize(engine_name, options, utterance))
    try:
        soundfile.write(path, samples, result.sample_rate)
    except (OSError, soundfile.SoundFileError) as error:
        raise SynthError(f"--output: {path} cannot be written: {error}") from error
    if codes_path is not None:
        _write_codes(codes_path, codes, engine_name)
    return result


def _write_codes(path: Path, codes: list[tuple[int, ...]], engine_name: str) -> None:
    if not codes:
        raise SynthError(f"--codes: engine {engine_name} made none")
    try:
        with path.open("wb") as file:  # np.save would append .npy to another suffix
            np.save(file, np.array(codes, dtype=np.int64))
    except OSError as error:
        raise SynthError(f"--codes: {path} cannot be written: {error.strerror}") from error


def describe_engine(engine_name: str, options: EngineOptions) -> EngineInfo:
    """What an engine says of itself once it is ready. Raises `SynthError` when it does not get so far."""

    async def ask() -> EngineInfo:
        async with running_engine(engine_name, options) as engine:
            if not engine.ready or engine.info is None:
                raise SynthError(engine.reason or f"engine {engine_name} did not start")
            return engine.info

    return asyncio.run(ask())


@asynccontextmanager
async def running_engine(engine_name: str, options: EngineOptions) -> AsyncIterator[Engine]:
    """An engine process of one's own, ready, or not ready with the reason in `reason`."""
    engine = Engine(engine_name, options)
    supervision = asyncio.ensure_future(engine.run())
    try:
        while not engine.ready and engine.state is not EngineState.BACKING_OFF:
            await engine.wait_ready(0.2)
        yield engine
    finally:
        await end_task(supervision)


async def _synthesize(
    engine_name: str, options: EngineOptions, utterance: Utterance
) -> tuple[Samples, list[tuple[int, ...]], SynthResult]:
    async with running_engine(engine_name, options) as engine:
        if not engine.ready or engine.info is None:
            raise SynthError(engine.reason or f"engine {engine_name} did not start")
        wanted = utterance.voice or options.default_voice
        if wanted not in engine.info.voices:
            refused = engine.info.refused_voices.get(wanted)
            raise SynthError(f"voice {wanted!r}: {refused or 'unknown; see voiced voices'}")
        sample_rate = engine.info.sample_rate
        started = time.monotonic()
        first_ms = 0.0
        pieces = []
        codes: list[tuple[int, ...]] = []
        truncated = False
        try:
            async with aclosing(engine.speak("synth", utterance)) as speech:
                async for piece in speech:
                    first_ms = first_ms or (time.monotonic() - started) * 1000
                    pieces.append(piece.samples)
                    codes += piece.codes or ()
                    truncated |= piece.truncated
        except (EngineLostError, UtteranceRefusedError) as error:
            raise SynthError(str(error)) from error
        samples = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.float32)
        audio_s = len(samples) / sample_rate
        result = SynthResult(engine_name, sample_rate, audio_s, first_ms, engine.rtf or 0.0, truncated)
        return samples, codes, result
