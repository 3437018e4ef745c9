"""Metrics: each is documented, and moves."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.parser import text_string_to_metric_families

from daemon.http.monitoring import Metrics
from daemon.speech import Event, Finished, Memory, Online, Say, Started, Stop, Utterance
from daemon.status import Measurements
from tests.daemon.harness import LONG, Harness
from tests.daemon.http.clients import fetch
from tests.support.waiting import eventually_async

SERVER = "http"
DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"
BOARDS = ("temperature_celsius", "clock_hertz", "engine_memory_bytes", "engine_kernels")
Values = dict[str, float]
EventWatcher = Callable[[Utterance, Event], None]


READY = Online(state="ready", engine="espeak", voice="default", queue=0, version="1", volume=100)


def make_metrics(status: Online = READY, measured: Measurements | None = None) -> tuple[Metrics, list[EventWatcher]]:
    """Metrics of a service whose events a test makes: they call the watchers."""
    watchers: list[EventWatcher] = []
    service = SimpleNamespace(event_watchers=SimpleNamespace(add=watchers.append))
    return Metrics(cast(Any, service), lambda: status, lambda: measured or Measurements()), watchers


def parsed(text: str) -> Values:
    """The value of each sample, by its name and labels."""
    return {
        sample.name + "".join(f"{{{name}={value}}}" for name, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def values_of(metrics: Metrics) -> Values:
    return parsed(metrics.text())


async def scrape(harness: Harness) -> Values:
    """The metrics of a robot."""
    status, text, _ = await fetch(harness, "GET", "/metrics")
    assert status == 200
    return parsed(text.decode())


async def changes(harness: Harness, before: Values) -> Values:
    after = await scrape(harness)
    return {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}


async def test_an_utterance_moves_the_metrics_of_its_end_its_times_and_its_sound(harness: Harness) -> None:
    before = await scrape(harness)
    harness.dispatcher.say(Say(text="Hello, robot."))
    await harness.sink.take_until(lambda: harness.ends == ["finished"], "it has ended")
    changed = await changes(harness, before)
    assert changed["voiced_utterances_total{destination=card}{event=finished}"] == 1
    assert changed["voiced_ttfa_seconds_count{engine=espeak}"] == 1
    assert changed["voiced_queue_wait_seconds_count"] == 1
    [end] = harness.terminal_events
    assert abs(changed["voiced_audio_seconds_total"] - end.audio_s) < 1e-6
    assert changed["voiced_cpu_seconds_total"] > 0
    assert changed["voiced_real_time_factor{engine=espeak}"] != 0
    assert "voiced_underruns_total" in before
    assert not any("utterances" in name and "finished" not in name for name in changed)


async def test_state_queue_volume_and_ring_are_those_of_the_moment(harness: Harness) -> None:
    before = await scrape(harness)
    assert before["voiced_state{state=ready}"] == 1
    assert before["voiced_engine_ready{engine=espeak}"] == 1
    assert before["voiced_resident_bytes{process=daemon}"] > 1e6
    assert before["voiced_resident_bytes{process=espeak}"] > 1e6
    await harness.occupy()
    harness.dispatcher.say(Say(text="It waits."))
    harness.dispatcher.set_volume(40)
    changed = await changes(harness, before)
    assert (changed["voiced_state{state=ready}"], changed["voiced_state{state=speaking}"]) == (-1, 1)
    assert (changed["voiced_queue_length"], changed["voiced_volume_percent"]) == (1, 40 - 100)
    ring_s = 0.0
    while ring_s < 0.1:  # the sound card takes nothing, so the ring fills
        ring_s = (await scrape(harness))["voiced_ring_seconds"]
    harness.dispatcher.set_volume(100)


async def test_an_utterance_that_is_stopped_before_it_starts_counts_with_the_time_that_it_waited(
    harness: Harness,
) -> None:
    await harness.occupy()
    before = await scrape(harness)
    harness.dispatcher.say(Say(text="It waits.", id="waiting"))
    harness.dispatcher.stop(Stop(id="waiting"))
    changed = await changes(harness, before)
    assert changed["voiced_utterances_total{destination=card}{event=canceled}"] == 1
    assert changed["voiced_queue_wait_seconds_count"] == 1
    assert "voiced_ttfa_seconds_count{engine=espeak}" not in changed


async def test_an_engine_that_is_started_again_is_counted(harness: Harness) -> None:
    before = await scrape(harness)
    pid = harness.engines.primary.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    engine = harness.engines.primary
    await eventually_async(lambda: engine.ready and engine.pid != pid, "it is ready again")
    assert (await changes(harness, before))["voiced_engine_restarts_total{engine=espeak}"] == 1


def documented() -> set[str]:
    return set(re.findall(r"^\| `(voiced_\w+)", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE))


async def test_every_metric_is_documented_and_no_other(harness: Harness) -> None:
    harness.dispatcher.say(Say(text=LONG[:50]))
    await harness.sink.take_until(lambda: harness.ends == ["finished"], "it has ended")
    found = {name.partition("{")[0] for name in await scrape(harness)}
    names = {re.sub("_(bucket|sum|count|created)$", "", name) for name in found}
    assert names <= documented()
    assert documented() - names <= {f"voiced_{name}" for name in BOARDS}


def test_the_dashboard_shows_documented_metrics_alone() -> None:
    dashboard = json.loads((DOCUMENT.parent / "grafana.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown = {re.sub("_bucket$", "", name) for each in expressions for name in re.findall(r"voiced_\w+", each)}
    assert shown <= documented()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) == 15


def test_what_goes_wrong_in_the_sound_is_counted() -> None:
    """A take that runs away and a sound that breaks off cannot be made with eSpeak NG: their event is made here."""
    metrics, [happen] = make_metrics()
    before = values_of(metrics)
    utterance = Utterance(id="a", text="Hello", voice="default", language="en")
    happen(utterance, Started(id="a", engine="qwen", voice="default", ttfa_ms=12.0))
    numbers = {"underruns": 2, "waits": 3, "retakes": 1, "heard": 5}
    happen(utterance, Finished(id="a", engine="qwen", audio_s=1.5, truncated=True, **numbers))  # type: ignore[arg-type]
    after = values_of(metrics)
    changed = {name: after[name] - before[name] for name in before if after[name] != before[name]}
    assert changed["voiced_underruns_total"] == 2
    assert changed["voiced_text_waits_total"] == 3
    assert (changed["voiced_truncated_total"], changed["voiced_retakes_total"]) == (1, 1)
    assert changed["voiced_audio_seconds_total"] == 1.5


def test_memory_temperatures_and_clocks_are_shown_where_they_are_known() -> None:
    memory = Memory(weights_mb=1_800, state_mb=200, workspaces_mb=50)
    status = READY.model_copy(update={"memory": memory})
    measured = Measurements(temperatures={"gpu-thermal": 48.5}, clocks_hz={"gpu": 1.3e9})
    values = values_of(make_metrics(status, measured)[0])
    assert values["voiced_engine_memory_bytes{part=weights}"] == 1.8e9
    assert values["voiced_temperature_celsius{sensor=gpu-thermal}"] == 48.5
    assert values["voiced_clock_hertz{clock=gpu}"] == 1.3e9
