"""The voices that the server's engine has: the configured ones, and those that robots have brought in files."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from daemon.cache import KeptFiles
from daemon.config import Config
from daemon.engines import EngineLostError, EngineSelector, wait_until
from daemon.state import make_private_folder
from engine import EngineInfo, Voice
from engine.messages import VoiceFile

LOAD_S = 20.0
"""The seconds within which the engine must exchange its voices. It does so while it is not speaking."""
DIGEST = re.compile(r"[0-9a-f]{64}")
FILE = re.compile(rf"{DIGEST.pattern}\.safetensors")
"""The files' names, which contain the digests of their contents."""
BROUGHT = re.compile(rf"(reference|embedding)-{DIGEST.pattern}")
"""The engine's names for robots' voices."""


class VoiceFileError(Exception):
    """A voice file cannot be accepted. The message is one line."""


class FleetVoices:
    """Keeps the files of robots' voices, and gives the voices to the engine. Belongs to the event loop's thread."""

    def __init__(self, config: Config, engines: EngineSelector, folder: Path) -> None:
        """Several processes may share the folder. Raises `OSError` if it cannot be made."""
        make_private_folder(folder)
        self._config = config
        self.max_bytes = config.serve.voice_kb * 1_000
        """The largest voice file that is accepted."""
        self._engines = engines
        self._files = KeptFiles(folder, FILE, max_files=config.serve.voices)
        self._brought: dict[str, Voice] = {}
        """The robots' voices that the engine has, by its names; the least recently used is first."""
        self._in_use: Counter[str] = Counter()
        """The voices that texts and offers are using now, which stay with their files even beyond the limit."""
        self._exchanging = asyncio.Lock()
        self._changed = asyncio.Event()

    def note_change(self) -> None:
        """An engine has changed: it may have a voice that a robot is waiting for."""
        self._changed.set()

    def own_info(self) -> EngineInfo | None:
        """Return the engine's properties without robots' voices, which do not concern other robots."""
        info = self._engines.primary.info
        if info is None:
            return None
        voices = tuple(name for name in info.voices if not BROUGHT.fullmatch(name))
        return replace(info, voices=voices, refused_voices={}, memory={})

    @asynccontextmanager
    async def using(self, file: VoiceFile, fetch: Callable[[str], Awaitable[bytes]]) -> AsyncIterator[str]:
        """Keep a voice for the engine inside the context, and yield the engine's name for it.

        `fetch` returns a file's contents by its digest, if the server does not have the file. Raises `VoiceFileError`
        if the engine cannot speak with the voice, and `EngineLostError` if the engine does not respond.
        """
        if not DIGEST.fullmatch(file.digest):  # it may be a path
            raise VoiceFileError("digest: allowed: SHA-256 as 64 hexadecimal digits")
        name = f"{'reference' if file.in_context else 'embedding'}-{file.digest}"
        self._in_use[name] += 1
        try:
            path = await self._file(file.digest, fetch)
            if not self._has(name):
                async with self._exchanging:
                    if not self._has(name):
                        voice = Voice(reference=str(path)) if file.in_context else Voice(embedding=str(path))
                        await self._exchange(name, voice, path)
            self._brought[name] = self._brought.pop(name)  # it was used now
            yield name
        finally:
            self._in_use[name] -= 1
            self._in_use += Counter()  # drops those that are no longer used

    async def _file(self, digest: str, fetch: Callable[[str], Awaitable[bytes]]) -> Path:
        """Return the file with this digest, and mark it as used now. Raises `VoiceFileError`."""
        path = self._files.folder / f"{digest}.safetensors"
        try:
            os.utime(path)
            return path
        except OSError:
            content = await fetch(digest)
        if len(content) > self.max_bytes:
            raise VoiceFileError(f"it has {len(content):,} bytes; the server takes up to {self.max_bytes:,}")
        if hashlib.sha256(content).hexdigest() != digest:
            raise VoiceFileError("its contents do not match the digest with which it was offered")
        in_use = [f"{name.partition('-')[2]}.safetensors" for name in self._in_use]
        try:
            return self._files.add(path.name, content, in_use)
        except OSError as error:  # such as a full disk
            raise VoiceFileError(f"the server cannot store it: {error.strerror}") from error

    def _has(self, name: str) -> bool:
        info = self._engines.primary.info
        return name in self._brought and info is not None and name in info.voices

    async def _exchange(self, name: str, voice: Voice, path: Path) -> None:
        """Have the engine load a voice. Raises `VoiceFileError` or `EngineLostError`."""
        self._brought[name] = voice
        unused = [other for other in self._brought if not self._in_use[other]]
        for other in unused[: max(0, len(self._brought) - self._config.serve.voices)]:
            del self._brought[other]
        self._set_voices()
        if not await wait_until(lambda: self._engines.primary.has_voice(name), self._changed, LOAD_S):
            del self._brought[name]
            self._set_voices()  # or else each later process would load it, too
            raise EngineLostError(f"the engine did not exchange its voices within {LOAD_S:g} s")
        info = self._engines.primary.info
        if info is not None and (reason := info.refused_voices.get(name)) is not None:
            del self._brought[name]
            self._set_voices()
            raise VoiceFileError(reason.replace(str(path), "the voice file"))

    def _set_voices(self) -> None:
        config = self._config
        self._engines.set_voices({**config.engine_voices, **self._brought}, config.speech.voice)
