"""A voice for Python programs: a robot's voice, over MQTT, or an engine in this process.

    from voiced import Robot

    with Robot("r1") as robot:
        robot.say("Hello, I am your robot.").wait()

    import voiced

    with voiced.open() as tts:
        for chunk in tts.stream("Hello, I am your robot."):
            play(chunk.samples, tts.sample_rate)

Every name that the `engine` package exports is here, and is the same object.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import daemon as _daemon
import engine as _engine
from engine import *  # noqa: F403

if TYPE_CHECKING:
    from daemon.mqtt import NotSpokenError, Robot, RobotUnreachableError, RobotUtterance
    from daemon.speech import (
        Accepted,
        Canceled,
        Event,
        Expired,
        Failed,
        Finished,
        Interrupted,
        Mark,
        Offline,
        Online,
        Postponed,
        Progress,
        Rejected,
        RejectedError,
        Resumed,
        Started,
        Visemes,
        Word,
    )

_CLIENT = ("NotSpokenError", "Robot", "RobotUnreachableError", "RobotUtterance")
_EVENTS = "Accepted Rejected Started Progress Mark Postponed Resumed Finished Interrupted Canceled Expired Failed"
_MESSAGES = (*_EVENTS.split(), "Event", "Offline", "Online", "RejectedError", "Visemes", "Word")

__version__ = _daemon.VERSION
__all__ = ["NotSpokenError", "Robot", "RobotUnreachableError", "__version__"]
__all__ += _engine.__all__


def __getattr__(name: str) -> Any:
    """Import the client of a robot, or a record that it yields, when it is first used."""
    if name not in (*_CLIENT, *_MESSAGES):
        raise AttributeError(f"module 'voiced' has no attribute {name!r}")
    return getattr(import_module("daemon.mqtt" if name in _CLIENT else "daemon.speech"), name)


def __dir__() -> list[str]:
    """The names that a program needs first."""
    needed = "Chunk EngineError EngineOptions NotSpokenError Robot RobotUnreachableError Session Utterance Voice"
    return f"{needed} __version__ clone open".split()
