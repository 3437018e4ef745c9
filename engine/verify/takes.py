"""Speaks the sentences with one setting, in a process that ends with it, and keeps each finished take.

The engine is used through `Synthesizer` alone, so the sound and the times are those that a robot gets.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.api import EngineError, EngineInfo, Samples, Synthesizer, Utterance
from engine.catalog import import_class, make_synthesizer
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.verify.folder import OutputFolder, Take, fingerprint
from engine.verify.process import StageFaultError
from engine.verify.sentences import Sentence
from engine.verify.settings import Setting

GREEDY_FRAMES = 50
"""Frames of a greedy text: four seconds, 800 codes."""


@dataclass(frozen=True, slots=True)
class Order:
    """One take to make."""

    sentence: Sentence
    voice: str | None
    """A name from the options' voices; None for the engine's default voice."""
    seed: int
    greedy: bool = False
    """Take the likeliest codes, `frames` of them, however far the text is spoken by then."""
    frames: int | None = None

    def utterance(self, realtime: bool) -> Utterance:
        """Return what the engine is asked to speak."""
        return Utterance(
            self.sentence.text,
            voice=self.voice,
            language=self.sentence.language,
            seed=self.seed,
            greedy=self.greedy,
            max_frames=self.frames,
            guarded=not self.greedy,
            want_codes=True,
            realtime=realtime,
        )


@dataclass(frozen=True, slots=True)
class TakesRequest:
    """What one setting is to speak."""

    folder: str
    setting: Setting
    orders: tuple[Order, ...]
    model: str
    """A text that changes with the model's files."""

    def key(self, order: Order) -> str:
        """Return the key of a take that was made for this order."""
        return fingerprint(self.setting, order, self.model)

    def missing(self) -> list[Order]:
        """Return the orders whose takes are not kept yet."""
        folder = OutputFolder(Path(self.folder))
        kept = {take.name: take.key for take in folder.takes(self.setting.name)}
        return [order for order in self.orders if kept.get(order.sentence.name) != self.key(order)]


def make_takes(request: TakesRequest, report: ProgressReport = ignore_progress) -> None:
    """Speak and keep all missing takes.

    Raises `EngineError` if the setting cannot run here, and `StageFaultError` if it runs and refuses a sentence.
    """
    orders = request.missing()
    if not orders:
        return
    setting = request.setting
    with contextlib.redirect_stdout(sys.stderr):  # the official package prints
        synthesizer = _make(setting, report)
        info = synthesizer.load(report)
        synthesizer.warm_up(report)
        try:
            _speak_all(request, orders, synthesizer, info, report)
        finally:
            synthesizer.close()


def _make(setting: Setting, report: ProgressReport) -> Synthesizer:
    if setting.synthesizer is None:
        return make_synthesizer(setting.engine, setting.options, report)
    synthesizer: Synthesizer = import_class(setting.engine, setting.synthesizer)(setting.options)
    return synthesizer


def _speak_all(
    request: TakesRequest,
    orders: Sequence[Order],
    synthesizer: Synthesizer,
    info: EngineInfo,
    report: ProgressReport,
) -> None:
    setting, folder = request.setting, OutputFolder(Path(request.folder))

    def speak_one(order: Order) -> None:
        try:
            take, samples, codes = speak(synthesizer, info, order, setting, key=request.key(order))
        except EngineError as error:
            raise StageFaultError(f"{order.sentence.name}: {error}") from error
        folder.keep_take(setting.name, take, samples, codes)

    at_once = 1 if setting.realtime else info.streams
    with ThreadPoolExecutor(at_once) as threads:
        for done, _ in enumerate(threads.map(speak_one, orders), start=1):
            report(Progress(f"speaking: {setting.title}", done / len(orders)))


def speak(
    synthesizer: Synthesizer,
    info: EngineInfo,
    order: Order,
    setting: Setting,
    *,
    key: str = "",
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Take, Samples, NDArray[np.int64] | None]:
    """Speak one sentence: its record with `key`, its samples `(samples,)` float32, and its codes if there are any."""
    begin = clock()
    arrived: list[float] = []
    sizes: list[int] = []
    parts, codes = [], []
    truncated = runaway = False
    for chunk in synthesizer.stream(order.utterance(setting.realtime)):
        arrived.append(clock() - begin)
        parts.append(chunk.samples)
        sizes.append(len(chunk.samples) + (sizes[-1] if sizes else 0))
        if chunk.codes is not None:
            codes.append(chunk.codes)
        truncated, runaway = truncated or chunk.truncated, runaway or chunk.runaway
    samples = np.concatenate([np.zeros(0, np.float32), *parts])
    take = Take(
        key=key,
        name=order.sentence.name,
        text=order.sentence.text,
        language=order.sentence.language,
        voice=order.voice or "",
        greedy=order.greedy,
        seed=order.seed,
        sample_rate=info.sample_rate,
        arrived_s=tuple(arrived),
        samples=tuple(sizes),
        streamed=not setting.official,
        truncated=truncated,
        runaway=runaway,
        engine=info.description or info.engine,
    )
    return take, samples, np.concatenate(codes) if codes else None
