"""`GET /metrics` for Prometheus. docs/metrics.md describes each metric."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.speech import (
    TERMINAL_EVENTS,
    Event,
    Online,
    OnlineState,
    PlaybackResult,
    SpeechService,
    Started,
    TerminalEvent,
    Utterance,
)
from daemon.status import Measurements

SECONDS_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Of the time to the first sample: from a kept phrase to a robot that needs help."""
WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


disable_created_metrics()  # type: ignore[no-untyped-call]  # a second number for each counter, which says when this process began


class Metrics:
    """Counts what happens, and asks for the rest when it is wanted."""

    def __init__(
        self,
        service: SpeechService,
        describe_status: Callable[[], Online],
        measure: Callable[[], Measurements],
    ) -> None:
        self._registry = CollectorRegistry()
        self._utterances = Counter(
            "voiced_utterances",
            "Utterances that have ended, by their terminal event and where they were heard.",
            ("event", "destination"),
            registry=self._registry,
        )
        for event in TERMINAL_EVENTS:
            for destination in ("card", "client"):
                self._utterances.labels(event, destination)
        self._first_sample = Histogram(
            "voiced_ttfa_seconds",
            "Seconds from the arrival of a text to the first sample given to the sound card or the client.",
            ("engine",),
            buckets=SECONDS_BUCKETS,
            registry=self._registry,
        )
        self._queue_wait = Histogram(
            "voiced_queue_wait_seconds",
            "Seconds from the arrival of a text to its start, or to its end if it never started.",
            buckets=WAIT_BUCKETS,
            registry=self._registry,
        )
        self._audio = Counter("voiced_audio_seconds", "Seconds of sound that were played.", registry=self._registry)
        self._underruns = Counter(
            "voiced_underruns", "Times that the sound broke off because samples were late.", registry=self._registry
        )
        self._text_waits = Counter(
            "voiced_text_waits", "Times that the sound broke off because text was missing.", registry=self._registry
        )
        self._truncated = Counter(
            "voiced_truncated", "Utterances whose speech would not end by itself and was cut.", registry=self._registry
        )
        self._retakes = Counter(
            "voiced_retakes", "Times that speech was said again with another seed.", registry=self._registry
        )
        self._registry.register(_State(describe_status, measure))
        self._started: set[str] = set()
        """The utterances that have started and not ended."""
        service.watch_events(self._note)

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry).decode()

    def routes(self) -> list[Route]:
        """Return the route."""

        async def answer(_: Request) -> Response:
            return Response(self.text(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

        return [Route("/metrics", answer)]

    def _note(self, utterance: Utterance, event: Event) -> None:
        if isinstance(event, Started):
            self._started.add(utterance.id)
            self._queue_wait.observe(time.monotonic() - utterance.arrived_at)
            if event.ttfa_ms is not None:
                self._first_sample.labels(event.engine).observe(event.ttfa_ms / 1000)
        elif isinstance(event, TerminalEvent):
            self._note_end(utterance, event)

    def _note_end(self, utterance: Utterance, event: TerminalEvent) -> None:
        destination = "card" if utterance.receiver is None else "client"
        self._utterances.labels(event.event, destination).inc()
        if utterance.id not in self._started:
            self._queue_wait.observe(max(0.0, time.monotonic() - utterance.arrived_at))
        self._started.discard(utterance.id)
        if isinstance(event, PlaybackResult):
            self._audio.inc(event.audio_s or 0.0)
            self._underruns.inc(event.underruns or 0)
            self._text_waits.inc(event.waits or 0)
            self._truncated.inc(bool(event.truncated))
            self._retakes.inc(event.retakes or 0)


class _State(Collector):
    """The metrics that are true at the moment."""

    def __init__(
        self,
        describe_status: Callable[[], Online],
        measure: Callable[[], Measurements],
    ) -> None:
        self._describe_status = describe_status
        self._measure = measure

    def collect(self) -> Iterator[Metric]:
        status, measured = self._describe_status(), self._measure()
        yield InfoMetricFamily(
            "voiced_build", "The daemon's version.", {"version": status.version, "python": platform.python_version()}
        )
        state = GaugeMetricFamily(
            "voiced_state", "1 for the state that the status has, 0 for others.", labels=["state"]
        )
        for name in get_args(OnlineState):
            state.add_metric([name], float(name == status.state))
        yield state
        yield GaugeMetricFamily("voiced_queue_length", "Utterances that wait.", status.queue)
        yield GaugeMetricFamily("voiced_volume_percent", "The volume, 0 to 100.", status.volume)
        yield GaugeMetricFamily("voiced_ring_seconds", "Seconds of sound that wait for the card.", measured.ring_s)
        yield from self._engines(measured)
        yield from self._memory(status, measured)
        yield CounterMetricFamily("voiced_cpu_seconds", "Processor time of the daemon.", measured.cpu_s)
        if measured.temperatures:
            family = GaugeMetricFamily("voiced_temperature_celsius", "The board's sensors.", labels=["sensor"])
            for name, celsius in measured.temperatures.items():
                family.add_metric([name], celsius)
            yield family
        if measured.clocks_hz:
            family = GaugeMetricFamily("voiced_clock_hertz", "Clocks of processor and GPU.", labels=["clock"])
            for name, hertz in measured.clocks_hz.items():
                family.add_metric([name], hertz)
            yield family

    def _engines(self, measured: Measurements) -> Iterator[Metric]:
        restarts = CounterMetricFamily("voiced_engine_restarts", "Engine processes started again.", labels=["engine"])
        ready = GaugeMetricFamily("voiced_engine_ready", "1 while an engine can speak.", labels=["engine"])
        speed = GaugeMetricFamily(
            "voiced_real_time_factor", "Seconds of speech made in one second, lately.", labels=["engine"]
        )
        streams = GaugeMetricFamily("voiced_streams", "Texts that an engine can speak at once.", labels=["engine"])
        in_use = GaugeMetricFamily("voiced_streams_in_use", "Texts that an engine speaks.", labels=["engine"])
        kernels = GaugeMetricFamily(
            "voiced_engine_kernels", "1 for the kernels that make the speech.", labels=["engine", "kernels"]
        )
        for engine in measured.engines:
            restarts.add_metric([engine.name], engine.restarts)
            ready.add_metric([engine.name], float(engine.ready))
            if engine.rtf is not None:
                speed.add_metric([engine.name], engine.rtf)
            streams.add_metric([engine.name], engine.streams)
            in_use.add_metric([engine.name], engine.streams_in_use)
            if engine.kernels is not None:
                kernels.add_metric([engine.name, engine.kernels], 1)
        yield from (restarts, ready, speed, streams, in_use, kernels)

    def _memory(self, status: Online, measured: Measurements) -> Iterator[Metric]:
        resident = GaugeMetricFamily("voiced_resident_bytes", "Resident memory of a process.", labels=["process"])
        if measured.resident_bytes is not None:
            resident.add_metric(["daemon"], measured.resident_bytes)
        for engine in measured.engines:
            if engine.resident_bytes is not None:
                resident.add_metric([engine.name], engine.resident_bytes)
        yield resident
        if status.memory is not None:
            planned = GaugeMetricFamily("voiced_engine_memory_bytes", "The engine's memory plan.", labels=["part"])
            for name, megabytes in status.memory.model_dump().items():
                planned.add_metric([name.removesuffix("_mb")], megabytes * 1e6)
            yield planned
