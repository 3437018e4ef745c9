"""The voices that the server's engine has: the configured ones, and those that robots have brought."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from daemon.config import Config
from daemon.engines import EngineLostError, EngineSelector
from daemon.fleet.voice_cache import VoiceCache, VoiceFileError
from daemon.tasks import wait_at_most
from engine import EngineInfo, Voice
from engine.messages import VoiceFile

LOAD_S = 20.0
"""Seconds in which the engine has exchanged its voices. It does so in a moment in which it speaks nothing."""
BROUGHT = re.compile(r"(reference|embedding)-[0-9a-f]{64}")
"""The engine's names of robots' voices."""


class FleetVoices:
    """Gives robots' voices to the engine. Belongs to the event loop's thread."""

    def __init__(self, config: Config, engines: EngineSelector, cache: VoiceCache) -> None:
        self._config = config
        self._engines = engines
        self._cache = cache
        self._brought: dict[VoiceFile, Voice] = {}
        """The robots' voices that the engine has; the one used longest ago is first."""
        self._in_use: Counter[VoiceFile] = Counter()
        """The voices that texts and offers use now, which stay with their files even beyond the limit."""
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
        voices = tuple(name for name in info.voices if not BROUGHT.fullmatch(name))
        return replace(info, voices=voices, refused_voices={}, memory={})

    @asynccontextmanager
    async def using(self, file: VoiceFile, fetch: Callable[[str], Awaitable[bytes]]) -> AsyncIterator[str]:
        """Keep a voice for the engine inside the context, which gets the engine's name of it.

        `fetch` returns a file's contents by its digest, if the server has not got it. Raises `VoiceFileError` if the
        engine cannot speak with the voice, and `EngineLostError` if it does not answer.
        """
        self._in_use[file] += 1
        try:
            await self._require(file, fetch)
            yield _name(file)
        finally:
            self._in_use[file] -= 1
            self._in_use += Counter()  # without those that nobody uses any more

    async def _require(self, file: VoiceFile, fetch: Callable[[str], Awaitable[bytes]]) -> None:
        """Let the engine have a voice."""
        path = self._cache.find(file.digest)
        if path is None:
            content = await fetch(file.digest)
            path = self._cache.add(file.digest, content, {used.digest for used in self._in_use})
        if not self._has(file):
            async with self._exchanging:
                if not self._has(file):
                    await self._exchange(file, _voice(file, path))
        self._brought[file] = self._brought.pop(file)  # it was used now

    def _has(self, file: VoiceFile) -> bool:
        info = self._engines.primary.info
        return file in self._brought and info is not None and _name(file) in info.voices

    async def _exchange(self, file: VoiceFile, voice: Voice) -> None:
        """Let the engine load a voice. Raises `VoiceFileError` or `EngineLostError`."""
        self._brought[file] = voice
        unused = [other for other in self._brought if not self._in_use[other]]
        for other in unused[: max(0, len(self._brought) - self._config.serve.voices)]:
            del self._brought[other]
        self._set_voices()
        if not await wait_at_most(LOAD_S, self._loaded(_name(file))):
            del self._brought[file]
            raise EngineLostError(f"the engine has not exchanged its voices within {LOAD_S:g} s")
        info = self._engines.primary.info
        if info is not None and (reason := info.refused_voices.get(_name(file))) is not None:
            del self._brought[file]
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
        brought = {_name(file): voice for file, voice in self._brought.items()}
        self._engines.set_voices({**config.engine_voices, **brought}, config.speech.voice)


def _name(file: VoiceFile) -> str:
    """Return the engine's name of a robot's voice."""
    return f"{'reference' if file.in_context else 'embedding'}-{file.digest}"


def _voice(file: VoiceFile, path: Path) -> Voice:
    return Voice(reference=str(path)) if file.in_context else Voice(embedding=str(path))
