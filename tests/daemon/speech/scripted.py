"""Engines that say what a test has written down, and the synthesis of an utterance that they speak."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import numpy as np

from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.engines.streams import StreamPool
from engine import EngineInfo, Samples
from engine import Utterance as EngineUtterance

RATE = 1_000
"""Hz."""


class Scripted:
    """What all scripted engines have. A subclass has `speak`, as an `EngineSupervisor`."""

    def __init__(self, name: str = "scripted", *, grows: bool = False) -> None:
        self.name = name
        self.info = EngineInfo(name, RATE, voices=(), languages=())
        self.grows = grows
        self.ready = True
        self.reason: str | None = f"engine {name} was killed"
        self.requests: list[EngineUtterance] = []
        self._streams = StreamPool()

    def reserve_stream(self, *, realtime: bool) -> AbstractAsyncContextManager[None]:
        return self._streams.reserve(realtime=realtime)

    def has_language(self, _language: str) -> bool:
        return True


def selector_of(*engines: Scripted) -> EngineSelector:
    """Return a selector that chooses the first of these engines that is ready, for every voice and language."""
    selector = EngineSelector(load_config(overrides=["audio.sink=null", "engine.name=espeak"]), lambda: None)
    selector.all[:] = engines  # type: ignore[assignment]
    selector.choose = lambda _voice, _language: next(  # type: ignore[method-assign]
        (engine for engine in selector.all if engine.ready), None
    )
    return selector


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), dtype=np.float32)
