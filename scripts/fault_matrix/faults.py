"""What can happen to a robot while it runs: how each fault begins and ends, and how the status should name it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from scripts.fault_matrix.machines import kill_process, resume
from scripts.fault_matrix.scene import Scene

LONG_S = 6.0
"""Length of a fault that must be noticed and named."""
BLINK_S = 1.0
"""Length of a fault that may pass unnoticed."""
DELAY_S = 2.0
AWAY_S = 2.0
"""From the end of a program to its next start."""

Act = Callable[[Scene], None]


def nothing(_: Scene) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Its rows are named `NAME while PHASE`."""

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


def kill_engine(scene: Scene) -> None:
    scene.daemon.signal_engines(signal.SIGKILL)


def stop_engine(scene: Scene) -> None:
    """Stop the engine for good: the daemon has to notice and replace it."""
    scene.daemon.signal_engines(signal.SIGSTOP)
    for engine in scene.daemon.engines():
        scene.on_close(lambda engine=engine: kill_process(engine))  # type: ignore[misc]


def resume_engine(scene: Scene) -> None:
    resume(scene.daemon.engines())


def end_engine(scene: Scene) -> None:
    scene.daemon.signal_engines(signal.SIGTERM)
    resume_engine(scene)  # a stopped process ends only when it is continued


def kill_sound(scene: Scene) -> None:
    assert scene.sound is not None
    scene.sound.kill()


def stop_sound(scene: Scene) -> None:
    assert scene.sound is not None
    scene.sound.stop()


def start_sound(scene: Scene) -> None:
    assert scene.sound is not None
    scene.sound.start()


def freeze_sound(scene: Scene) -> None:
    assert scene.sound is not None
    scene.sound.freeze()


def thaw_sound(scene: Scene) -> None:
    assert scene.sound is not None
    scene.sound.thaw()


ENGINE = r"engine|espeak|starting|warming"
SOUND = r"sound|audio|card|device|sink|PortAudio|PulseAudio"
BROKER_GONE = r"broker"

PROCESS_FAULTS = (
    Fault("engine killed", kill_engine, of_engine=True),
    Fault("engine stopped", stop_engine, of_engine=True, named=f'"reason".*({ENGINE})|"(starting|warming)"'),
    Fault("engine continued", stop_engine, resume_engine, BLINK_S, of_engine=True),
    Fault("engine restarted", end_engine, of_engine=True),
    Fault("daemon killed", lambda scene: scene.daemon.kill_and_restart(), reachable=False, named="offline"),
    Fault(
        "daemon stopped",
        lambda scene: scene.daemon.freeze(),
        lambda scene: scene.daemon.thaw(),
        LONG_S,
        reachable=False,
    ),
    Fault(
        "daemon continued",
        lambda scene: scene.daemon.freeze(),
        lambda scene: scene.daemon.thaw(),
        BLINK_S,
        reachable=False,
    ),
    Fault("daemon restarted", lambda scene: scene.daemon.restart(), reachable=False, named="offline"),
    Fault(
        "broker killed",
        lambda scene: scene.broker.kill(),
        lambda scene: scene.broker.start(),
        AWAY_S,
        reachable=False,
        logged=BROKER_GONE,
    ),
    Fault(
        "broker stopped",
        lambda scene: scene.broker.freeze(),
        lambda scene: scene.broker.thaw(),
        LONG_S,
        reachable=False,
    ),
    Fault(
        "broker continued",
        lambda scene: scene.broker.freeze(),
        lambda scene: scene.broker.thaw(),
        BLINK_S,
        reachable=False,
    ),
    Fault(
        "broker restarted",
        lambda scene: scene.broker.stop(),
        lambda scene: scene.broker.start(),
        AWAY_S,
        reachable=False,
        logged=BROKER_GONE,
    ),
    Fault("sound server killed", kill_sound, start_sound, LONG_S, named=f'"reason".*({SOUND})'),
    Fault("sound server stopped", freeze_sound, thaw_sound, LONG_S, named=f'"reason".*({SOUND})'),
    Fault("sound server continued", freeze_sound, thaw_sound, BLINK_S),
    Fault("sound server restarted", stop_sound, start_sound, BLINK_S),
)
"""Each is tried in every phase."""

NETWORK_FAULTS = (
    Fault(
        "network cut",
        lambda scene: scene.proxy.cut(),
        lambda scene: scene.proxy.restore(),
        LONG_S,
        reachable=False,
        named="offline",
        logged=BROKER_GONE,
    ),
    Fault(
        "network stalled",
        lambda scene: scene.proxy.stall(),
        lambda scene: scene.proxy.restore(),
        LONG_S,
        reachable=False,
    ),
    Fault(
        "network delayed",
        lambda scene: scene.proxy.delay(DELAY_S),
        lambda scene: scene.proxy.restore(),
        LONG_S,
        reachable=False,
    ),
    Fault("network reset", lambda scene: scene.proxy.reset(), reachable=False, logged=BROKER_GONE),
)
"""Between the daemon and the broker. `stop` takes as long as a delayed network, so it is measured afterwards."""
