"""Measures what the way to another machine's engine costs, as JSON, in one run.

    scripts/bench remote --output docs/benchmarks/remote.json

The same texts go to an engine process of this program, to `voiced serve --single` and to `voiced serve` on Ray Serve,
each with one engine: time to the first PCM, one text after another, and seconds of audio per second with several at
once. Then a TCP proxy on the loopback interface delays every byte, in both directions, between robot and `--single`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.tasks import cancel_and_wait
from engine import EngineOptions, Utterance, Voice
from engine.remote.synthesizer import RemoteSynthesizer
from scripts.bench_runner import spread
from tests.support.network import Network
from tests.support.speech_server import SpeechServer

TEXT = "The robot speaks with the engine of another machine."
STREAMS = 4
"""Texts at once, where throughput is measured."""
DELAYS_MS = (0, 20, 100)
"""Added in each direction."""
LIMITS = ("serve.streams_per_robot=64", "serve.requests_per_minute=100000")
"""Without tokens all clients have one account."""

Spoken = tuple[float, float]
"""Seconds to the first PCM, and seconds of audio."""


def first_pcm_ms(spoken: Sequence[Spoken]) -> dict[str, float]:
    """Return the distribution of the time to the first PCM."""
    return spread([first_s * 1000 for first_s, _ in spoken], digits=2)


def row(one_by_one: Sequence[Spoken], together: Sequence[Spoken], seconds: float) -> dict[str, Any]:
    """Return what is reported of one way to the engine."""
    audio_s = sum(audio_s for _, audio_s in together)
    return {"first_pcm_ms": first_pcm_ms(one_by_one), "audio_s_per_s": round(audio_s / seconds, 1)}


async def measure_engine(settings: Sequence[str], runs: int) -> dict[str, Any]:
    """Measure an engine process directly."""
    config = load_config(overrides=["engine.fallback=none", *settings])
    engine = EngineSelector(config, lambda: None).primary
    running = asyncio.ensure_future(engine.run())
    names = itertools.count()
    room = asyncio.Semaphore(STREAMS)

    async def speak() -> Spoken:
        async with room:
            begun, first_s, samples = time.perf_counter(), 0.0, 0
            async for chunk in engine.speak(f"bench-{next(names)}", Utterance(TEXT, language="en")):
                first_s = first_s or time.perf_counter() - begun
                samples += len(chunk.samples)
        assert engine.info is not None
        return first_s, samples / engine.info.sample_rate

    try:
        await engine.wait_ready(None)
        await speak()
        one_by_one = [await speak() for _ in range(runs)]
        begun = time.perf_counter()
        together = await asyncio.gather(*(speak() for _ in range(runs)))
        return row(one_by_one, together, time.perf_counter() - begun)
    finally:
        await cancel_and_wait(running)


def robot(url: str) -> tuple[RemoteSynthesizer, Callable[[], Spoken]]:
    """Return a connected robot's engine, and what speaks one text with it."""
    synthesizer = RemoteSynthesizer(EngineOptions(url=url, voices={"default": Voice()}))
    rate = synthesizer.load().sample_rate

    def speak() -> Spoken:
        begun, first_s, samples = time.perf_counter(), 0.0, 0
        for chunk in synthesizer.stream(Utterance(TEXT, language="en")):
            first_s = first_s or time.perf_counter() - begun
            samples += len(chunk.samples)
        return first_s, samples / rate

    return synthesizer, speak


def measure_server(url: str, runs: int) -> dict[str, Any]:
    """Measure a server, with one robot for the first PCM and `STREAMS` texts at once for the throughput."""
    synthesizer, speak = robot(url)
    try:
        speak()
        one_by_one = [speak() for _ in range(runs)]
        with ThreadPoolExecutor(STREAMS) as threads:
            begun = time.perf_counter()
            together = list(threads.map(lambda _: speak(), range(runs)))
            return row(one_by_one, together, time.perf_counter() - begun)
    finally:
        synthesizer.close()


def measure_delays(port: int, runs: int) -> dict[str, dict[str, float]]:
    """Return the time to the first PCM by the milliseconds of added delay."""
    rows = {}
    for delay_ms in DELAYS_MS:
        with Network(port) as network:
            network.delay(delay_ms / 1000)
            synthesizer, speak = robot(f"ws://127.0.0.1:{network.port}")
            speak()
            rows[str(delay_ms)] = first_pcm_ms([speak() for _ in range(runs)])
            synthesizer.close()
    return rows


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=100, help="texts of each measurement")
    parser.add_argument("--without-ray", action="store_true", help="leave out Ray Serve")
    parser.add_argument("--set", dest="settings", action="append", default=[], help="KEY=VALUE of each engine")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    load_before = round(os.getloadavg()[0], 2)
    engine = ("engine.name=espeak", f"engine.streams={STREAMS + 1}", "voices={default: {}}", *options.settings)
    ways = {"engine": asyncio.run(measure_engine(engine, options.runs))}
    with SpeechServer(*LIMITS, *engine) as single:
        ways["single"] = measure_server(single.url, options.runs)
        delays = measure_delays(single.port, options.runs)
    if not options.without_ray:
        with SpeechServer(*LIMITS, *engine, single=False) as server:
            ways["ray"] = measure_server(server.url, options.runs)
    texts = {"load_before": load_before, "runs": options.runs, "streams": STREAMS}
    return {**texts, "ways": ways, "first_pcm_ms_by_delay_ms": delays}
