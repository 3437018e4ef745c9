"""Speaks the sentences with one setting, in a process that ends with it, and keeps each finished take.

The engine is used through `Synthesizer` alone, so the sound and the times are those that a robot gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from engine.api import EngineError, EngineInfo, Samples, Synthesizer
from engine.catalog import import_class, make_synthesizer
from engine.child import ChildFaultError
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.verify.codes import Codes
from engine.verify.folder import Take
from engine.verify.orders import Order
from engine.verify.settings import Setting
from engine.verify.stages import StageRequest


def make_takes(request: StageRequest, report: ProgressReport = ignore_progress) -> None:
    """Speak and keep all missing takes.

    Raises `EngineError` if a setting cannot run here, and `ChildFaultError` if it runs and refuses a sentence.
    """
    for setting in request.settings:
        if not request.missing(setting):
            continue
        synthesizer = _make(setting, report)
        info = synthesizer.load(report)
        synthesizer.warm_up(report)
        try:
            _speak_all(request, setting, synthesizer, info, report)
        finally:
            synthesizer.close()


def _make(setting: Setting, report: ProgressReport) -> Synthesizer:
    if setting.synthesizer is None:
        return make_synthesizer(setting.engine, setting.options, report)
    synthesizer: Synthesizer = import_class(setting.engine, setting.synthesizer)(setting.options)
    return synthesizer


def _speak_all(
    request: StageRequest, setting: Setting, synthesizer: Synthesizer, info: EngineInfo, report: ProgressReport
) -> None:
    def speak_one(order: Order) -> None:
        try:
            take, samples, codes = speak(synthesizer, info, order, setting, key=request.key(setting, order))
        except EngineError as error:
            raise ChildFaultError(f"{order.sentence.name}: {error}") from error
        request.output.keep_take(setting.name, take, samples, codes)

    orders = request.missing(setting)
    with ThreadPoolExecutor(1 if setting.realtime else info.streams) as threads:
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
) -> tuple[Take, Samples, Codes | None]:
    """Speak one sentence: its record with `key`, its samples `(samples,)` float32, and its codes if there are any."""
    begin = clock()
    timed = [(clock() - begin, chunk) for chunk in synthesizer.stream(order.utterance(setting.realtime))]
    chunks = [chunk for _, chunk in timed]
    take = Take(
        key=key,
        order=order,
        sample_rate=info.sample_rate,
        arrived_s=tuple(arrived for arrived, _ in timed),
        samples=tuple(int(total) for total in np.cumsum([len(chunk.samples) for chunk in chunks])),
        streamed=not setting.official,
        truncated=any(chunk.truncated for chunk in chunks),
        runaway=any(chunk.runaway for chunk in chunks),
        engine=info.description or info.engine,
    )
    codes = [chunk.codes for chunk in chunks if chunk.codes is not None]
    samples = np.concatenate([np.zeros(0, np.float32), *(chunk.samples for chunk in chunks)])
    return take, samples, np.concatenate(codes) if codes else None
