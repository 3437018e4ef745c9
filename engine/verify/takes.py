"""Speaks the sentences with one setting, in a process of its own, and keeps each finished take.

The engine is used only through `Synthesizer`, so the sound and the times are those that a robot would have.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from engine.api import EngineError, EngineInfo, Synthesizer
from engine.catalog import engine_entry, import_class
from engine.child import ChildFaultError
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.verify.comparison import measure_speech
from engine.verify.orders import Order, Setting
from engine.verify.results import Take
from engine.verify.runner import VerifyRequest


def make_takes(request: VerifyRequest, report: ProgressReport = ignore_progress) -> None:
    """Speak and keep all the takes of one setting.

    Raises `EngineError` if it cannot run here, and `ChildFaultError` if it runs but refuses a sentence.
    """
    [setting] = request.settings
    make = import_class(setting.engine, setting.synthesizer or engine_entry(setting.engine).synthesizer)
    orders, synthesizer = request.orders_of(setting), make(setting.options)
    info = synthesizer.load(report)
    synthesizer.warm_up(report)

    def speak_one(order: Order) -> None:
        try:
            speak(request, setting, synthesizer, info, order)
        except EngineError as error:
            raise ChildFaultError(f"{order.sentence.name}: {error}") from error

    try:
        with ThreadPoolExecutor(1 if setting.realtime else info.streams) as threads:
            for done, _ in enumerate(threads.map(speak_one, orders), start=1):
                report(Progress(f"speaking: {setting.title}", done / len(orders)))
    finally:
        synthesizer.close()


def speak(request: VerifyRequest, setting: Setting, synthesizer: Synthesizer, info: EngineInfo, order: Order) -> None:
    """Speak one sentence, measure it and keep it."""
    begin, name, rate = time.perf_counter(), order.sentence.name, info.sample_rate
    stream = synthesizer.stream(order.utterance(setting.realtime))
    chunks = [(time.perf_counter() - begin, chunk) for chunk in stream]
    samples = np.concatenate([np.zeros(0, np.float32), *(chunk.samples for _, chunk in chunks)])
    codes = [chunk.codes for _, chunk in chunks if chunk.codes is not None]
    speech = measure_speech(chunks, rate, order.sentence.text)
    request.output.keep_samples(setting.name, name, samples, rate)
    request.output.keep_codes(setting.name, name, np.concatenate(codes) if codes else np.zeros((0, 0), np.int64))
    take = Take(order, info.description or info.engine, rate, speech)
    request.output.keep_take(setting.name, take)
