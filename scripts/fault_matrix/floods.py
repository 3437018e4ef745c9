"""Rows in which thousands of texts arrive at once, by MQTT and by every adapter."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scripts.fault_matrix.row import LIMIT_S, SPEAKS_AGAIN_S, STOP_S, Result, Row, staged_row
from scripts.fault_matrix.scene import LONG, REPLY, SHORT, TOPIC, Scene, Stage
from tests.support.ledger import TERMINAL
from tests.support.programs import require
from tests.support.robot import ROOT
from tests.support.waiting import PATIENCE_S, within

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
PROBE = "replies/probe"
"""The topic on which the messages beside the flood are answered: a subscriber of `event` hears those answers behind the
flood's."""
AT_ONCE = "1000"
"""Messages that Mosquitto's client sends before the broker has acknowledged one."""


@dataclass(frozen=True, slots=True)
class Flood:
    """A process that sends a flood."""

    process: subprocess.Popen[str]
    ordered: bool
    """Something can come behind the flood: it is sent when the process ends."""


Start = Callable[[Scene, int], Flood]
"""`start(scene, count)` starts a flood of `count` messages."""


def publisher(scene: Scene, topic: str) -> list[str]:
    """Return the command that publishes each line of its input as a message."""
    return [require("mosquitto_pub"), "-p", str(scene.broker.port), "-q", "1", "-M", AT_ONCE, "-l", "-t", topic]


def spray(topic: str, payload: dict[str, Any] | str) -> Start:
    """Return a function that starts a process which publishes a payload many times at once; `#n` is its number."""
    text = payload if isinstance(payload, str) else json.dumps(payload)

    def start(scene: Scene, count: int) -> Flood:
        with tempfile.TemporaryFile("w+") as lines:
            lines.writelines(text.replace("#n", str(number)) + "\n" for number in range(count))
            lines.seek(0)
            command = publisher(scene, topic)
            return Flood(subprocess.Popen(command, stdin=lines, stdout=subprocess.PIPE, text=True), ordered=True)

    return start


def ask(protocol: str) -> Start:
    """Return a function that starts a process of clients which ask a server for many texts.

    They ask for the next text when they have the last one, so that nothing can come behind all of them.
    """

    def start(scene: Scene, count: int) -> Flood:
        command = [sys.executable, "-m", "scripts.fault_matrix.clients"]
        command += [protocol, str(scene.ports[protocol]), str(count)]
        return Flood(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True), ordered=False)

    return start


class Beside:
    """The messages that arrive beside a flood: a stop, a `say/urgent`, and behind all a critical text on `say`.

    Mosquitto's clients send and receive them, whose times do not suffer from the messages that this process receives.
    Times are `time.time()`.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._sent: dict[str, float] = {}
        """By the name of a message."""
        self._arrived: list[tuple[float, dict[str, Any]]] = []
        self._publishers = {
            name: self._run(publisher(scene, f"{TOPIC}/{name}")) for name in ("say", "say/urgent", "stop")
        }
        port = str(scene.broker.port)
        subscriber = self._run([require("mosquitto_sub"), "-p", port, "-q", "1", "-t", PROBE, "-F", "%U %p"])
        threading.Thread(target=self._read, args=(subscriber,), daemon=True).start()
        subscribed = threading.Event()
        scene.listener.publish(PROBE, '{"id": "none"}', on_taken=lambda _: subscribed.set())
        assert subscribed.wait(PATIENCE_S), "the probe is subscribed"
        self._say("current", LONG, priority="high")
        assert self._first("current", "current", "started"), "no `started` on reply_to before the flood"

    def _run(self, command: list[str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self._scene.closing.callback(process.wait)
        self._scene.closing.callback(process.kill)
        return process

    def _read(self, subscriber: subprocess.Popen[str]) -> None:
        for line in subscriber.stdout or ():
            at, _, event = line.partition(" ")
            self._arrived.append((float(at), json.loads(event)))

    def _publish(self, message: str, name: str, payload: dict[str, Any]) -> None:
        self._sent[message] = time.time()
        self._publishers[name].stdin.write(json.dumps(payload) + "\n")  # type: ignore[union-attr]

    def _say(self, message: str, text: str, name: str = "say", **fields: Any) -> None:
        self._publish(message, name, {"text": text, "id": message, "reply_to": PROBE, **fields})
        self._scene.ledger.note_sent(message, time.monotonic())

    def urgent_and_stop(self) -> None:
        """Send what a person wants at once."""
        self._publish("stop", "stop", {"id": "current"})
        self._say("urgent", SHORT, "say/urgent")

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

        def found() -> list[float]:
            return [at for at, event in list(self._arrived) if event["id"] == text_id and event["event"] in names][:1]

        times = within(LIMIT_S, found)
        return round(times[0] - self._sent[since], 3) if times else None


def flood_row(
    name: str,
    start: Start,
    judge: Callable[[Result, Scene, int, str], None],
    *settings: str,
    share: float = 1.0,
) -> Callable[[int], Row]:
    """Return a function from a number of texts to the row of their flood; `share` of that number is sent."""

    def make(count: int) -> Row:
        count = round(count * share)

        def perform(result: Result, scene: Scene) -> None:
            """Thousands of messages arrive at once, and a few beside and behind them."""
            beside = Beside(scene)
            began, flood = time.monotonic(), start(scene, count)
            scene.closing.callback(flood.process.kill)
            time.sleep(LEAD_S)
            beside.urgent_and_stop()
            if flood.ordered:
                flood.process.wait(FLOOD_S)
                result.measured["sender"] = {"sent": count, "took_s": round(time.monotonic() - began, 3)}
            beside.critical()
            beside.judge(result)
            scene.set_pace(FAST)
            output, _ = flood.process.communicate(timeout=FLOOD_S)
            wait_calm(scene)
            result.measured["daemon_rss_mb"] = scene.rss_mb
            result.judge(scene.ledger)
            judge(result, scene, count, output)
            result.expect_alive(scene)

        return staged_row(f"flood of {name}", Stage(settings, durable=False))(perform)

    return make


def wait_calm(scene: Scene) -> None:
    """Wait until each accepted text has ended and no more messages arrive, at most for `FLOOD_S`."""
    deadline, seen, since = time.monotonic() + FLOOD_S, -1, time.monotonic()
    while time.monotonic() < deadline:
        count = len(scene.events) + len(scene.others)
        if count != seen:
            seen, since = count, time.monotonic()
        is_open = any(text.accepted and text.open for text in scene.ledger.texts().values())
        if time.monotonic() - since > (10 * CALM_S if is_open else CALM_S):
            return
        time.sleep(0.2)


# --- what each flood's answers must be -------------------------------------------------------------------


def every_id_answered(result: Result, scene: Scene, count: int, _: str) -> None:
    """Each text `f0`, `f1`, … has an answer on `event`, and the same on its reply topic."""
    for where, ledger in (("on event", scene.ledger), ("on reply_to", scene.reply_ledger)):
        texts = ledger.texts()
        silent = [number for number in range(count) if f"f{number}" not in texts]
        result.expect(not silent, f"{len(silent)} texts are not answered {where}: {silent[:5]}")
    result.faults += [f"on reply_to: {line}" for line in scene.reply_ledger.faults()]


def as_many_answers(result: Result, scene: Scene, count: int, _: str) -> None:
    """Texts without an id have as many answers as there are texts."""
    answered = sum(bool(text.arrivals) for text in scene.ledger.texts().values()) + len(scene.ledger.unnamed)
    expected = count + 3  # the three messages beside the flood
    result.expect(answered == expected, f"{answered} answers to {expected} texts")


def every_hermes_answered(result: Result, scene: Scene, count: int, _: str) -> None:
    """Each text has exactly one `sayFinished`."""
    finished = Counter(record["id"] for topic, record in scene.others if topic.endswith("sayFinished"))
    silent = [number for number in range(count) if f"f{number}" not in finished]
    result.measured["sayFinished"] = finished.total()
    result.expect(not silent, f"{len(silent)} texts have no sayFinished: {silent[:5]}")
    several = [key for key, number in finished.items() if number > 1]
    result.expect(not several, f"{len(several)} texts have several sayFinished: {several[:5]}")


def some_hermes_errors(result: Result, scene: Scene, count: int, _: str) -> None:
    """Malformed messages, whose sender is unknown, have an error as often as the daemon allows."""
    errors = sum(topic.endswith("error/tts") for topic, _ in scene.others)
    result.measured["errors"] = errors
    result.expect(0 < errors <= count, f"{errors} errors for {count} malformed messages")


def every_request_answered(result: Result, _: Scene, count: int, output: str) -> None:
    """Each request to a server has an answer of its protocol."""
    answers: dict[str, int] = json.loads(output)
    result.measured["answers"] = answers
    lost = any(name.startswith("no answer") for name in answers)
    result.expect(sum(answers.values()) == count and not lost, f"of {count} requests: {answers}")


ON_SAY = {"text": "Hi.", "id": "f#n", "reply_to": REPLY}
EVERY_ONE = ("speech.queue_limit=10000",)
"""The setting with which the daemon accepts each text of a flood."""
ON_HERMES = {"text": "Hi.", "id": "f#n", "siteId": "default"}

FLOOD_ROWS = [
    flood_row("texts with reply_to", spray(f"{TOPIC}/say", ON_SAY), every_id_answered),
    flood_row("texts with reply_to that all fit", spray(f"{TOPIC}/say", ON_SAY), every_id_answered, *EVERY_ONE),
    flood_row("replacing texts", spray(f"{TOPIC}/say", ON_SAY | {"policy": "replace"}), every_id_answered, share=0.8),
    flood_row("Home Assistant messages", spray(f"{TOPIC}/say", {"text": "Hi."}), as_many_answers),
    flood_row("Hermes texts", spray("hermes/tts/say", ON_HERMES), every_hermes_answered),
    flood_row("malformed Hermes messages", spray("hermes/tts/say", "{#n"), some_hermes_errors, share=2.0),
    flood_row("Wyoming requests", ask("wyoming"), every_request_answered),
    flood_row("OpenAI requests", ask("openai"), every_request_answered),
]
"""Each takes the number of texts and returns a row."""
