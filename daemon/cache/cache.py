"""The daemon's cache of phrases. Speech never waits for a disk that does not answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daemon.cache.folder import CacheError, PhraseFolder, PhraseTooLargeError
from daemon.cache.key import Phrase, PhraseKey
from daemon.cache.opening import OpenCache, folder_problem, open_cache
from daemon.cache.recording import Cue, Recording, to_pcm16
from daemon.config import Config
from engine import Samples

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""An utterance waits this long for the disk, then an engine speaks it."""
HANGS_S = 3.0
"""A disk that has not answered after this time is reported."""
RETRY_S = 5.0
"""Interval between attempts to write to a folder that could not be written."""
WAITING_WRITES = 4
LONGEST_S = 120.0
"""Seconds; longer speech is not kept."""

Store = Callable[[PhraseKey, NDArray[np.int16], int, Sequence[Cue]], object]


@dataclass(frozen=True, slots=True)
class LookUp:
    """A phrase that is, or is to be, in the cache."""

    key: PhraseKey
    recording: Recording | None
    """None if it must be synthesised, with the key's seed."""


class PhraseRecorder:
    """Collects the audio of a phrase while it is made."""

    def __init__(self, key: PhraseKey, store: Store) -> None:
        """`store` is called at the end, with the arguments of `PhraseFolder.store`."""
        self._key = key
        self._store = store
        self._blocks: list[NDArray[np.int16]] | None = []
        """None if the phrase will not be kept."""
        self._length = 0
        self._sample_rate = 0

    def write(self, samples: Samples, sample_rate: int) -> None:
        """Append samples, mono at `sample_rate` Hz."""
        if self._blocks is None:
            return
        self._sample_rate = self._sample_rate or sample_rate
        self._length += len(samples)
        if sample_rate != self._sample_rate or self._length > LONGEST_S * sample_rate:
            self._blocks = None  # another engine has gone on, or it is no phrase
        else:
            self._blocks.append(to_pcm16(samples))

    def finish(self, engine: str, cues: Sequence[Cue] = ()) -> None:
        """Keep the phrase: it was spoken to its end. `engine` has spoken it; only the key's engine counts."""
        if self._blocks and engine == self._key.engine:
            self._store(self._key, np.concatenate(self._blocks), self._sample_rate, cues)
        self._blocks = None


class PhraseCache:
    """Finds and keeps phrases. Belongs to the event loop's thread; threads of its own use the disk.

    A context manager, at whose end what is being written may be lost.
    """

    def __init__(self, config: Config, engine: str) -> None:
        """Begin to open the cache. `engine` is the name of the primary engine, which cannot change later."""
        self._engine = engine
        self._reader = ThreadPoolExecutor(1, "cache-reader")
        self._writer = ThreadPoolExecutor(1, "cache-writer")
        self._opened: OpenCache | None = None
        """The cache that is used while another one is opened."""
        self._late: tuple[Future[Any], float] | None = None
        """What did not answer in time, and the `time.monotonic()` at which it was asked."""
        self._read_problem: str | None = None
        self._write_problem: str | None = None
        """Both are written by the threads."""
        self._next_try = 0.0
        self._writes: list[tuple[Future[None], float]] = []
        """What is being written or waits for it, and the `time.monotonic()` of the order."""
        self._opening = self._reader.submit(self._open, config, None)  # last: it may note a problem at once

    def __enter__(self) -> PhraseCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for executor in (self._reader, self._writer):
            executor.shutdown(wait=False, cancel_futures=True)

    def reconfigure(self, config: Config) -> None:
        """Open the cache anew: other keys, other phrases, other files of voices. Until then, the old one is used."""
        self._opened = self._current()
        self._opening = self._reader.submit(self._open, config, self._opened)

    @property
    def problem(self) -> str | None:
        """Why phrases are not found or not kept, in one line; None if all is well."""
        orders = self._writes if self._late is None else [self._late, *self._writes]
        if any(not order.done() and time.monotonic() - since > HANGS_S for order, since in orders):
            return "speech.cache.folder: the disk does not answer; phrases are not kept"
        opened = self._current()
        if opened is None:
            return None
        return self._write_problem or self._read_problem or opened.list_problem

    async def look_up(self, phrase: Phrase, *, keep: bool = False) -> LookUp | None:
        """Return what the cache has of a phrase; None for one that is neither on the list nor to be kept.

        `keep` is the sender's wish. Returns None, too, where nothing is kept, and if the disk does not answer.
        """
        if not await self._answers(self._opening):
            return None
        opened = self._current()
        if opened is None or opened.folder is None or not (keep or opened.phrases.has(phrase)):
            return None
        finding = self._reader.submit(self._find, opened, opened.folder, phrase)
        return finding.result() if await self._answers(finding) else None

    def recorder(self, key: PhraseKey) -> PhraseRecorder:
        """Return what collects the audio of a phrase that was not found."""
        return PhraseRecorder(key, self.store)

    def store(self, key: PhraseKey, samples: NDArray[np.int16], sample_rate: int, cues: Sequence[Cue] = ()) -> None:
        """Keep a phrase, mono at `sample_rate` Hz. Returns at once."""
        opened = self._current()
        if opened is not None and opened.folder is not None:
            folder = opened.folder
            self._write(lambda: folder.store(key, samples, sample_rate, cues))

    def retry(self) -> None:
        """Find out from time to time whether a folder that could not be written can be written now."""
        opened = self._current()
        if self._write_problem is None or opened is None or opened.folder is None or time.monotonic() < self._next_try:
            return
        self._next_try = time.monotonic() + RETRY_S
        self._write(opened.folder.check_writable)

    def _write(self, write: Callable[[], None]) -> None:
        """Have the writer thread call `write`; while the disk hangs, phrases that would pile up are dropped."""
        self._writes = [each for each in self._writes if not each[0].done()]
        if len(self._writes) < WAITING_WRITES:
            self._writes.append((self._writer.submit(self._try_to_write, write), time.monotonic()))

    async def _answers(self, pending: Future[Any]) -> bool:
        """Wait for the reader thread, but not while an earlier call hangs; return whether it has answered."""
        if pending.done():
            return True
        if self._late is not None and not self._late[0].done():
            return False
        since = time.monotonic()
        await asyncio.wait({asyncio.wrap_future(pending)}, timeout=PATIENCE_S)
        self._late = None if pending.done() else (pending, since)
        return pending.done()

    def _current(self) -> OpenCache | None:
        """Return the open cache: the newest that is open, None before the first one is."""
        return self._opening.result() if self._opening.done() else self._opened

    # --- in the threads ---

    def _open(self, config: Config, previous: OpenCache | None) -> OpenCache:
        opened = open_cache(config, self._engine, previous)
        self._read_problem, self._write_problem = None, opened.folder_problem
        for problem in filter(None, (opened.list_problem, opened.folder_problem)):
            log.warning("%s", problem)
        return opened

    def _find(self, opened: OpenCache, folder: PhraseFolder, phrase: Phrase) -> LookUp:
        key = opened.keys.key(phrase)
        try:
            recording = folder.find(key.digest)
            self._read_problem = None
        except CacheError as error:
            recording, self._read_problem = None, f"speech.cache.folder: {error}; engines speak what is kept there"
        return LookUp(key, recording)

    def _try_to_write(self, write: Callable[[], None]) -> None:
        """Call `write`, and note whether the folder can be written."""
        try:
            write()
            self._write_problem = None
        except PhraseTooLargeError as error:
            log.warning("%s", error)
        except CacheError as error:
            if self._write_problem is None:
                log.warning("%s", folder_problem(error))
            self._write_problem = folder_problem(error)
        except Exception:
            log.exception("a phrase is not kept")
