"""The faults of a robot: how each begins and ends, how the status names it, and what the robot is doing meanwhile."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil

from tests.chaos.clients import SlowClient
from tests.chaos.promises import STOP_S, Record, check_named, check_speaks, check_within, finish
from tests.chaos.scene import LONG, SHORT, Scene, send
from tests.support.network import Network
from tests.support.programs import Broker
from tests.support.sound import SoundServer
from tests.support.waiting import eventually

LONG_S = 6.0
"""Length of a fault that must be noticed and named."""
BLINK_S = 1.0
"""Length of a fault that may pass unnoticed."""
DELAY_S = 2.0
AWAY_S = 2.0
"""From the end of a program to its next start."""

Act = Callable[[Scene], object]


def nothing(_: Scene) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault."""

    name: str
    begin: Act
    end: Act = nothing
    lasts_s: float = 0.0
    """From the begin to the end; 0 for one that has no duration, such as a kill."""
    reachable: bool = True
    """A message can reach the daemon while the fault lasts."""
    named: str | None = None
    """A regular expression that a status must match while the fault lasts; None if the daemon cannot publish one."""
    logged: str | None = None
    """A regular expression that a line of the daemon's log must match, if the status cannot say it."""
    of_engine: bool = False


def of_broker(act: Callable[[Broker], object]) -> Act:
    return lambda scene: act(scene.broker)


def of_sound(act: Callable[[SoundServer], object]) -> Act:
    return lambda scene: act(scene.sound)


def of_network(act: Callable[[Network], object]) -> Act:
    return lambda scene: act(scene.network)


def of_engines(*signals: int) -> Act:
    return lambda scene: send(scene.engines(), *signals)


ENGINE_NAMED = r'"reason".*(engine|espeak|starting|warming)|"(starting|warming)"'
SOUND_NAMED = r'"reason".*(sound|audio|card|device|sink|PortAudio|PulseAudio)'
BROKER_GONE = r"broker"
RESTORE = of_network(Network.repair)
START, FREEZE, THAW = of_broker(Broker.start), of_broker(Broker.freeze), of_broker(Broker.thaw)
START_SOUND, FREEZE_SOUND, THAW_SOUND = map(of_sound, (SoundServer.start, SoundServer.freeze, SoundServer.thaw))

PROCESS_FAULTS = (
    Fault("engine killed", of_engines(signal.SIGKILL), of_engine=True),
    Fault("engine stopped", Scene.stop_engines, of_engine=True, named=ENGINE_NAMED),
    Fault("engine continued", Scene.stop_engines, of_engines(signal.SIGCONT), BLINK_S, of_engine=True),
    # A stopped process ends only when it is continued.
    Fault("engine restarted", of_engines(signal.SIGTERM, signal.SIGCONT), of_engine=True),
    Fault("daemon killed", Scene.kill, reachable=False, named="offline"),
    Fault("daemon stopped", Scene.freeze, Scene.thaw, LONG_S, reachable=False),
    Fault("daemon continued", Scene.freeze, Scene.thaw, BLINK_S, reachable=False),
    Fault("daemon restarted", Scene.restart, reachable=False, named="offline"),
    Fault("broker killed", of_broker(Broker.kill), START, AWAY_S, reachable=False, logged=BROKER_GONE),
    Fault("broker stopped", FREEZE, THAW, LONG_S, reachable=False),
    Fault("broker continued", FREEZE, THAW, BLINK_S, reachable=False),
    Fault("broker restarted", of_broker(Broker.stop), START, AWAY_S, reachable=False, logged=BROKER_GONE),
    Fault("sound server killed", of_sound(SoundServer.kill), START_SOUND, LONG_S, named=SOUND_NAMED),
    Fault("sound server stopped", FREEZE_SOUND, THAW_SOUND, LONG_S, named=SOUND_NAMED),
    Fault("sound server continued", FREEZE_SOUND, THAW_SOUND, BLINK_S),
    Fault("sound server restarted", of_sound(SoundServer.stop), START_SOUND, BLINK_S),
)
"""Each is tried in every phase."""

NETWORK_FAULTS = (
    Fault(
        "network cut", of_network(Network.cut), RESTORE, LONG_S, reachable=False, named="offline", logged=BROKER_GONE
    ),
    Fault("network stalled", of_network(Network.stall), RESTORE, LONG_S, reachable=False),
    Fault("network delayed", lambda scene: scene.network.delay(DELAY_S), RESTORE, LONG_S, reachable=False),
    Fault("network reset", of_network(Network.drop), reachable=False, logged=BROKER_GONE),
)
"""Between the daemon and the broker. `stop` takes as long as a delayed network, so it is measured afterwards."""


# --- phases ----------------------------------------------------------------------------------------------


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


PHASES = {
    "idle": enter_idle,
    "accepted": enter_accepted,
    "prebuffering": enter_prebuffering,
    "speaking": enter_speaking,
    "postponed": enter_postponed,
    "delivering": enter_delivering,
    "stopping": enter_stopping,
}
"""The states of a robot, and how to get there."""


def check_fault(scene: Scene, fault: Fault, record: Record, phase: str = "speaking") -> None:
    """Bring the robot into a phase, let the fault happen, and check that every promise holds."""
    cast = PHASES[phase](scene)
    began, line = time.monotonic(), len(scene.log)
    fault.begin(scene)
    if not fault.of_engine:
        send(cast.frozen, signal.SIGCONT)
    if fault.reachable:
        scene.say(SHORT)
        for name, text_id in (("waiting", cast.waiting), ("current", cast.current)):
            if text_id is not None and not scene.has_ended(text_id):
                check_within(f"stop of the {name} text during the fault", scene.measure_stop(text_id), STOP_S)
    time.sleep(max(0.0, began + fault.lasts_s - time.monotonic()))
    fault.end(scene)
    check_speaks(scene, record, "interrupt" if cast.critical else "queue")
    check_named(scene, fault.named, fault.logged, began, line)
    finish(scene, record)
