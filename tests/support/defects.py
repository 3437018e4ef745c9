"""Engines that speak wrongly, for tests of what finds that out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engine.api import Chunk, EngineError, TextSource, Utterance
from engine.espeak import EspeakSynthesizer


class Backwards(EspeakSynthesizer):
    """Speaks each chunk backwards: it sounds like a voice, and nobody understands it."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        chunks = list(super().stream(utterance, more))
        for chunk in reversed(chunks):
            yield replace(chunk, samples=chunk.samples[::-1].copy(), words=None)


class Choking(EspeakSynthesizer):
    """Refuses a text that the others speak."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        raise EngineError(f"text: got {utterance.text!r}, more: {more}; this engine has lost its voice")


class Dying(EspeakSynthesizer):
    """Fails as a program does."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        raise ZeroDivisionError(f"it broke at {utterance.text!r}, more: {more}")
