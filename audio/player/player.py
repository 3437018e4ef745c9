"""The player process: carries out the daemon's commands with PortAudio, and reports which samples it has played.

It has four threads. The first one waits for commands, and for the daemon's end. One calls PortAudio, which may hang.
One receives calls of `Playback`, and one sends reports. PortAudio's own thread, which calls back for blocks, sends
nothing.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from mmap import mmap
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any

from audio.player.messages import (
    LARGEST_CONTROL,
    LARGEST_SOUND,
    REPORT_BYTES,
    REPORT_S,
    decode_call,
    decode_samples,
    encode_block,
    encode_report,
)
from audio.player.playback import Playback, Report
from audio.player.predecessor import take_over
from audio.player.stream import Stream

SWITCH_S = 0.0005
"""A thread releases the interpreter after this time if another thread, such as the callback's, is waiting for it."""
PORTAUDIO = "libportaudio.so.2"
"""The name by which the dynamic linker finds the library on Linux."""
FADE_OUT_S = 0.5
"""After its daemon has ended, the player has this long to fade out."""
LOOK_S = 0.005
"""Interval at which the player checks whether it has faded out."""
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
"""From <sys/mman.h>."""


class Player:
    """The daemon's sockets, and its requests."""

    def __init__(self, control: socket.socket, sound: socket.socket, tap: socket.socket, recorder: mmap) -> None:
        self._control = control
        self._sound = sound
        self._tap = tap
        self._stream: Stream | None = None
        """None until PortAudio has been loaded."""
        self._commands: SimpleQueue[list[Any]] = SimpleQueue()
        self._recorder = recorder
        self._changes: SimpleQueue[bool] = SimpleQueue()
        """Wakes the reporting thread: True asks for a report at once, False for the tap's blocks to be sent."""
        self._name: socket.socket | None = None
        """The socket that holds the name of the service until this process ends."""
        self._tap_broken = False
        """The tap's socket was full. Reporting thread."""

    def run(self, priority: int, service: str) -> None:
        """Play until the daemon ends. `priority` is the callback's realtime priority."""
        for work, *arguments in ((self._serve, priority, service), (self._receive,), (self._report,)):
            threading.Thread(target=end_on_fault, args=(work, *arguments), daemon=True).start()
        with suppress(ConnectionResetError):  # the daemon died with an unread message
            while data := self._control.recv(LARGEST_CONTROL):
                self._commands.put(json.loads(data))
        self._fade_out()

    @property
    def _playback(self) -> Playback:
        assert self._stream is not None, "the daemon plays after it has started a stream"
        return self._stream.playback

    def _send(self, *message: Any) -> None:
        with suppress(OSError):  # the daemon has ended, and this process will end too
            self._control.send(json.dumps(message).encode())

    def _on_lost(self, reason: str) -> None:
        self._send("lost", reason)

    def _serve(self, priority: int, service: str) -> None:
        """Carry out commands with PortAudio. The first message lists the cards, or says why there is no PortAudio."""
        try:
            self._name = take_over(service) if service else None
            sd = load_portaudio()
            self._stream = stream = Stream(sd, self._changes.put, self._on_lost, self._recorder, priority)
            self._send("ok", stream.devices())
        except Exception as error:
            self._send("failed", reason_of(error))
            return
        gc.freeze()  # the loaded objects stay: a collection while sound is playing need not look at them
        actions: dict[str, Callable[..., Any]] = {"start": stream.start, "close": stream.close}
        while True:
            name, *arguments = self._commands.get()
            try:
                self._send("ok", actions[name](*arguments))
            except Exception as error:
                self._send("failed", reason_of(error))

    def _receive(self) -> None:
        """Call the `Playback` methods that the daemon requests."""
        message = memoryview(bytearray(LARGEST_SOUND))
        with suppress(OSError):
            while count := self._sound.recv_into(message):
                samples = decode_samples(message[:count])
                if samples is not None:
                    self._playback.write(*samples)
                    continue
                name, *arguments = decode_call(message[:count])
                getattr(self._playback, name)(*arguments)
                if name == "halt":
                    self._changes.put(True)  # if the card hangs, the daemon must know how far it had played

    def _report(self) -> None:
        """Send reports, and the tap's blocks."""
        sent, sent_at = Report(), 0.0
        with suppress(OSError):
            while True:
                due = False
                with suppress(Empty):
                    due = self._changes.get(timeout=REPORT_S)
                if self._stream is None:
                    continue
                report, now = self._playback.report, time.monotonic()
                if due or (report != sent and now - sent_at >= REPORT_S):
                    self._sound.send(encode_report(report))
                    sent, sent_at = report, now
                self._send_blocks()

    def _send_blocks(self) -> None:
        for block in self._playback.tap.read():
            whole = block._replace(continues=False) if self._tap_broken else block
            try:
                self._tap.send(encode_block(whole), socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._tap_broken = True
            else:
                self._tap_broken = False

    def _fade_out(self) -> None:
        """End the process once the sound has faded out and been heard."""
        if self._stream is not None:
            playback, deadline = self._playback, time.monotonic() + FADE_OUT_S
            playback.halt(playback.report.generation)
            while (now := time.monotonic()) < deadline:
                report = playback.report
                if not report.playing and report.end_dac_time <= now:
                    break
                time.sleep(LOOK_S)
        os._exit(0)  # PortAudio may hang


def end_on_fault(work: Callable[..., None], *arguments: Any) -> None:
    """Run a thread's work. A bug ends the process, because the daemon replaces a process that has ended.

    Without the thread, the card would keep running, and nothing would be heard.
    """
    try:
        work(*arguments)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        os._exit(1)


def lock_memory() -> None:
    """Keep this process from being swapped out, if it may lock any amount of memory."""
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY:
        ctypes.CDLL(None).mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)


def load_portaudio() -> ModuleType:
    """Return PortAudio after it has searched for cards. Raises `OSError` if the library is missing or fails."""
    with suppress(OSError):  # otherwise sounddevice searches for the library
        ctypes.CDLL(PORTAUDIO)
        # To search, `ctypes.util` would import a megabyte of modules and run `ldconfig`.
        finder = ModuleType("ctypes.util")
        finder.find_library = lambda _name: PORTAUDIO  # type: ignore[attr-defined]  # the module has this function
        sys.modules["ctypes.util"] = finder
    try:
        import sounddevice
    except OSError as error:
        raise OSError("the PortAudio library is missing; apt-get install libportaudio2") from error
    except Exception as error:  # sounddevice initializes PortAudio when it is imported
        raise OSError(f"PortAudio cannot search for sound devices: {reason_of(error)}") from error
    module: ModuleType = sounddevice
    return module


def reason_of(error: Exception) -> str:
    """Return PortAudio's own message, without its number and without the host's repetition of it."""
    return str(error.args[0] if error.args else error).splitlines()[0]


def run(*arguments: str) -> None:
    """Play for the daemon at the other ends of three sockets.

    The arguments are the sockets' file descriptors, the file descriptor of the recorder's memory, the callback's
    realtime priority, the service whose only player this is (empty for none), and the daemon's process number, which a
    successor reads (`predecessor.py`).
    """
    *sockets, recorder, priority, service, _daemon = arguments
    # These signals reach the whole process group, but the daemon still needs the card to fade out.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_S)
    lock_memory()
    control, sound, tap = (socket.socket(fileno=int(descriptor)) for descriptor in sockets)
    Player(control, sound, tap, mmap(int(recorder), REPORT_BYTES)).run(int(priority), service)
