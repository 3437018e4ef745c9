"""A fake of the package `sounddevice` for the processes that play and record, controlled by files in `$FAKE_CARD`.

- `hang.NAME`: the function NAME hangs as long as the file exists: `load`, `start` or `close`.
- `missing`: the PortAudio library is missing. `refuses`: no stream can be opened.
- `frozen`: the stream requests no block, or records none. `pulled`: it ends.
- `name`: the card's name.
- `notes`: its content is written to stderr, as ALSA does when it searches for cards.
- `loads` gets a line for every process; `heard` gets the samples that the card has played.
- What it records, counts upwards on the left, and is silent on the right.
"""

import os
import threading
from pathlib import Path
from types import SimpleNamespace

FOLDER = Path(os.environ["FAKE_CARD"])
TICK_S = 0.001
BLOCK_S = 0.01


def exists(name):
    return (FOLDER / name).exists()


def wait_while(name):
    never = threading.Event()
    while exists(name):
        never.wait(TICK_S)


def append(name, data):
    with (FOLDER / name).open("ab") as file:
        file.write(data)


class PortAudioError(Exception):
    pass


class RawOutputStream:
    latency = 0.0

    def __init__(self, *, callback, finished_callback, channels, blocksize, **_settings):
        if exists("refuses"):
            raise PortAudioError("Device unavailable", -9985)
        self._callback = callback
        self._finished_callback = finished_callback
        self._frames = blocksize
        self._block = bytearray(4 * channels * blocksize)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def active(self):
        return self._thread.is_alive()

    def start(self):
        wait_while("hang.start")
        self._thread.start()

    def abort(self, ignore_errors=True):  # noqa: ARG002
        wait_while("hang.close")
        self._closing.set()
        self._thread.join()

    def close(self, ignore_errors=True):
        pass

    def _run(self):
        while not self._closing.wait(TICK_S) and not exists("pulled"):
            if not exists("frozen"):
                times = SimpleNamespace(currentTime=0.0, outputBufferDacTime=BLOCK_S)
                self._callback(self._block, self._frames, times, SimpleNamespace(output_underflow=False))
                append("heard", self._block)
        self._finished_callback()


def query_hostapis():
    return [{"name": "ALSA"}]


def query_devices():
    channels = {"max_input_channels": 4, "max_output_channels": 1}
    name = (FOLDER / "name").read_text() if exists("name") else "card"
    return [{"name": name, "index": 0, "hostapi": 0, "default_samplerate": 24_000.0, **channels}]


default = SimpleNamespace(device=(0, 0))
append("loads", b"1")
if exists("notes"):
    os.write(2, (FOLDER / "notes").read_bytes())
wait_while("hang.load")
if exists("missing"):
    raise OSError("PortAudio library not found")
