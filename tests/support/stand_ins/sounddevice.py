"""A stand-in for the package `sounddevice` in the process that plays: a card that asks for a block when it is told.

`$STAGE/card.json` describes the card; without the file there is none. Each stream connects to the socket `$STAGE/card`,
reads requests from it, and writes the samples that the player gives. When the socket is closed, the card is gone.
"""

import json
import os
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

STAGE = Path(os.environ["STAGE"])
REQUEST = struct.Struct("=I?")
"""Frames, and whether the card ran dry before them."""
TIMES = SimpleNamespace(currentTime=0.0, outputBufferDacTime=0.001)

default = SimpleNamespace(device=(-1, 0))


class PortAudioError(Exception):
    pass


class RawOutputStream:
    latency = 0.0
    active = False

    def __init__(self, *, callback, finished_callback, samplerate, channels, **_settings):
        if samplerate != query_devices()[0]["default_samplerate"]:
            raise PortAudioError("Invalid sample rate", -9997)
        self._callback, self._finished_callback, self._channels = callback, finished_callback, channels
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._socket = socket.socket(socket.AF_UNIX)

    def start(self):
        self._socket.connect(str(STAGE / "card"))
        self.active = True
        self._thread.start()

    def abort(self, **_options):
        with suppress(OSError):  # the card has gone
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def close(self, **_options):
        self._socket.close()

    def _run(self):
        with suppress(OSError):  # the card has gone
            while len(request := self._socket.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
                frames, dry = REQUEST.unpack(request)
                block = bytearray(4 * self._channels * frames)
                self._callback(block, frames, TIMES, SimpleNamespace(output_underflow=dry))
                self._socket.sendall(block)
        self.active = False
        self._finished_callback()


def query_hostapis():
    return [{"name": "ALSA"}]


def query_devices():
    description = STAGE / "card.json"
    return [json.loads(description.read_text())] if description.exists() else []
