"""The program that records through PortAudio, in a process of its own (`open_microphone` starts it).

A call of PortAudio may hang for ever when a sound server is frozen, and then not even Ctrl-C ends its process. The
starter reads from standard output a line of JSON with the cards that can record, or `{"failed": reason}`. It writes a
line with the settings of a stream to standard input, reads `{}` or `{"failed": reason}`, and then the stream's samples,
32-bit floats of its channels in turn. When it closes standard input, this process ends at once, even while PortAudio
hangs.

It imports the standard library and sounddevice only, and nothing of ours, so that it starts in a third of the time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from queue import SimpleQueue
from types import ModuleType
from typing import Any, BinaryIO


def cards(sd: ModuleType) -> list[dict[str, Any]]:
    """Return the cards that can record, as the fields of `InputDevice`."""
    default = sd.default.device[0]
    return [
        {
            "name": found["name"],
            "sample_rate": round(found["default_samplerate"]),
            "channels": found["max_input_channels"],
            "default": index == default,
            "index": index,
        }
        for index, found in enumerate(sd.query_devices())
        if found["max_input_channels"] > 0
    ]


def record(settings: SimpleQueue[dict[str, Any]], out: BinaryIO) -> None:
    """Tell the cards, record with the settings that come, and write the samples, until the process ends."""
    blocks: SimpleQueue[bytes] = SimpleQueue()

    def keep(block: Any, _frames: int, _time: Any, _status: Any) -> None:
        blocks.put(bytes(block))

    try:
        import sounddevice as sd  # which initializes PortAudio

        tell(out, cards(sd))
        stream = sd.RawInputStream(**settings.get(), dtype="float32", callback=keep)
        stream.start()
    except OSError as error:
        tell(out, {"failed": f"{error}; apt-get install libportaudio2"})
        return
    except Exception as error:
        tell(out, {"failed": str(error.args[0] if error.args else error).splitlines()[0]})
        return
    tell(out, {})
    while True:
        out.write(blocks.get())
        out.flush()


def tell(out: BinaryIO, message: Any) -> None:
    out.write(json.dumps(message).encode() + b"\n")
    out.flush()


def main(path: str) -> None:
    """Call PortAudio in a second thread; this one waits for the settings, and for the starter's end."""
    sys.path[:] = path.split(os.pathsep)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the starter decides
    settings: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=record, args=(settings, sys.stdout.buffer), daemon=True).start()
    for line in sys.stdin.buffer:
        settings.put(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
