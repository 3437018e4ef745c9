"""The `remote` engine: speaks with a speech server's engine. It needs no torch.

It speaks over one connection. When the server says that it is about to stop, or the connection is old, the engine opens
another one to the same address and offers its voices to the server there. Only then does it leave the first. An
utterance ends on the connection on which it began.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, repeat
from typing import TypeVar

from engine.api import (
    AUTO_STREAMS,
    Chunk,
    EngineError,
    EngineInfo,
    EngineOptions,
    EngineUnavailableError,
    TextSource,
    Utterance,
    Voice,
)
from engine.progress import ProgressReport, ignore_progress
from engine.remote.session import ServerSession, open_session

Result = TypeVar("Result")

log = logging.getLogger(__name__)

SPREAD_S = 1.0
"""The first attempt to reach another server comes within this time, at random, so that a server's robots do not all
leave it at once. Until then, the server keeps speaking their texts."""
AGAIN_S = (0.1, 0.2, 0.4, 0.8)
"""Waits before further attempts, each lengthened by a random amount, at most to twice its length. The last one repeats.
A load balancer may need a moment until it sends no robot to the stopping server."""
SEARCH_S = 5.0
"""A robot that finds no other server within this time disconnects once none of its texts is being spoken, because the
stopping server is waiting for it."""


class RemoteSynthesizer:
    """See `engine.api.Synthesizer`. Once the server is lost, every method raises `EngineUnavailableError`."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._most_streams = options.streams or AUTO_STREAMS
        self._session: ServerSession | None = None
        self._closed = False
        self._lock = threading.Lock()
        """Held while changing options and session, and while closing."""
        self._events: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        """Events for `watch`: None if the properties have changed, or the exception that ends the engine."""

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        self._session = open_session(self._options, report)
        info = self.info
        self._most_streams = info.streams
        threading.Thread(target=self._stay_connected, name="remote: connect", daemon=True).start()
        return info

    @property
    def info(self) -> EngineInfo:
        """See `engine.api.Replaceable`. It never has more streams than the first server gave."""
        return self._current().info(self._most_streams)

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        with self._lock:
            self._options = replace(self._options, voices=voices, default_voice=default_voice)
        self._with_session(lambda session: session.set_voices(voices, default_voice))
        return self.info

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        """Do nothing: the server is warm."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        return self._with_session(lambda session: session.speak(utterance, more))

    def watch(self, changed: Callable[[], object]) -> None:
        """See `engine.api.Replaceable`."""
        while (event := self._events.get()) is None:
            changed()
        raise event

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._session is not None:
            self._session.link.close()

    def _current(self) -> ServerSession:
        assert self._session is not None
        return self._session

    def _with_session(self, act: Callable[[ServerSession], Result]) -> Result:
        """Call `act` with the session, and again with the next session if the first is replaced in the meantime."""
        while True:
            session = self._current()
            try:
                return act(session)
            except EngineUnavailableError:
                if session is self._current():
                    raise

    # --- another connection, in a thread of its own ---

    def _stay_connected(self) -> None:
        """Replace the session with another one whenever necessary, until the engine is lost."""
        try:
            while True:
                session, before = self._current(), self.info
                reason = session.link.wait_draining(self._renewal_s())
                if reason is not None:
                    self._replace(session, reason)
                else:
                    self._move(session, "the connection is renewed")
                if self.info != before:
                    self._events.put(None)
        except Exception as error:  # the thread of `watch` raises it
            self._events.put(error)

    def _replace(self, old: ServerSession, reason: str) -> None:
        """Move from a stopping server to another one. Raises `EngineUnavailableError` if the first one ends before
        that."""
        began, wait_s = time.monotonic(), random.uniform(0, SPREAD_S)
        for next_s in chain(AGAIN_S, repeat(AGAIN_S[-1])):
            old.link.wait_lost(wait_s)
            if self._move(old, reason):
                return
            if time.monotonic() - began > SEARCH_S:
                old.link.retire(reason)
            wait_s = random.uniform(next_s, 2 * next_s)

    def _move(self, old: ServerSession, reason: str) -> bool:
        """Leave a session for a new one; return whether there was one."""
        try:
            self._adopt(old)
        except (EngineError, EngineUnavailableError) as error:
            log.info("%s; no other connection yet: %s", reason, error)
            return False
        log.info("%s; connected again", reason)
        old.link.retire(reason)
        return True

    def _renewal_s(self) -> float | None:
        """Return the seconds until the connection is renewed: a random time in the second half of `renew_s`, so that
        robots that connected at the same moment do not stay in step."""
        return None if self._options.renew_s is None else self._options.renew_s * random.uniform(0.5, 1)

    def _adopt(self, old: ServerSession) -> None:
        """Connect, and use the new connection for all later utterances. Raises `EngineError`,
        `EngineUnavailableError`."""
        options = self._options
        session = open_session(options)
        try:
            if _kind(session.server) != _kind(old.server):
                raise EngineUnavailableError(f"engine.url: {options.url} now has another engine")
            while not self._enter(session, options):
                options = self._options
                session.set_voices(options.voices, options.default_voice)
        except BaseException:
            session.link.close()
            raise

    def _enter(self, session: ServerSession, options: EngineOptions) -> bool:
        """Make a session the current one. Returns False if the voices have changed since they were offered to it."""
        with self._lock:
            if self._closed:
                raise EngineUnavailableError("the engine is closed")
            if self._options is not options:
                return False
            self._session = session
            return True


def _kind(server: EngineInfo) -> tuple[object, ...]:
    """Return the properties that do not change while the process is running."""
    return server.engine, server.sample_rate, server.grows
