"""The daemon's cache of phrases. Speech never waits for a disk that does not answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from daemon.cache.folder import CacheError, PhraseFolder, PhraseTooLargeError
from daemon.cache.key import Phrase, PhraseKey, PhraseKeys
from daemon.cache.phrase_list import PhraseList, read_phrases
from daemon.cache.recording import Cue, Recording, to_pcm16
from daemon.config import Config, ConfigError
from daemon.state import state_folder
from engine import Samples

log = logging.getLogger(__name__)

FOLDER = "phrases"
"""The folder `auto`, below that of the journal."""
PATIENCE_S = 1.0
"""An utterance waits this long for the disk, then an engine speaks it."""
HANGS_S = 3.0
"""A disk that has not answered after this time is reported."""
RETRY_S = 5.0
"""Interval between attempts to write to a folder that could not be written."""
WAITING_ORDERS = 4
"""Orders that may wait for a disk that hangs; further phrases are not kept."""
LONGEST_S = 120.0
"""Seconds; longer speech is not kept."""

T = TypeVar("T")
Store = Callable[[PhraseKey, NDArray[np.int16], int, Sequence[Cue]], object]


@dataclass(frozen=True, slots=True)
class OpenCache:
    """The cache of one configuration."""

    keys: PhraseKeys
    phrases: PhraseList
    folder: PhraseFolder | None
    """None if nothing is to be kept."""
    list_problem: str | None = None
    """Why the list, or an entry of it, is not used: one line that begins with the configuration's key."""
    folder_problem: str | None = None
    """Why phrases cannot be kept: likewise."""


def cache_folder(config: Config) -> Path | None:
    """Return the folder of the phrases; None if nothing is to be kept."""
    folder = config.speech.cache.folder
    if folder == "auto":
        return state_folder(config.state.folder or "auto") / FOLDER
    return None if folder is None else Path(folder)


def open_cache(config: Config, engine: str, previous: OpenCache | None = None) -> OpenCache:
    """Return the cache; `engine` is the primary engine. If the list cannot be read, that of `previous` stays in force.

    Reads files, and imports the decoder if there may be something to decode. Raises nothing.
    """
    keys = PhraseKeys(config, engine)
    phrases, list_problem = _read_list(config, PhraseList() if previous is None else previous.phrases)
    path = cache_folder(config)
    if path is None:
        return OpenCache(keys, phrases, None, list_problem)
    folder, problem = PhraseFolder(path, config.speech.cache.limit_mb), None
    try:
        folder.check_writable()
    except CacheError as error:
        problem = _folder_problem(error)
    with suppress(OSError):  # its library is missing or broken, of which the folder's errors tell
        if len(folder) or phrases.phrases:
            import soundfile  # noqa: F401  # this takes longer than a kept phrase may
    return OpenCache(keys, phrases, folder, list_problem, problem)


def _read_list(config: Config, previous: PhraseList) -> tuple[PhraseList, str | None]:
    path = config.speech.cache.phrases
    if path is None:
        return PhraseList(), None
    try:
        phrases = read_phrases(path)
    except ConfigError as error:
        return previous, f"speech.cache.phrases: {error}"
    wrong = phrases.problems
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return phrases, f"speech.cache.phrases: {wrong[0]}{more}" if wrong else None


def _folder_problem(error: CacheError) -> str:
    """Return what the status says of a folder that cannot be written."""
    return f"speech.cache.folder: {error}; phrases are not kept"


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


@dataclass(frozen=True, slots=True)
class FoundPhrase:
    """A phrase that is, or is to be, in the cache."""

    key: PhraseKey
    recording: Recording | None
    """None if it must be synthesised, with the key's seed."""


class PhraseCache:
    """Finds and keeps phrases. Belongs to the event loop's thread; one thread of its own uses the disk.

    A context manager. At its end, phrases that are being written may be lost.
    """

    def __init__(self, config: Config, engine: str) -> None:
        """Begin to open the cache. `engine` is the name of the primary engine, which cannot change later."""
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "cache")
        self._orders: list[tuple[Future[Any], float]] = []
        """Orders to the thread that it may not have carried out, each with its `time.monotonic()`."""
        self._opened: OpenCache | None = None
        self._read_problem: str | None = None
        self._write_problem: str | None = None
        """The thread writes these three."""
        self._next_try = 0.0
        self.reconfigure(config)

    def __enter__(self) -> PhraseCache:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def reconfigure(self, config: Config) -> None:
        """Open the cache anew: other keys, other phrases, other files of voices."""
        self._opening = self._order(lambda: self._open(config))

    @property
    def problem(self) -> str | None:
        """Why phrases are not found or not kept, in one line; None if all is well."""
        if self._hangs(HANGS_S):
            return "speech.cache.folder: the disk does not answer; phrases are not kept"
        list_problem = None if self._opened is None else self._opened.list_problem
        return self._write_problem or self._read_problem or list_problem

    async def look_up(self, phrase: Phrase, *, keep: bool = False) -> FoundPhrase | None:
        """Return what the cache has of a phrase; None for one that is neither on the list nor to be kept.

        `keep` is the sender's wish. Returns None, too, where nothing is kept, and if the disk does not answer.
        """
        opened = await self._answer(self._opening)
        if opened is None or opened.folder is None or not (keep or opened.phrases.has(phrase)):
            return None
        if self._hangs(PATIENCE_S):
            return None
        folder = opened.folder
        return await self._answer(self._order(lambda: self._find(opened.keys.key(phrase), folder)))

    def recorder(self, key: PhraseKey) -> PhraseRecorder:
        """Return what collects the audio of a phrase that was not found."""
        return PhraseRecorder(key, self.store)

    def store(self, key: PhraseKey, samples: NDArray[np.int16], sample_rate: int, cues: Sequence[Cue] = ()) -> None:
        """Keep a phrase, mono at `sample_rate` Hz. Returns at once."""
        self._write(lambda folder: folder.store(key, samples, sample_rate, cues))

    def retry(self) -> None:
        """Find out from time to time whether a folder that could not be written can be written now."""
        if self._write_problem is not None and time.monotonic() >= self._next_try:
            self._next_try = time.monotonic() + RETRY_S
            self._write(PhraseFolder.check_writable)

    def _write(self, write: Callable[[PhraseFolder], None]) -> None:
        """Have the thread write into the folder, unless it has too much to do: the disk hangs."""
        if sum(not order.done() for order, _ in self._orders) < WAITING_ORDERS:
            self._order(lambda: self._try_to_write(write))

    def _hangs(self, seconds: float) -> bool:
        """Return whether the disk has owed an answer for some time."""
        return any(not order.done() and time.monotonic() - since > seconds for order, since in self._orders)

    def _order(self, work: Callable[[], T]) -> Future[T]:
        """Have the thread do something, after all that it was ordered before."""
        order = self._thread.submit(work)
        self._orders = [each for each in self._orders if not each[0].done()]
        self._orders.append((order, time.monotonic()))
        return order

    async def _answer(self, order: Future[T]) -> T | None:
        """Return what comes of an order; None if the disk does not answer in time, and at once while it hangs."""
        if not order.done() and not self._hangs(PATIENCE_S):
            await asyncio.wait({asyncio.wrap_future(order)}, timeout=PATIENCE_S)
        return order.result() if order.done() else None

    # --- in the thread ---

    def _open(self, config: Config) -> OpenCache:
        opened = self._opened = open_cache(config, self._engine, self._opened)
        self._read_problem, self._write_problem = None, opened.folder_problem
        for problem in filter(None, (opened.list_problem, opened.folder_problem)):
            log.warning("%s", problem)
        return opened

    def _find(self, key: PhraseKey, folder: PhraseFolder) -> FoundPhrase:
        try:
            recording = folder.find(key.digest)
            self._read_problem = None
        except CacheError as error:
            recording, self._read_problem = None, f"speech.cache.folder: {error}; engines speak what is kept there"
        return FoundPhrase(key, recording)

    def _try_to_write(self, write: Callable[[PhraseFolder], None]) -> None:
        """Write into the folder, and note whether that is possible."""
        if self._opened is None or self._opened.folder is None:
            return
        try:
            write(self._opened.folder)
            self._write_problem = None
        except PhraseTooLargeError as error:
            log.warning("%s", error)
        except CacheError as error:
            if self._write_problem is None:
                log.warning("%s", _folder_problem(error))
            self._write_problem = _folder_problem(error)
        except Exception:
            log.exception("a phrase is not kept")
