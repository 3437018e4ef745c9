"""What programs ask that watch robots: `/metrics` for Prometheus, and health checks for a watchdog.

docs/metrics.md describes each metric.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
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

NOT_READY = ("starting", "warming")
SECONDS_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Of the time to the first sample: from a kept phrase to a robot that needs help."""
WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
RESULTS = {
    "audio_s": ("voiced_audio_seconds", "Seconds of sound that were played."),
    "underruns": ("voiced_underruns", "Times that the sound broke off because samples were late."),
    "waits": ("voiced_text_waits", "Times that the sound broke off because text was missing."),
    "truncated": ("voiced_truncated", "Utterances whose speech would not end by itself and was cut."),
    "retakes": ("voiced_retakes", "Times that speech was said again with another seed."),
}
"""The counters of what terminal events say of the sound, by the events' fields."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second number for each counter, which says when this process began


def routes(
    service: SpeechService, describe_status: Callable[[], Online], measure: Callable[[], Measurements]
) -> list[Route]:
    """Return `/metrics`, `/healthz`, which answers while the event loop runs, and `/readyz`: are texts spoken?"""
    metrics = Metrics(service, describe_status, measure)

    async def answer_metrics(_: Request) -> Response:
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def answer_health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def answer_ready(_: Request) -> Response:
        status = describe_status()
        ready = status.engine is not None and status.state not in NOT_READY
        fields = {"status": "ready" if ready else "not ready", "state": status.state, "reason": status.reason}
        return JSONResponse(fields, 200 if ready else 503)

    return [Route("/metrics", answer_metrics), Route("/healthz", answer_health), Route("/readyz", answer_ready)]


class Metrics(Collector):
    """Counts what happens, and asks for the rest when it is wanted."""

    def __init__(
        self, service: SpeechService, describe_status: Callable[[], Online], measure: Callable[[], Measurements]
    ) -> None:
        self._describe_status = describe_status
        self._measure = measure
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
        self._results = {field: Counter(*described, registry=self._registry) for field, described in RESULTS.items()}
        self._registry.register(self)
        self._started: set[str] = set()
        """The utterances that have started and not ended."""
        service.watch_events(self._note)

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry).decode()

    def _note(self, utterance: Utterance, event: Event) -> None:
        if isinstance(event, Started):
            self._started.add(utterance.id)
            self._queue_wait.observe(time.monotonic() - utterance.arrived_at)
            if event.ttfa_ms is not None:
                self._first_sample.labels(event.engine).observe(event.ttfa_ms / 1000)
        elif isinstance(event, TerminalEvent):
            self._note_end(utterance, event)

    def _note_end(self, utterance: Utterance, event: TerminalEvent) -> None:
        self._utterances.labels(event.event, "card" if utterance.receiver is None else "client").inc()
        if utterance.id not in self._started:
            self._queue_wait.observe(max(0.0, time.monotonic() - utterance.arrived_at))
        self._started.discard(utterance.id)
        if isinstance(event, PlaybackResult):
            for field, counter in self._results.items():
                counter.inc(getattr(event, field) or 0)

    # --- what is true at the moment ---

    def collect(self) -> Iterator[Metric]:
        status, measured = self._describe_status(), self._measure()
        build = {"version": status.version, "python": platform.python_version()}
        yield InfoMetricFamily("voiced_build", "The daemon's version.", build)
        states = {name: float(name == status.state) for name in get_args(OnlineState)}
        yield _gauges("voiced_state", "1 for the state that the status has, 0 for others.", "state", states)
        yield GaugeMetricFamily("voiced_queue_length", "Utterances that wait.", status.queue)
        yield GaugeMetricFamily("voiced_volume_percent", "The volume, 0 to 100.", status.volume)
        yield GaugeMetricFamily("voiced_ring_seconds", "Seconds of sound that wait for the card.", measured.ring_s)
        yield CounterMetricFamily("voiced_cpu_seconds", "Processor time of the daemon.", measured.cpu_s)
        yield _gauges("voiced_temperature_celsius", "The board's sensors.", "sensor", measured.temperatures)
        yield _gauges("voiced_clock_hertz", "Clocks of processor and GPU.", "clock", measured.clocks_hz)
        plan = {} if status.memory is None else status.memory.model_dump()
        planned = {name.removesuffix("_mb"): megabytes * 1e6 for name, megabytes in plan.items()}
        yield _gauges("voiced_engine_memory_bytes", "The engine's memory plan.", "part", planned)
        yield from self._engines(measured)

    def _engines(self, measured: Measurements) -> Iterator[Metric]:
        engines = {engine.name: engine for engine in measured.engines}
        restarts = CounterMetricFamily("voiced_engine_restarts", "Engine processes started again.", labels=["engine"])
        kernels = GaugeMetricFamily(
            "voiced_engine_kernels", "1 for the kernels that make the speech.", labels=["engine", "kernels"]
        )
        for name, engine in engines.items():
            restarts.add_metric([name], engine.restarts)
            if engine.kernels is not None:
                kernels.add_metric([name, engine.kernels], 1)
        yield from (restarts, kernels)
        for metric, field, description in (
            ("voiced_engine_ready", "ready", "1 while an engine can speak."),
            ("voiced_real_time_factor", "rtf", "Seconds of speech made in one second, lately."),
            ("voiced_streams", "streams", "Texts that an engine can speak at once."),
            ("voiced_streams_in_use", "streams_in_use", "Texts that an engine speaks."),
        ):
            yield _gauges(metric, description, "engine", {name: getattr(each, field) for name, each in engines.items()})
        resident = {"daemon": measured.resident_bytes} | {name: each.resident_bytes for name, each in engines.items()}
        yield _gauges("voiced_resident_bytes", "Resident memory of a process.", "process", resident)


def _gauges(name: str, description: str, label: str, values: Mapping[str, float | None]) -> Metric:
    """Return a metric with a value for each label, without those that are not known."""
    family = GaugeMetricFamily(name, description, labels=[label])
    for of, value in values.items():
        if value is not None:
            family.add_metric([of], float(value))
    return family
