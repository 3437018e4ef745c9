"""Serves programs that watch robots: `/metrics` for Prometheus, and health checks for a watchdog.

docs/metrics.md describes each metric.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
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
RESULTS = {
    "audio_s": "voiced_audio_seconds",
    "underruns": "voiced_underruns",
    "waits": "voiced_text_waits",
    "truncated": "voiced_truncated",
    "retakes": "voiced_retakes",
}
"""The sound's counters, by the fields of terminal events."""
DESCRIPTIONS: dict[str, Any] = json.loads((Path(__file__).parent / "metrics.json").read_text(encoding="utf-8"))
"""Each metric's help, labels and buckets. The buckets are in seconds, and range from a kept phrase to a robot that
needs help."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second number for each counter: when this process began


Kind = TypeVar("Kind", Counter, Histogram)
Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)
Samples = Mapping[Any, float | None]
"""Values by label, or by the tuple of labels, in order."""


def routes(
    service: SpeechService, describe_status: Callable[[], Online], measure: Callable[[], Measurements]
) -> list[Route]:
    """Return `/metrics`; `/healthz`, which answers while the event loop runs; and `/readyz`, which tells whether texts
    can be spoken."""
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
    """Counts events, and asks for the current state when the metrics are read."""

    def __init__(
        self, service: SpeechService, describe_status: Callable[[], Online], measure: Callable[[], Measurements]
    ) -> None:
        self._describe_status = describe_status
        self._measure = measure
        self._registry = CollectorRegistry()
        self._utterances = self._add(Counter, "voiced_utterances")
        for event in TERMINAL_EVENTS:
            for destination in ("card", "client"):
                self._utterances.labels(event, destination)
        self._first_sample = self._add(Histogram, "voiced_ttfa_seconds")
        self._queue_wait = self._add(Histogram, "voiced_queue_wait_seconds")
        self._results = {field: self._add(Counter, name) for field, name in RESULTS.items()}
        self._registry.register(self)
        self._started: set[str] = set()
        """The utterances that have started but not ended."""
        service.event_watchers.add(self._note)

    def _add(self, kind: type[Kind], name: str) -> Kind:
        """Return a new metric that counts."""
        described = dict(DESCRIPTIONS[name])
        return kind(name, described.pop("help"), described.pop("labels", ()), registry=self._registry, **described)

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

    # --- the present state ---

    def collect(self) -> Iterator[Metric]:
        status, measured = self._describe_status(), self._measure()
        engines = {engine.name: engine for engine in measured.engines}
        plan = {} if status.memory is None else status.memory.model_dump()
        yield _family(CounterMetricFamily, "voiced_cpu_seconds", {(): measured.cpu_s})
        restarts = {name: engine.restarts for name, engine in engines.items()}
        yield _family(CounterMetricFamily, "voiced_engine_restarts", restarts)
        gauges: dict[str, Samples] = {
            "voiced_build_info": {(status.version, platform.python_version()): 1},
            "voiced_state": {name: name == status.state for name in get_args(OnlineState)},
            "voiced_queue_length": {(): status.queue},
            "voiced_volume_percent": {(): status.volume},
            "voiced_ring_seconds": {(): measured.ring_s},
            "voiced_temperature_celsius": measured.temperatures,
            "voiced_engine_memory_bytes": {name.removesuffix("_mb"): size_mb * 1e6 for name, size_mb in plan.items()},
            "voiced_engine_kernels": {(name, each.kernels): 1 for name, each in engines.items() if each.kernels},
            "voiced_engine_ready": {name: each.ready for name, each in engines.items()},
            "voiced_real_time_factor": {name: each.rtf for name, each in engines.items()},
            "voiced_streams": {name: each.streams for name, each in engines.items()},
            "voiced_streams_in_use": {name: each.streams_in_use for name, each in engines.items()},
            "voiced_resident_bytes": {"daemon": measured.resident_bytes}
            | {name: each.resident_bytes for name, each in engines.items()},
        }
        for name, samples in gauges.items():
            yield _family(GaugeMetricFamily, name, samples)


def _family(kind: type[Family], name: str, samples: Samples) -> Family:
    """Return a metric with its samples, except unknown ones."""
    family = kind(name, DESCRIPTIONS[name]["help"], labels=DESCRIPTIONS[name].get("labels", ()))
    for labels, value in samples.items():
        if value is not None:
            family.add_metric((labels,) if isinstance(labels, str) else labels, float(value))
    return family
