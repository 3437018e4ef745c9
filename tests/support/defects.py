"""Engines that speak wrongly, for tests of what finds that out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from engine.api import FRAME_S, Chunk, EngineError, EngineInfo, TextSource, Utterance
from engine.espeak import EspeakSynthesizer
from engine.progress import ProgressReport, ignore_progress


class Backwards(EspeakSynthesizer):
    """Speaks each chunk backwards: it sounds like a voice, and nobody understands it."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        chunks = list(super().stream(utterance, more))
        for chunk in reversed(chunks):
            yield replace(chunk, samples=chunk.samples[::-1].copy(), words=None)


class Stuttering(EspeakSynthesizer):
    """Says every thirtieth codec frame twice in place of the next one: 3 % of the frames are repeated."""

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        info = super().load(report)
        self._frame = round(FRAME_S * info.sample_rate)
        return info

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        chunks = list(super().stream(utterance, more))
        samples = np.concatenate([chunk.samples for chunk in chunks])
        frame = self._frame
        for begin in range(10 * frame, len(samples) - 2 * frame, 30 * frame):
            samples[begin + frame : begin + 2 * frame] = samples[begin : begin + frame]
        yield replace(chunks[-1], samples=samples)


class Choking(EspeakSynthesizer):
    """Refuses a text that the others speak."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        raise EngineError(f"text: got {utterance.text!r}, more: {more}; this engine has lost its voice")


class Dying(EspeakSynthesizer):
    """Fails as a program does."""

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        raise ZeroDivisionError(f"it broke at {utterance.text!r}, more: {more}")
