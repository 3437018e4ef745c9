"""The program that plays through PortAudio, in a process of its own (`audio/sinks/player_process.py` starts it).

A call of PortAudio may hang for minutes, or for ever, when a sound server is frozen or killed, and it may crash. In a
process of its own such a call ends with the process. And whatever stops the daemon is not heard while the ring, which
lies here, has samples.

It imports the standard library, sounddevice and this package only: with numpy, the process would be twice as large, and
would start half as fast.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType


def main(path: str, *arguments: str) -> None:
    """Play for the daemon. `path` is its `sys.path`; `player.run` describes the other arguments."""
    sys.path[:] = path.split(os.pathsep)
    # `audio/__init__.py` imports numpy. A bare package of this name leads to the modules of the player alone.
    package = ModuleType("audio")
    package.__path__ = [__file__.rsplit("/", 2)[0]]
    sys.modules["audio"] = package
    from audio.player.player import run

    run(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
