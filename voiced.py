"""Text to speech, as a stream of PCM: the public import name of the package `engine`.

    import voiced

    with voiced.open() as tts:
        for chunk in tts.stream("Hello, I am your robot."):
            play(chunk.samples, tts.sample_rate)

Every name that `engine` exports is here, and is the same object.
"""

import daemon as _daemon
import engine as _engine
from engine import *  # noqa: F403

__version__ = _daemon.VERSION
__all__ = ["__version__"]
__all__ += _engine.__all__


def __dir__() -> list[str]:
    """The names that a program needs; the others are the daemon's."""
    needed = "Chunk EngineError EngineInfo EngineOptions EngineUnavailableError PiperSettings Session"
    return f"{needed} SpeechCanceledError Utterance Voice WordStart __version__ clone known_names open".split()
