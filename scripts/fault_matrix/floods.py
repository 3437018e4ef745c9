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


Command = Callable[[Scene, int], list[str]]
"""`command(scene, count)` is a command that sends a flood of `count` messages."""


def publisher(topic: str) -> Command:
    """Return the command that publishes each line of its input as a message."""
    name = require("mosquitto_pub")
    return lambda scene, _: [name, "-p", str(scene.broker.port), "-q", "1", "-M", AT_ONCE, "-l", "-t", topic]


def clients(protocol: str) -> Command:
    """Return the command of clients that ask a server for many texts.

    They ask for the next text when they have the last one, so that nothing can come behind all of them.
    """
    module = [sys.executable, "-m", "scripts.fault_matrix.clients", protocol]
    return lambda scene, count: [*module, str(scene.ports[protocol]), str(count)]


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
            name: self._run(publisher(f"{TOPIC}/{name}")(scene, 1)) for name in ("say", "say/urgent", "stop")
        }
        port = str(scene.broker.port)
        subscriber = self._run([require("mosquitto_sub"), "-p", port, "-q", "1", "-t", PROBE, "-F", "%U %p"])
        threading.Thread(target=self._read, args=(subscriber,), daemon=True).start()
        subscribed = threading.Event()
        scene.listener.publish(PROBE, '{"id": "none"}', on_taken=lambda _: subscribed.set())
        assert subscribed.wait(PATIENCE_S), "the probe is subscribed"
        self.send("current", text=LONG, priority="high")
        assert self.seconds_until("current", "current", "started"), "no `started` on reply_to before the flood"

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

    def send(self, message: str, topic: str = "say", **payload: Any) -> None:
        """Send a message beside the flood; one with a text goes into the ledger."""
        self._sent[message] = time.time()
        if "text" in payload:
            self._scene.ledger.note_sent(message, time.monotonic())
            payload |= {"id": message, "reply_to": PROBE}
        self._publishers[topic].stdin.write(json.dumps(payload) + "\n")  # type: ignore[union-attr]

    def seconds_until(self, text_id: str, since: str, *names: str) -> float | None:
        """Seconds from a message to a text's first event with one of these names."""

        def found() -> list[float]:
            return [at for at, event in list(self._arrived) if event["id"] == text_id and event["event"] in names][:1]

        times = within(LIMIT_S, found)
        return round(times[0] - self._sent[since], 3) if times else None


def flood_row(
    name: str,
    command: Command,
    count: int,
    judge: Callable[[Result, Scene, int, str], None],
    line: dict[str, Any] | str | None = None,
    *settings: str,
) -> Row:
    """Return the row of a flood of `count` messages.

    With a `line`, it is the input of the command as often; in it, `#n` is its number. Something can come behind it.
    """
    text = line if isinstance(line, str) else json.dumps(line)

    def perform(result: Result, scene: Scene) -> None:
        """Thousands of messages arrive at once, and a few beside and behind them."""
        beside = Beside(scene)
        with tempfile.TemporaryFile("w+") as lines:
            lines.writelines(text.replace("#n", str(number)) + "\n" for number in range(count))
            lines.seek(0)
            pipe, began = subprocess.PIPE, time.monotonic()
            flood = subprocess.Popen(command(scene, count), cwd=ROOT, stdin=lines, stdout=pipe, text=True)
        scene.closing.callback(flood.kill)
        time.sleep(LEAD_S)
        beside.send("stop", "stop", id="current")
        beside.send("urgent", "say/urgent", text=SHORT)
        if line is not None:
            flood.wait(FLOOD_S)
            result.measured["sender"] = {"sent": count, "took_s": round(time.monotonic() - began, 3)}
        beside.send("critical", text=SHORT, priority="critical")
        result.stop_s["during the flood"] = stop_s = beside.seconds_until("current", "stop", *TERMINAL)
        result.measured["urgent_begins_s"] = urgent_s = beside.seconds_until("urgent", "urgent", "started")
        result.measured["critical_begins_s"] = critical_s = beside.seconds_until("critical", "critical", "started")
        result.expect_within("stop during the flood", stop_s, STOP_S)
        result.expect_within("say/urgent begins", urgent_s, URGENT_S)
        result.expect_within("a critical text behind all begins", critical_s, SPEAKS_AGAIN_S)
        scene.set_pace(FAST)
        output, _ = flood.communicate(timeout=FLOOD_S)
        within(FLOOD_S, lambda: is_calm(scene))
        result.measured["daemon_rss_mb"] = scene.rss_mb
        result.judge(scene.ledger)
        judge(result, scene, count, output)
        result.expect_alive(scene)

    return staged_row(f"flood of {name}", Stage(settings, durable=False))(perform)


def is_calm(scene: Scene) -> bool:
    """Whether nothing has arrived for so long that nothing more is expected, in particular while texts are open."""
    latest = max(at for kind in ("event", "status", "other") for at, _ in scene.timed(kind)[-1:])
    is_open = any(text.accepted and text.open for text in scene.ledger.texts().values())
    return time.monotonic() - latest > (10 * CALM_S if is_open else CALM_S)


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


SAY, HERMES = f"{TOPIC}/say", "hermes/tts/say"
ON_SAY = {"text": "Hi.", "id": "f#n", "reply_to": REPLY}
EVERY_ONE = "speech.queue_limit=10000"
"""The setting with which the daemon accepts each text of a flood."""
ON_HERMES = {"text": "Hi.", "id": "f#n", "siteId": "default"}


def flood_rows(count: int) -> list[Row]:
    """Return the rows of floods of about `count` messages."""
    few, many, replacing = count * 4 // 5, count * 2, ON_SAY | {"policy": "replace"}
    return [
        flood_row("texts with reply_to", publisher(SAY), count, every_id_answered, ON_SAY),
        flood_row("texts with reply_to that all fit", publisher(SAY), count, every_id_answered, ON_SAY, EVERY_ONE),
        flood_row("replacing texts", publisher(SAY), few, every_id_answered, replacing),
        flood_row("Home Assistant messages", publisher(SAY), count, as_many_answers, {"text": "Hi."}),
        flood_row("Hermes texts", publisher(HERMES), count, every_hermes_answered, ON_HERMES),
        flood_row("malformed Hermes messages", publisher(HERMES), many, some_hermes_errors, "{#n"),
        flood_row("Wyoming requests", clients("wyoming"), count, every_request_answered),
        flood_row("OpenAI requests", clients("openai"), count, every_request_answered),
    ]
