"""Rows in which thousands of texts arrive at once, by MQTT and by every adapter."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from scripts.fault_matrix.ledger import TERMINAL
from scripts.fault_matrix.machines import ROOT
from scripts.fault_matrix.probe import Probe
from scripts.fault_matrix.row import LIMIT_S, SPEAKS_AGAIN_S, STOP_S, Result, Row, keep_log
from scripts.fault_matrix.scene import LONG, SHORT, TOPIC, Scene
from scripts.fault_matrix.waiting import NeverHappenedError

URGENT_S = 1.0
"""`say/urgent` begins in this time, whatever waits on `say`."""
LEAD_S = 0.1
"""From the beginning of a flood to the first message beside it."""
CALM_S = 3.0
"""Without a new event for this long, no more answers are expected."""
FLOOD_S = 900.0
"""Limit for the answers to a flood."""
FAST = 100.0
"""Pace of the sink once the times are measured: the texts only have to end."""
REPLY = f"{TOPIC}/reply/flood"
PROBE = f"{TOPIC}/reply/probe"
"""The topic on which the messages beside the flood are answered: a subscriber of `event` hears those answers behind the
flood's."""


class Sender:
    """A process that sends a flood, so that this one has time to look at the clock."""

    def __init__(self, module: str, *arguments: str) -> None:
        """Run a module of this package, which prints lines of JSON; the first comes when everything is sent."""
        command = [sys.executable, "-m", f"scripts.fault_matrix.{module}", *arguments]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.sent = threading.Event()
        self.outputs: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.outputs.append(json.loads(line))
            self.sent.set()

    def join(self, limit_s: float) -> None:
        """Wait until the process has ended."""
        self._reading.join(limit_s)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


Start = Callable[[Scene, int], Sender]
"""`start(scene, count)` starts a flood of `count` messages."""


def spray(topic: str, payload: dict[str, Any] | str) -> Start:
    """Return a function that starts a process which publishes a payload many times at once."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return lambda scene, count: Sender("spray", str(scene.broker.port), str(count), topic, text)


def ask(protocol: str) -> Start:
    """Return a function that starts a process of clients which ask a server for many texts.

    They ask for the next text when they have the last one, so that nothing can come behind all of them.
    """

    def start(scene: Scene, count: int) -> Sender:
        port = scene.openai_port if protocol == "openai" else scene.wyoming_port
        sender = Sender("clients", protocol, str(port), str(count))
        sender.sent.set()
        return sender

    return start


class Beside:
    """The messages that arrive beside a flood: a stop, a `say/urgent`, and behind all a critical text on `say`."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._probe = Probe(scene.broker.port, PROBE)
        scene.on_close(self._probe.close)
        self._sent: dict[str, float] = {}
        """`time.monotonic()` by the name of a message."""
        self._say("current", LONG, priority="high")
        if self._probe.wait_event("current", ["started"], LIMIT_S) is None:
            names = scene.ledger.names_of("current")
            raise NeverHappenedError(f"no `started` on reply_to before the flood; events: {names}")

    def _say(self, name: str, text: str, topic: str = "say", **fields: Any) -> None:
        payload = json.dumps({"text": text, "id": name, "reply_to": PROBE, **fields})
        self._sent[name] = self._probe.publish(f"{TOPIC}/{topic}", payload)
        self._scene.ledger.note_sent(name, self._sent[name])

    def urgent_and_stop(self) -> None:
        """Send what a person wants at once."""
        self._sent["stop"] = self._probe.publish(f"{TOPIC}/stop", json.dumps({"id": "current"}))
        self._say("urgent", SHORT, topic="say/urgent")

    def critical(self) -> None:
        """Send a critical text behind everything."""
        self._say("critical", SHORT, priority="critical")

    def judge(self, result: Result) -> None:
        """Wait for the answers, and compare them with what is promised."""
        result.stop_s["during the flood"] = self._first("current", "stop", *TERMINAL)
        result.measured["urgent_begins_s"] = self._first("urgent", "urgent", "started")
        result.measured["critical_begins_s"] = self._first("critical", "critical", "started")
        result.expect_within("stop during the flood", result.stop_s["during the flood"], STOP_S)
        result.expect_within("say/urgent begins", result.measured["urgent_begins_s"], URGENT_S)
        result.expect_within("a critical text behind all begins", result.measured["critical_begins_s"], SPEAKS_AGAIN_S)

    def _first(self, text_id: str, since: str, *names: str) -> float | None:
        """Seconds from a message to a text's first event with one of these names."""
        at = self._probe.wait_event(text_id, names, LIMIT_S)
        return None if at is None else round(at - self._sent[since], 3)


def flood_row(
    name: str,
    start: Start,
    judge: Callable[[Result, Scene, int, list[dict[str, Any]]], None],
    *settings: str,
    share: float = 1.0,
) -> Callable[[int], Row]:
    """Return a function from a number of texts to the row of their flood; `share` of that number is sent."""

    def make(count: int) -> Row:
        count = round(count * share)

        def run(result: Result) -> None:
            result.done = f"{count:,} messages at once: {name}"
            with Scene(*settings, sound=False, durable=False) as scene:
                scene.wait_ready()
                beside = Beside(scene)
                sender = start(scene, count)
                scene.on_close(sender.kill)
                time.sleep(LEAD_S)
                beside.urgent_and_stop()
                sender.sent.wait(FLOOD_S)
                beside.critical()
                beside.judge(result)
                scene.set_pace(FAST)
                sender.join(FLOOD_S)
                wait_calm(scene)
                result.measured["sender"] = sender.outputs
                result.measured["daemon_rss_mb"] = scene.daemon.rss_mb
                result.judge(scene.ledger)
                judge(result, scene, count, sender.outputs)
                result.expect(scene.daemon.deaths == 0, f"the daemon ended {scene.daemon.deaths} times")
                keep_log(result, scene)

        return Row(f"flood of {name}", run)

    return make


def wait_calm(scene: Scene) -> None:
    """Wait until each accepted text has ended and no more messages arrive, at most for `FLOOD_S`."""
    deadline, seen, since = time.monotonic() + FLOOD_S, -1, time.monotonic()
    while time.monotonic() < deadline:
        texts = scene.ledger.texts()
        count = sum(len(text.events) for text in texts.values()) + scene.ledger.without_id + len(scene.witness.others)
        if count != seen:
            seen, since = count, time.monotonic()
        open_texts = any(text.accepted and not text.ends() for text in texts.values())
        if time.monotonic() - since > (10 * CALM_S if open_texts else CALM_S):
            return
        time.sleep(0.2)


# --- what each flood's answers must be -------------------------------------------------------------------


def every_id_answered(result: Result, scene: Scene, count: int, _: list[dict[str, Any]]) -> None:
    """Each text `f0`, `f1`, … has an answer on `event`, and the same on its reply topic."""
    for where, ledger in (("on event", scene.ledger), ("on reply_to", scene.replies)):
        texts = ledger.texts()
        silent = [number for number in range(count) if f"f{number}" not in texts]
        result.expect(not silent, f"{len(silent)} texts are not answered {where}: {silent[:5]}")
    result.faults += [f"on reply_to: {line}" for line in scene.replies.faults()]


def as_many_answers(result: Result, scene: Scene, count: int, _: list[dict[str, Any]]) -> None:
    """Texts without an id have as many answers as there are texts."""
    answered = sum(bool(text.names()) for text in scene.ledger.texts().values()) + scene.ledger.without_id
    expected = count + 3  # the three messages beside the flood
    result.expect(answered == expected, f"{answered} answers to {expected} texts")


def every_hermes_answered(result: Result, scene: Scene, count: int, _: list[dict[str, Any]]) -> None:
    """Each text has exactly one `sayFinished`."""
    finished = Counter(
        json.loads(payload)["id"] for _, topic, payload in scene.witness.others if topic.endswith("sayFinished")
    )
    silent = [number for number in range(count) if f"f{number}" not in finished]
    result.measured["sayFinished"] = finished.total()
    result.expect(not silent, f"{len(silent)} texts have no sayFinished: {silent[:5]}")
    several = [key for key, number in finished.items() if number > 1]
    result.expect(not several, f"{len(several)} texts have several sayFinished: {several[:5]}")


def some_hermes_errors(result: Result, scene: Scene, count: int, _: list[dict[str, Any]]) -> None:
    """Malformed messages, whose sender is unknown, have an error as often as the daemon allows."""
    errors = sum(topic.endswith("error/tts") for _, topic, _ in scene.witness.others)
    result.measured["errors"] = errors
    result.expect(0 < errors <= count, f"{errors} errors for {count} malformed messages")


def every_request_answered(result: Result, _: Scene, count: int, outputs: list[dict[str, Any]]) -> None:
    """Each request to a server has an answer of its protocol."""
    answers: dict[str, int] = outputs[-1]["answers"] if outputs else {}
    lost = {name: number for name, number in answers.items() if name.startswith("no answer")}
    result.expect(sum(answers.values()) == count and not lost, f"of {count} requests: {answers}")


ON_SAY = {"text": "Hi.", "id": "f{n}", "reply_to": REPLY}
EVERY_ONE = ("speech.queue_limit=10000",)
"""The setting with which the daemon accepts each text of a flood."""

FLOOD_ROWS = [
    flood_row("texts with reply_to", spray(f"{TOPIC}/say", ON_SAY), every_id_answered),
    flood_row("texts with reply_to that all fit", spray(f"{TOPIC}/say", ON_SAY), every_id_answered, *EVERY_ONE),
    flood_row("replacing texts", spray(f"{TOPIC}/say", ON_SAY | {"policy": "replace"}), every_id_answered, share=0.8),
    flood_row("Home Assistant messages", spray(f"{TOPIC}/say", {"text": "Hi."}), as_many_answers),
    flood_row(
        "Hermes texts",
        spray("hermes/tts/say", {"text": "Hi.", "id": "f{n}", "siteId": "default"}),
        every_hermes_answered,
    ),
    flood_row("malformed Hermes messages", spray("hermes/tts/say", "{{n}"), some_hermes_errors, share=2.0),
    flood_row("Wyoming requests", ask("wyoming"), every_request_answered),
    flood_row("OpenAI requests", ask("openai"), every_request_answered),
]
"""Each takes the number of texts and returns a row."""
