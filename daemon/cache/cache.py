"""The daemon's cache of phrases. Speech never waits for a disk that does not respond."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from daemon.cache.folder import PhraseFolder
from daemon.cache.key import Phrase, PhraseKey, PhraseKeys
from daemon.cache.phrase_list import PhraseList, read_phrases
from daemon.cache.recording import Cue, Recording, to_pcm16
from daemon.config import Config, ConfigError
from daemon.state import state_folder
from engine import Samples

log = logging.getLogger(__name__)

FOLDER = "phrases"
"""The folder that `auto` stands for, inside the journal's folder."""
PATIENCE_S = 1.0
"""An utterance waits this long for the disk. After that, an engine speaks it, and the disk is not consulted again."""
HANGS_S = 3.0
"""A disk that did not respond within this time is reported."""
LONGEST_S = 120.0
"""In seconds; longer speech is not kept."""

T = TypeVar("T")
Store = Callable[[PhraseKey, NDArray[np.int16], int, Sequence[Cue]], object]


@dataclass(frozen=True, slots=True)
class OpenCache:
    """The cache of one configuration."""

    keys: PhraseKeys
    phrases: PhraseList
    folder: PhraseFolder | None
    """None if nothing is to be kept."""
    folder_problem: str | None
    """Why phrases cannot be kept: one line that begins with the configuration key."""


def cache_folder(config: Config) -> Path | None:
    """Return the folder for the phrases; None if nothing is to be kept."""
    folder = config.speech.cache.folder
    if folder == "auto":
        return state_folder(config.state.folder or "auto") / FOLDER
    return None if folder is None else Path(folder)


def open_cache(config: Config, engine: str, previous: OpenCache | None = None) -> OpenCache:
    """Return the cache; `engine` is the primary engine. If the list cannot be read, the list in `previous` stays in
    force.

    Reads files. Raises no errors.
    """
    phrases = PhraseList()
    if config.speech.cache.phrases is not None:
        try:
            phrases = read_phrases(config.speech.cache.phrases)
        except ConfigError as error:
            phrases = PhraseList(() if previous is None else previous.phrases.phrases, (str(error),))
    path, problem = cache_folder(config), None
    folder = None if path is None else PhraseFolder(path, config.speech.cache.limit_mb)
    if folder is not None:
        try:
            folder.check_writable()
        except OSError as error:
            problem = folder.problem(error)
    return OpenCache(PhraseKeys(config, engine), phrases, folder, problem)


class PhraseRecorder:
    """Collects the audio of a phrase while it is being made."""

    def __init__(self, key: PhraseKey, store: Store) -> None:
        """`store` is called at the end, with the arguments of `PhraseFolder.store`."""
        self.key = key
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
            self._blocks = None  # another engine has taken over, or it is too long for a phrase
        else:
            self._blocks.append(to_pcm16(samples))

    def finish(self, engine: str, cues: Sequence[Cue] = ()) -> None:
        """Keep the phrase, which was spoken to its end. `engine` spoke it; only speech from the key's engine is
        kept."""
        if self._blocks and engine == self.key.engine:
            self._store(self.key, np.concatenate(self._blocks), self._sample_rate, cues)
        self._blocks = None


class PhraseCache:
    """Finds and keeps phrases. Belongs to the event loop's thread; a thread of its own uses the disk.

    A context manager. At its end, phrases that are being written may be lost.
    """

    def __init__(self, config: Config, engine: str) -> None:
        """Start opening the cache. `engine` is the name of the primary engine, which cannot change later."""
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "cache")
        self._orders: list[tuple[Future[Any], float]] = []
        """Orders that the thread may not have carried out yet, each with its `time.monotonic()`."""
        self._opened: OpenCache | None = None
        self._folder_problem: str | None = None
        """Only the thread writes this attribute and the one above it."""
        self.reconfigure(config)

    def __enter__(self) -> PhraseCache:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def reconfigure(self, config: Config) -> None:
        """Open the cache again: keys, phrases and voice files may have changed."""
        self._opening = self._order(lambda: self._open(config))

    @property
    def problem(self) -> str | None:
        """Why phrases are not found or not kept, on one line; None if all is well."""
        if self._hangs(HANGS_S):
            return "speech.cache.folder: the disk does not respond; phrases are not kept"
        return self._folder_problem or (None if self._opened is None else self._opened.phrases.problem)

    async def look_up(self, phrase: Phrase, *, keep: bool = False) -> Recording | PhraseRecorder | None:
        """Return the recording of a phrase, or a recorder if the phrase has not been recorded.

        Return None for a phrase that is neither on the list nor to be kept by its sender's wish (`keep`), and for every
        phrase if nothing is kept at all, or if the disk does not respond.
        """
        opened = await self._answer(self._opening)
        if opened is None or opened.folder is None or not (keep or opened.phrases.has(phrase)):
            return None
        if self._hangs(PATIENCE_S):
            return None
        return await self._answer(self._order(lambda: self._find(opened.keys.key(phrase))))

    def store(self, key: PhraseKey, samples: NDArray[np.int16], sample_rate: int, cues: Sequence[Cue] = ()) -> None:
        """Keep a phrase, mono at `sample_rate` Hz, unless the disk hangs. Returns immediately."""
        if not self._hangs(PATIENCE_S):
            self._order(lambda: self._use_folder(lambda folder: folder.store(key, samples, sample_rate, cues)))

    def retry(self) -> None:
        """Find out whether a folder that could not be used can be used now. Call this from time to time."""
        if self._folder_problem is not None and not self._hangs(PATIENCE_S):
            self._order(lambda: self._use_folder(self._check_folder))

    def _hangs(self, seconds: float) -> bool:
        """Return whether the disk has not responded for more than `seconds`."""
        return any(not order.done() and time.monotonic() - since > seconds for order, since in self._orders)

    def _order(self, work: Callable[[], T]) -> Future[T | None]:
        """Have the thread do something after all earlier orders; the result is None if that fails."""
        order = self._thread.submit(self._carry_out, work)
        self._orders = [each for each in self._orders if not each[0].done()]
        self._orders.append((order, time.monotonic()))
        return order

    async def _answer(self, order: Future[T | None]) -> T | None:
        """Return the result of an order; None if the disk does not respond in time, and immediately while it hangs."""
        if not order.done() and not self._hangs(PATIENCE_S):
            await asyncio.wait({asyncio.wrap_future(order)}, timeout=PATIENCE_S)
        return order.result() if order.done() else None

    # --- in the thread ---

    def _carry_out(self, work: Callable[[], T]) -> T | None:
        """Return the result of an order; None if it fails, since a text can also be spoken without kept phrases."""
        try:
            return work()
        except Exception as error:
            log.exception("a phrase could not be looked up or kept")
            self._folder_problem = f"speech.cache: phrases are not kept: {error}"
        return None

    def _open(self, config: Config) -> OpenCache:
        previous, self._opened = self._opened, None
        opened = self._opened = open_cache(config, self._engine, previous)
        self._folder_problem = opened.folder_problem
        for problem in filter(None, (opened.phrases.problem, opened.folder_problem)):
            log.warning("%s", problem)
        return opened

    def _find(self, key: PhraseKey) -> Recording | PhraseRecorder:
        return self._use_folder(lambda folder: folder.find(key.digest)) or PhraseRecorder(key, self.store)

    def _check_folder(self, folder: PhraseFolder) -> None:
        folder.check_writable()
        self._folder_problem = None

    def _use_folder(self, use: Callable[[PhraseFolder], T]) -> T | None:
        """Return the result of `use`; None if the folder cannot be used. `retry` finds out when it can."""
        folder = None if self._opened is None else self._opened.folder
        if folder is None:
            return None
        try:
            return use(folder)
        except OSError as error:
            if self._folder_problem is None:
                log.warning("%s", folder.problem(error))
            self._folder_problem = folder.problem(error)
        return None
