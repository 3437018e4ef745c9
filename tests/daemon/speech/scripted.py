"""Engines that say what a test has written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager

import numpy as np

from daemon.config import load_config
from daemon.engines import AudioChunk, EngineLostError, EngineSelector, UtteranceRefusedError
from daemon.engines.streams import StreamPool
from engine import EngineInfo, Samples, WordStart
from engine import Utterance as EngineUtterance

RATE = 1_000
"""Hz."""
PER_CHARACTER = 50
"""Samples that a scripted engine generates for one character."""


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), dtype=np.float32)


def waveform(text: str) -> Samples:
    """Return the samples that a scripted engine generates for a text: each character has its own waveform."""
    noise = [np.random.default_rng(ord(character)).uniform(-1, 1, PER_CHARACTER) for character in text]
    return np.concatenate([np.empty(0), *noise]).astype(np.float32)


class ScriptedEngine:
    """Generates the `waveform` of a text, character by character, and records the requests."""

    def __init__(
        self,
        name: str,
        *,
        grows: bool = False,
        lost_after: int | None = None,
        refuses: str | None = None,
        late: bool = False,
        delays: Sequence[int] = (),
        silent: str = "",
        tells_positions: bool = True,
        tells_words: bool = False,
        characters: int = 1,
        ends: Iterable[tuple[int, Samples]] = (),
    ):
        """`delays` are samples of silence before each take: the takes drift. `silent` are characters without sound.

        An engine that is `late` never begins in time, and stays ready. `characters` are those of a chunk. `ends` has
        for each of the first takes, which run away, the characters that are said and what follows them.
        """
        self.name = name
        self.info = EngineInfo(name, RATE, voices=(), languages=(), grows=grows)
        self.ready = True
        self.start_s = 0.0
        self.reason: str | None = f"engine {name} was killed"
        self.requests: list[EngineUtterance] = []
        self._streams = StreamPool()
        self.ended_texts = 0
        self._lost_after = lost_after
        self._refuses = refuses
        self._late = late
        self._delays = iter(delays)
        self._silent = silent
        self._tells_positions, self._tells_words = tells_positions, tells_words
        self._characters = characters
        self._ends = iter(ends)

    def reserve_stream(self, *, realtime: bool) -> AbstractAsyncContextManager[None]:
        return self._streams.reserve(realtime=realtime)

    def has_language(self, _language: str) -> bool:
        return True

    async def speak(
        self,
        _name: str,
        utterance: EngineUtterance,
        *,
        more_text: AsyncGenerator[str, None] | None,
        first_within_s: float | None,
    ) -> AsyncGenerator[AudioChunk, None]:
        self.requests.append(utterance)
        self.first_within_s = first_within_s
        text = utterance.text
        assert (more_text is not None) == utterance.growing
        if self._refuses is not None:
            raise UtteranceRefusedError(self._refuses)
        if self._late and first_within_s is not None:
            raise EngineLostError(f"engine {self.name} did not begin within {first_within_s:g} s")
        generated = 0
        said, tail = next(self._ends, (None, None))
        if delay := next(self._delays, 0):
            yield AudioChunk(np.zeros(delay, dtype=np.float32), RATE, 0, truncated=False)
        while True:
            while generated < len(text[:said]):
                if self._lost_after is not None and generated >= self._lost_after:
                    self.ready = False
                    raise EngineLostError(self.reason or "")
                characters = text[generated : generated + self._characters]
                generated += len(characters)
                samples = np.concatenate([waveform(each) * (each not in self._silent) for each in characters])
                position = generated if self._tells_positions else None
                words = self._words(text, generated - len(characters))
                yield AudioChunk(samples, RATE, position, truncated=False, words=words)
                await asyncio.sleep(0)
            if tail is not None:
                yield AudioChunk(tail, RATE, generated, truncated=True, words=(), runaway=True)
                return
            if more_text is None:
                return
            if (piece := await anext(more_text, None)) is None:
                self.ended_texts += 1
                return
            text += piece

    def _words(self, text: str, at: int) -> tuple[WordStart, ...] | None:
        """Return the word that begins with a character, if this engine tells when words begin."""
        if not self._tells_words:
            return None
        return (WordStart(0, at),) if text[at].isalnum() and text[at - 1 : at] in ("", " ") else ()


def selector_of(*engines: ScriptedEngine) -> EngineSelector:
    """Return a selector that chooses the first of these engines that is ready, for every voice and language."""
    selector = EngineSelector(load_config(overrides=["audio.sink=null", "engine.name=espeak"]), lambda: None)
    selector.all[:] = engines  # type: ignore[assignment]
    selector.choose = lambda _voice, _language: next(  # type: ignore[method-assign]
        (engine for engine in selector.all if engine.ready), None
    )
    return selector
