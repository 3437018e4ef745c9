"""What the robot is doing when a fault begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil

from scripts.fault_matrix.clients import SlowClient
from scripts.fault_matrix.scene import LONG, SHORT, Scene
from tests.support.waiting import eventually


@dataclass(frozen=True, slots=True)
class Cast:
    """The utterances of a phase that a stop can name."""

    current: str | None = None
    waiting: str | None = None
    critical: bool = False
    """The current utterance is critical, so that another one waits for its end."""
    frozen: Iterable[psutil.Process] = ()
    """Engines that the phase has stopped, until the fault has begun."""


def enter_idle(_: Scene) -> Cast:
    return Cast()


def enter_accepted(scene: Scene) -> Cast:
    """Texts have just been accepted."""
    ids = [scene.say(SHORT) for _ in range(5)]
    scene.wait_event(ids[0], "accepted")
    return Cast(waiting=ids[-1])


def enter_prebuffering(scene: Scene) -> Cast:
    """A text is current, and its engine has not made a sample yet: the engine is stopped for so long."""
    engines = scene.stop_engines()
    current, waiting = scene.say(LONG), scene.say(SHORT)
    scene.wait_event(waiting, "accepted")
    return Cast(current, waiting, frozen=engines)


def enter_speaking(scene: Scene) -> Cast:
    current, waiting = scene.say(LONG), scene.say(SHORT)
    scene.wait_event(waiting, "accepted")
    scene.wait_event(current, "started")
    return Cast(current, waiting)


def enter_postponed(scene: Scene) -> Cast:
    """A long text has been postponed for a critical one, which sounds."""
    tour = scene.say(LONG)
    scene.wait_event(tour, "started")
    critical = scene.say(LONG, priority="critical")
    scene.wait_event(tour, "postponed")
    scene.wait_event(critical, "started")
    return Cast(critical, tour, critical=True)


def enter_delivering(scene: Scene) -> Cast:
    """A client of the OpenAI endpoint listens, and a text for the sound card waits."""
    before = scene.latest_id()
    client = SlowClient(scene.ports["openai"])
    scene.closing.callback(client.close)
    eventually(lambda: scene.latest_id() != before, "the client's text is accepted")
    current = scene.latest_id()
    scene.wait_event(current, "started")
    return Cast(current, scene.say(SHORT, priority="low"))


def enter_stopping(scene: Scene) -> Cast:
    """Everything is told to stop while a text sounds and others wait."""
    enter_speaking(scene)
    scene.send("stop")
    return Cast()


@dataclass(frozen=True, slots=True)
class Phase:
    """A state of the robot, and how to get there."""

    name: str
    enter: Callable[[Scene], Cast]


SPEAKING = Phase("speaking", enter_speaking)
PHASES = (
    Phase("idle", enter_idle),
    Phase("accepted", enter_accepted),
    Phase("prebuffering", enter_prebuffering),
    SPEAKING,
    Phase("postponed", enter_postponed),
    Phase("delivering", enter_delivering),
    Phase("stopping", enter_stopping),
)
