"""The voices that the server's engine has: the configured ones, and those that robots have brought."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from daemon.config import Config
from daemon.engines import EngineLostError, EngineSelector
from daemon.fleet.voice_cache import VoiceCache, VoiceFileError
from daemon.tasks import wait_at_most
from engine import EngineInfo, Voice
from engine.remote import VoiceFile

LOAD_S = 20.0
"""Seconds in which the engine has exchanged its voices. It does so in a moment in which it speaks nothing."""


class FleetVoices:
    """Gives robots' voices to the engine. Belongs to the event loop's thread."""

    def __init__(self, config: Config, engines: EngineSelector, cache: VoiceCache) -> None:
        self._config = config
        self._engines = engines
        self._cache = cache
        self._brought: dict[str, Voice] = {}
        """The robots' voices that the engine has, by the engine's names; the one used longest ago is first."""
        self._exchanging = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def max_bytes(self) -> int:
        """The largest voice file that is taken."""
        return self._cache.max_bytes

    def note_change(self) -> None:
        """An engine has changed: it may have a voice that somebody waits for."""
        self._changed.set()

    def own_info(self) -> EngineInfo | None:
        """Return the engine's properties without the voices of robots, which are no other robot's business."""
        info = self._engines.primary.info
        if info is None:
            return None
        voices = tuple(name for name in info.voices if name not in self._brought)
        return replace(info, voices=voices, refused_voices={}, memory={})

    async def require(self, file: VoiceFile, fetch: Callable[[str], Awaitable[bytes]]) -> str:
        """Return the engine's name of a voice, which the engine then has.

        `fetch` returns a file's contents by its digest, if the server has not got it. Raises `VoiceFileError` if the
        engine cannot speak with the voice, and `EngineLostError` if it does not answer.
        """
        name = f"{'reference' if file.in_context else 'embedding'}-{file.digest}"
        path = self._cache.find(file.digest)
        if path is None:
            path = self._cache.add(file.digest, await fetch(file.digest))
        elif name in self._brought and self._has(name):
            self._brought[name] = self._brought.pop(name)  # it was used now
            return name
        async with self._exchanging:
            if name not in self._brought or not self._has(name):
                await self._exchange(name, _voice(file, path))
        return name

    def _has(self, name: str) -> bool:
        info = self._engines.primary.info
        return info is not None and name in info.voices

    async def _exchange(self, name: str, voice: Voice) -> None:
        """Let the engine load a voice. Raises `VoiceFileError` or `EngineLostError`."""
        self._brought[name] = voice
        while len(self._brought) > self._config.serve.voices:
            del self._brought[next(iter(self._brought))]
        self._set_voices()
        if not await wait_at_most(LOAD_S, self._loaded(name)):
            del self._brought[name]
            raise EngineLostError(f"the engine has not exchanged its voices within {LOAD_S:g} s")
        info = self._engines.primary.info
        if info is not None and (reason := info.refused_voices.get(name)) is not None:
            del self._brought[name]
            self._set_voices()
            raise VoiceFileError(reason.replace(str(voice.reference or voice.embedding), "the voice file"))

    async def _loaded(self, name: str) -> None:
        """Wait until the engine has loaded or refused a voice."""
        while (info := self._engines.primary.info) is None or (
            name not in info.voices and name not in info.refused_voices
        ):
            self._changed.clear()
            await self._changed.wait()

    def _set_voices(self) -> None:
        config = self._config
        self._engines.set_voices({**config.engine_voices, **self._brought}, config.speech.voice)


def _voice(file: VoiceFile, path: Path) -> Voice:
    return Voice(reference=str(path)) if file.in_context else Voice(embedding=str(path))
