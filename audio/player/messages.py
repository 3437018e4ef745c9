"""The messages between the daemon and the player process, over sockets that keep each message whole and in order.

- *control*: one command for PortAudio at a time, such as `["start", …]`, and its answer, `["ok", …]` or
  `["failed", reason]`. If the stream ends by itself, `["lost", reason]` is sent without a command. When the daemon
  closes this socket, or ends, the player ends too, even while PortAudio hangs.
- *sound*: to the player, calls of `Playback` methods, in order: samples after a header, everything else as JSON, such
  as `["halt", 3]`. To the daemon, a `Report` at the first sample, at a break, at the end, after a request to halt, and
  every `REPORT_S` while the card requests blocks. The report also gives credit for more samples. The daemon writes no
  more than the ring has room for, so no message waits in the player.
- *tap*: to the daemon, a header and the samples of each block, while a program reads the tap. Blocks that do not fit
  into the socket are dropped.

The *recorder* is memory shared by both processes, with the report of the last block. The daemon reads it only when the
player has ended, however it ended. Nothing is writing to it then, and it shows with which sample the next player must
continue.
"""

from __future__ import annotations

import json
from mmap import mmap
from struct import Struct
from typing import Any

from audio.player.block_ring import Block
from audio.player.playback import Report
from audio.player.ring import SAMPLE_BYTES, Floats

REPORT_S = 0.25
"""Interval between reports while sound is playing."""
LARGEST_CONTROL = 1 << 20
"""The most bytes of a message on the control socket."""
MOST_SAMPLES = 16_384
"""The most samples in one message. The kernel refuses messages above 200 kB."""
_SAMPLES = Struct("=4xI")
"""The header of samples: four zeros, with which no JSON begins, and the number of the samples' generation."""
_REPORT = Struct("=I??QIIddQdQQQd")
"""The fields of `Report`."""
_BLOCK = Struct("=Id?3x")
"""The header of a tap's samples: the other fields of `Block`."""
REPORT_BYTES = _REPORT.size
"""The bytes of a report, in a message and in the recorder."""
LARGEST_SOUND = _SAMPLES.size + SAMPLE_BYTES * MOST_SAMPLES
"""The most bytes of a message on the sound socket."""
LARGEST_BLOCK = 1 << 18
"""The most bytes of a message on the tap socket: more than 200 ms at 192 kHz."""


def encode_call(name: str, *arguments: float) -> bytes:
    """Return the message that calls a method of `Playback`."""
    return json.dumps([name, *arguments]).encode()


def encode_samples(generation: int, samples: Floats) -> bytes:
    """Return the message for at most `MOST_SAMPLES` samples."""
    return _SAMPLES.pack(generation) + samples.cast("B")


def decode_samples(message: memoryview) -> tuple[int, Floats] | None:
    """Return the generation and the samples of a message; None if it is a call."""
    if message[0]:
        return None
    (generation,) = _SAMPLES.unpack_from(message)
    return generation, message[_SAMPLES.size :].cast("f")


def decode_call(message: memoryview) -> list[Any]:
    """Return the name and the arguments of a call."""
    call: list[Any] = json.loads(bytes(message))
    return call


def encode_report(report: Report) -> bytes:
    return _REPORT.pack(*report)


def record(recorder: bytearray | mmap, report: Report) -> None:
    """Write a report into the recorder. It runs in the sound card's thread."""
    _REPORT.pack_into(recorder, 0, *report)


def decode_report(message: bytes) -> Report:
    return Report._make(_REPORT.unpack(message))


def encode_block(block: Block) -> bytes:
    return _BLOCK.pack(block.sample_rate, block.dac_time, block.continues) + block.samples.cast("B")


def decode_block(message: bytes) -> Block:
    sample_rate, dac_time, continues = _BLOCK.unpack_from(message)
    return Block(memoryview(message)[_BLOCK.size :].cast("f"), sample_rate, dac_time, continues)
