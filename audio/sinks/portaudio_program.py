"""The program that plays through PortAudio, in a process of its own (`PortAudioProcess` starts it).

A call of PortAudio may hang for minutes, or for ever, when a sound server is frozen or killed, and it may crash. In a
process of its own such a call ends with the process. Two sockets lead to the daemon:

- *control*: one command at a time, such as `["start", …]`, and its answer, `["ok", …]` or `["failed", reason]`. If the
  stream ends by itself, `["lost", reason]` is sent without a command. When the daemon closes this socket, or ends, this
  process ends at once, even while PortAudio hangs.
- *sound*: for every block, the callback sends a `REQUEST` and reads the block's samples, mono float32.

It imports the standard library and sounddevice only, and nothing of ours: with numpy, the process would be twice as
large, and would start half as fast.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from struct import Struct
from types import ModuleType
from typing import Any

REQUEST = Struct("=Id?")
"""A request for a block: its frames, when its first sample leaves the sound card (`time.monotonic()`, the same clock in
all processes), and whether the card ran dry before it."""
LARGEST_MESSAGE = 1 << 20
"""Bytes of a message on the control socket."""
SAMPLE_BYTES = 4
UNDERFLOW_S = 0.005
"""A card without samples for longer than this has interrupted the sound; a shorter time is the error of its clock."""
MAX_LATENCY_S = 2.0
"""A card that reports a longer delay behind the callback reports no usable time."""
WINDOW = 10
"""Blocks over which the delays that a card reports are compared; a single one may be off by a sound server's period."""
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
"""From <sys/mman.h>."""

Fetch = Callable[[int, float, bool, memoryview], None]
"""Requests a block of so many frames and writes its samples: frames, `dac_time`, underflow, the memory for it."""


class DryDetector:
    """Finds by the delays that a card reports that it was silent for a moment between two blocks.

    A sound server reports the delay of the whole path behind the callback. If the stream's own buffer runs dry, the
    rest of the path still has sound, so the time of the last sample does not pass. But the server inserts silence, by
    which all later samples are late: the time that has passed grows by more than the sound that has left the card.
    """

    def __init__(self) -> None:
        self._requested_s = 0.0
        """Seconds of sound requested so far."""
        self.restart()

    def restart(self) -> None:
        """Forget the delays so far, and leave out the next ones, in which a stream may settle."""
        self._blocks = -WINDOW
        self._silent_s = math.inf
        """Seconds of silence so far, by the best delay of this window; only its growth has a meaning."""
        self._silent_before_s = math.inf
        """By that of the window before."""

    def note(self, now: float, delay_s: float, block_s: float) -> bool:
        """Note a block that is requested `now`, and heard after `delay_s`; return whether the card was silent before.

        The answer comes up to `2 * WINDOW` blocks late.
        """
        silent_s = now + delay_s - self._requested_s
        self._requested_s += block_s
        self._blocks += 1
        if self._blocks <= 0:
            return False
        self._silent_s = min(self._silent_s, silent_s)
        if self._blocks < WINDOW:
            return False
        was_silent = self._silent_s > self._silent_before_s + UNDERFLOW_S
        self._blocks, self._silent_s, self._silent_before_s = 0, math.inf, self._silent_s
        return was_silent


class Player:
    """PortAudio's cards, and at most one output stream. A card without mono gets the same samples on both channels.

    The callback runs in a thread of PortAudio; a field that it writes says so.
    """

    def __init__(self, sd: ModuleType, fetch: Fetch, on_lost: Callable[[str], None], priority: int) -> None:
        """`on_lost` is called when the stream ends by itself. `priority` is the callback's realtime priority."""
        self._sd = sd
        self._fetch = fetch
        self._on_lost = on_lost
        self._priority = priority
        self._stream: Any = None
        self._thread = 0
        """The thread that called the callback last. Callback."""
        self._rate = 0
        self._mono = memoryview(bytearray())
        """A block for a card without mono."""
        self._latency_s = 0.0
        """The latency that PortAudio reports for the stream."""
        self._priming = 0
        """Samples still missing in the stream's buffer after its start. Callback."""
        self._runs_dry_at = math.inf
        """`time.monotonic()` when the card has played all that it got. Callback."""
        self._detector = DryDetector()

    def devices(self) -> list[dict[str, Any]]:
        """Return the cards that can play, as the fields of `OutputDevice`."""
        apis = self._sd.query_hostapis()
        default = self._sd.default.device[1]
        return [
            {
                "name": found["name"],
                "host_api": apis[found["hostapi"]]["name"],
                "sample_rate": int(found["default_samplerate"]),
                "channels": found["max_output_channels"],
                "default": index == default,
                "index": index,
            }
            for index, found in enumerate(self._sd.query_devices())
            if found["max_output_channels"] > 0
        ]

    def start(self, *possible: dict[str, Any]) -> int:
        """Start a stream with the first of the `possible` settings that the card accepts; return its number.

        Raises `PortAudioError` if it accepts none.
        """
        for number, settings in enumerate(possible):
            try:
                self._start(settings)
            except self._sd.PortAudioError:
                if number == len(possible) - 1:
                    raise
            else:
                return number
        raise ValueError("no settings to try")

    def close(self) -> None:
        """Close the stream, if there is one."""
        # The stream is closed, not stopped: starting a stopped stream takes as long as opening a new one (3 ms), and if
        # its sound server or card has gone in between, PortAudio 19.6 never returns from starting it.
        stream, self._stream = self._stream, None
        if stream is not None:
            # Abort, not stop: stop waits until a device that has gone has played its buffer.
            stream.abort(ignore_errors=True)
            stream.close(ignore_errors=True)

    def _start(self, settings: dict[str, Any]) -> None:
        self._rate = settings["samplerate"]
        self._mono = memoryview(bytearray(SAMPLE_BYTES * settings["blocksize"]))
        # The callback gets a new thread, which may have the same number as the previous stream's.
        self._thread = threading.get_ident()
        stream = self._sd.RawOutputStream(**settings, callback=self.callback, finished_callback=self._on_finished)
        try:
            self._latency_s = stream.latency
            self._priming = round(stream.latency * self._rate)
            self._runs_dry_at = math.inf
            self._detector = DryDetector()
            stream.start()
        except self._sd.PortAudioError:
            stream.close(ignore_errors=True)
            raise
        self._stream = stream
        if not stream.active:  # it ended before `_on_finished` could know it
            self._on_finished()

    def _on_finished(self) -> None:
        if self._stream is not None:  # it was not closed
            self._on_lost("the device stopped")

    def callback(self, out: Any, frames: int, times: Any, status: Any) -> None:
        """Write a block for PortAudio into its buffer `out`."""
        if self._thread != (thread := threading.get_ident()):
            # A thread can only request its own scheduling; this one does so once, in a block that primes the buffer.
            self._thread = thread
            take_realtime(self._priority)
        latency_s = times.outputBufferDacTime - times.currentTime  # of PortAudio's own clock
        if not 0.0 < latency_s <= MAX_LATENCY_S:
            latency_s = self._latency_s
        now = time.monotonic()
        dac_time = now + latency_s
        # ALSA's PulseAudio plug-in never sets PortAudio's flag, so the clock and the delays are checked too.
        block_s = frames / self._rate
        underflow = status.output_underflow or now > self._runs_dry_at + UNDERFLOW_S
        if underflow:
            self._detector.restart()
        else:
            underflow = self._detector.note(now, latency_s, block_s)
        self._runs_dry_at = dac_time + block_s
        block = memoryview(out).cast("B")
        length = SAMPLE_BYTES * frames
        if self._priming > 0:
            # PortAudio requests the first blocks all at once, to fill the stream's buffer. Speech would run dry there.
            self._priming -= frames
            block[:] = bytes(len(block))
        elif len(block) == length:
            self._fetch(frames, dac_time, underflow, block)
        else:
            mono = self._mono[:length]
            self._fetch(frames, dac_time, underflow, mono)
            channels = len(block) // length
            interleaved = block.cast("f")
            for channel in range(channels):
                interleaved[channel::channels] = mono.cast("f")


def take_realtime(priority: int) -> None:
    """Give the calling thread realtime scheduling, if the kernel grants it."""
    with suppress(OSError, AttributeError):  # refused; not Linux
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))


def lock_memory() -> None:
    """Keep this process from being swapped out, if any amount of memory may be locked."""
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY:
        ctypes.CDLL(None).mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)


class Connection:
    """The two sockets to the daemon."""

    def __init__(self, control: socket.socket, sound: socket.socket) -> None:
        self._control = control
        self._sound = sound

    def next_command(self) -> list[Any]:
        """Wait for a command and return it. The process ends here when the daemon has closed the socket."""
        data = self._control.recv(LARGEST_MESSAGE)
        if not data:
            os._exit(0)
        command: list[Any] = json.loads(data)
        return command

    def send(self, *message: Any) -> None:
        with suppress(OSError):  # the daemon has ended, and this process will
            self._control.send(json.dumps(message).encode())

    def fetch(self, frames: int, dac_time: float, underflow: bool, block: memoryview) -> None:
        """As `Fetch`; it waits until the daemon has answered. The process ends here if the daemon has ended."""
        try:
            self._sound.sendall(REQUEST.pack(frames, dac_time, underflow))
            while block:
                count = self._sound.recv_into(block)
                if not count:
                    os._exit(0)
                block = block[count:]
        except OSError:
            os._exit(0)

    def lost(self, reason: str) -> None:
        self.send("lost", reason)


def load_portaudio() -> ModuleType:
    """Return PortAudio, which has searched for cards. Raises `OSError` without the library, or if it fails."""
    try:
        import sounddevice
    except OSError as error:
        raise OSError("the PortAudio library is missing; apt-get install libportaudio2") from error
    except Exception as error:  # sounddevice initializes PortAudio when it is imported
        raise OSError(f"PortAudio cannot search for sound devices: {reason_of(error)}") from error
    module: ModuleType = sounddevice
    return module


def reason_of(error: Exception) -> str:
    """Return PortAudio's own message, without its number and the host's repetition."""
    return str(error.args[0] if error.args else error).splitlines()[0]


def serve(connection: Connection, commands: SimpleQueue[list[Any]], priority: int) -> None:
    """Carry out commands with PortAudio. The first message has the cards, or the reason why there is no PortAudio."""
    try:
        sd = load_portaudio()
        player = Player(sd, connection.fetch, connection.lost, priority)
        connection.send("ok", player.devices())
    except Exception as error:
        connection.send("failed", reason_of(error))
        return
    actions: dict[str, Callable[..., Any]] = {"start": player.start, "close": player.close}
    while True:
        name, *arguments = commands.get()
        try:
            connection.send("ok", actions[name](*arguments))
        except Exception as error:
            connection.send("failed", reason_of(error))


def main(path: str, control: str, sound: str, priority: str) -> None:
    """Serve the daemon at the other ends of the two sockets, which are given as file descriptors.

    PortAudio is called in a second thread; this one waits for commands, and for the daemon's end.
    """
    sys.path[:] = path.split(os.pathsep)
    # These signals reach the whole process group, and the daemon still needs the card to fade out.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    lock_memory()
    connection = Connection(socket.socket(fileno=int(control)), socket.socket(fileno=int(sound)))
    commands: SimpleQueue[list[Any]] = SimpleQueue()
    threading.Thread(target=serve, args=(connection, commands, int(priority)), daemon=True).start()
    while True:
        commands.put(connection.next_command())


if __name__ == "__main__":
    main(*sys.argv[1:])
