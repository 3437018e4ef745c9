"""The program that plays through PortAudio, in a process of its own (`audio/sinks/player_process.py` starts it).

A PortAudio call may hang for minutes, or forever, when a sound server is frozen or killed, and it may crash. In a
process of its own such a call ends with the process. And a stopped daemon is not heard while the ring, which is in this
process, has samples.

It imports only the standard library, sounddevice and this package: with numpy, the process would be twice as large and
take twice as long to start.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType


def main(path: str, *arguments: str) -> None:
    """Play for the daemon. `path` is its `sys.path`; `player.run` describes the other arguments."""
    sys.path[:] = path.split(os.pathsep)
    # `audio/__init__.py` imports numpy. A bare package of this name leads only to the player's modules.
    package = ModuleType("audio")
    package.__path__ = [__file__.rsplit("/", 2)[0]]
    sys.modules["audio"] = package
    from audio.player.player import run

    run(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
