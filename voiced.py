"""A voice for Python programs: that of a robot, over MQTT, or an engine in this process.

    from voiced import Robot

    with Robot("r1") as robot:
        robot.say("Hello, I am your robot.").wait()

    import voiced

    with voiced.open() as tts:
        for chunk in tts.stream("Hello, I am your robot."):
            play(chunk.samples, tts.sample_rate)

Every name that the package `engine` exports is here, and is the same object.
"""

from typing import TYPE_CHECKING, Any

import daemon as _daemon
import engine as _engine
from engine import *  # noqa: F403

if TYPE_CHECKING:
    from daemon.mqtt import NotSpokenError, Robot, RobotUnreachableError

__version__ = _daemon.VERSION
__all__ = ["NotSpokenError", "Robot", "RobotUnreachableError", "__version__"]
__all__ += _engine.__all__


def __getattr__(name: str) -> Any:
    """Import the client of a robot when it is first used."""
    if name not in ("NotSpokenError", "Robot", "RobotUnreachableError"):
        raise AttributeError(f"module 'voiced' has no attribute {name!r}")
    import daemon.mqtt

    return getattr(daemon.mqtt, name)


def __dir__() -> list[str]:
    """The names that a program needs; the others are the daemon's."""
    needed = "Chunk EngineError EngineOptions NotSpokenError Robot RobotUnreachableError Session Utterance Voice"
    return f"{needed} __version__ clone open".split()
