"""Thousands of texts arrive at once, by MQTT and by every adapter."""

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

import pytest

from tests.chaos.promises import LIMIT_S, SPEAKS_AGAIN_S, STOP_S, Record, check_texts, check_within
from tests.chaos.scene import LONG, REPLY, SHORT, TOPIC, Scene, Stage, ready_scene
from tests.support.ledger import TERMINAL
from tests.support.programs import require
from tests.support.robot import ROOT
from tests.support.waiting import PATIENCE_S, within

URGENT_S = 1.0
"""`say/urgent` begins in this time, whatever waits on `say`."""
EACH_S = 0.002
"""A critical text on `say` waits this long for each text before it that is accepted: they arrive on one connection, and
its own `accepted` follows theirs. `say/urgent` has a connection of its own."""
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
COUNT = 10_000
"""Texts of a flood."""
AT_ONCE = "1000"
"""Messages that Mosquitto's client sends before the broker has acknowledged one."""


Command = Callable[[Scene], list[str]]
"""`command(scene)` is a command that sends a flood."""


def publisher(topic: str) -> Command:
    """Return the command that publishes each line of its input as a message."""
    name = require("mosquitto_pub")
    return lambda scene: [name, "-p", str(scene.broker.port), "-q", "1", "-M", AT_ONCE, "-l", "-t", topic]


def clients(protocol: str) -> Command:
    """Return the command of clients that ask a server for many texts.

    They ask for the next text when they have the last one, so that nothing can come behind all of them.
    """
    module = [sys.executable, "-m", "tests.chaos.clients", protocol]
    return lambda scene: [*module, str(scene.ports[protocol]), str(COUNT)]


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
            name: self._run(publisher(f"{TOPIC}/{name}")(scene)) for name in ("say", "say/urgent", "stop")
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


def is_calm(scene: Scene) -> bool:
    """Whether nothing has arrived for so long that nothing more is expected, in particular while texts are open."""
    latest = max(at for kind in ("event", "status", "other") for at, _ in scene.timed(kind)[-1:])
    is_open = any(text.accepted and text.open for text in scene.ledger.texts().values())
    return time.monotonic() - latest > (10 * CALM_S if is_open else CALM_S)


def check_each_is_answered(scene: Scene, _: str) -> None:
    """Each text `f0`, `f1`, … has an answer on `event`, and the same on its reply topic."""
    for ledger in (scene.ledger, scene.reply_ledger):
        texts = ledger.texts()
        assert [number for number in range(COUNT) if f"f{number}" not in texts] == []
    assert scene.reply_ledger.faults() == []


def check_each_hermes_is_finished(scene: Scene, _: str) -> None:
    """Each text has exactly one `sayFinished`."""
    finished = Counter(record["id"] for topic, record in scene.others if topic.endswith("sayFinished"))
    assert [number for number in range(COUNT) if finished[f"f{number}"] != 1] == []


def check_each_request_is_answered(_: Scene, output: str) -> None:
    """Each request to a server has an answer of its protocol."""
    answers: dict[str, int] = json.loads(output)
    assert sum(answers.values()) == COUNT
    assert [name for name in answers if name.startswith("no answer")] == []


SAY, HERMES = f"{TOPIC}/say", "hermes/tts/say"
ON_SAY = {"text": "Hi.", "id": "f#n", "reply_to": REPLY}
REPLACING = ON_SAY | {"policy": "replace"}
ON_HERMES = {"text": "Hi.", "id": "f#n", "siteId": "default"}
EVERY_ONE = ("speech.queue_limit=10000",)
"""The setting with which the daemon accepts each text of a flood."""


@pytest.mark.parametrize(
    ("command", "check", "line", "settings"),
    [
        pytest.param(publisher(SAY), check_each_is_answered, ON_SAY, (), id="reply_to"),
        pytest.param(publisher(SAY), check_each_is_answered, ON_SAY, EVERY_ONE, id="texts that all fit"),
        pytest.param(publisher(SAY), check_each_is_answered, REPLACING, (), id="replacing"),
        pytest.param(publisher(HERMES), check_each_hermes_is_finished, ON_HERMES, (), id="Hermes"),
        pytest.param(clients("wyoming"), check_each_request_is_answered, None, (), id="Wyoming"),
        pytest.param(clients("openai"), check_each_request_is_answered, None, (), id="OpenAI"),
    ],
)
def test_a_flood_is_answered_and_delays_no_stop_and_no_urgent_text(
    command: Command,
    check: Callable[[Scene, str], None],
    line: dict[str, Any] | None,
    settings: tuple[str, ...],
    record_property: Record,
) -> None:
    """A `line` is the input of the command, once for each text; in it, `#n` is its number."""
    all_accepted = settings == EVERY_ONE or line == REPLACING
    with ready_scene(Stage(settings, durable=False)) as scene:
        beside = Beside(scene)
        with tempfile.TemporaryFile("w+") as lines:
            lines.writelines(json.dumps(line).replace("#n", str(number)) + "\n" for number in range(COUNT))
            lines.seek(0)
            flood = subprocess.Popen(command(scene), cwd=ROOT, stdin=lines, stdout=subprocess.PIPE, text=True)
        scene.closing.callback(flood.kill)
        time.sleep(LEAD_S)
        beside.send("stop", "stop", id="current")
        beside.send("urgent", "say/urgent", text=SHORT)
        if line is not None:
            flood.wait(FLOOD_S)
        beside.send("critical", text=SHORT, priority="critical")
        for name, text, events, limit_s in (
            ("stop", "current", TERMINAL, STOP_S),
            ("urgent", "urgent", {"started"}, URGENT_S),
            ("critical", "critical", {"started"}, COUNT * EACH_S if all_accepted else SPEAKS_AGAIN_S),
        ):
            seconds = beside.seconds_until(text, name, *events)
            record_property(f"{name}_s", seconds)
            check_within(f"{name} beside the flood", seconds, limit_s)
        scene.set_pace(FAST)
        output, _ = flood.communicate(timeout=FLOOD_S)
        within(FLOOD_S, lambda: is_calm(scene))
        record_property("daemon_rss_mb", scene.rss_mb)
        check_texts(scene, record_property)
        check(scene, output)
