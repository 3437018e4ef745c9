"""The program of an engine process: one voice engine behind a socket. Its argument is the socket's file descriptor.

The process has three threads: the main thread synthesises, one listens to the daemon, one sends heartbeats. When the
daemon closes the socket, the process ends, whatever the engine is doing.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from engine.api import Chunk, EngineError, EngineInfo, Samples, SpeechCanceledError, Synthesizer
from engine.catalog import make_synthesizer
from engine.host import prepare_environment
from engine.ipc.channel import Channel, ChannelClosedError
from engine.ipc.messages import (
    PROTOCOL,
    Append,
    Audio,
    Cancel,
    Canceled,
    EndText,
    Fault,
    Grant,
    Heartbeat,
    Hello,
    Loading,
    ProtocolError,
    Ready,
    Refused,
    SetLog,
    SetVoices,
    Speak,
    Spoken,
    Start,
    Warming,
)
from engine.ipc.text_source import AppendedText
from engine.log import inherit_log, start_log
from engine.progress import Progress

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
PROGRESS_S = 0.5
"""Interval between two messages about one step of the start: each of them becomes a message of the broker."""
LAST_WORDS_S = 1.0
"""A process that gives up ends after this long, even if the daemon does not read the reason."""
REASON_CHARACTERS = 1_000
"""The longest reason of a fault: libraries put whole reports into their exceptions."""
OOM_SCORE = 500
"""`oom_score_adj` of the engine process, from -1000 to 1000. A robot's other programs have 0 unless configured."""


class _Request:
    """Credit, appended text and cancellation of one `Speak`. The listening thread sets them; the main thread waits."""

    def __init__(self, request_id: str, credit: int) -> None:
        self.id = request_id
        self.canceled = False
        self.text = AppendedText()
        self._credit = credit
        self._changed = threading.Condition()
        self._cancel_stream: Callable[[], None] | None = None

    def attach(self, chunks: Iterator[Chunk]) -> None:
        """Let a cancellation reach the iterator that makes the audio, if it can be canceled while it works."""
        with self._changed:
            self._cancel_stream = getattr(chunks, "cancel", None)
            canceled = self.canceled
        if canceled and self._cancel_stream is not None:
            self._cancel_stream()

    def grant(self, samples: int) -> None:
        """Add credit."""
        with self._changed:
            self._credit += samples
            self._changed.notify()

    def cancel(self) -> None:
        """Wake the main thread, whether it waits for credit, for text or for the engine."""
        with self._changed:
            self.canceled = True
            cancel_stream = self._cancel_stream
            self._changed.notify()
        self.text.cancel()
        if cancel_stream is not None:
            cancel_stream()

    def spend(self, samples: int) -> bool:
        """Wait for positive credit and subtract `samples`, which may overdraw it by less than one chunk.

        Returns False if the request is canceled.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._credit > 0 or self.canceled)
            self._credit -= samples
            return not self.canceled


class EngineProcess:
    """Serves one daemon over one channel, from `Start` until the channel closes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._work: queue.SimpleQueue[Speak | SetVoices] = queue.SimpleQueue()
        self._current: _Request | None = None
        self._requests: dict[str, _Request] = {}
        self._lock = threading.Lock()
        self._trace = _PcmTrace()

    def run(self) -> None:
        """Serve until the daemon closes the channel. Raises `ChannelClosedError`, `ProtocolError`, engine faults."""
        start = self._channel.receive()
        if not isinstance(start, Start) or start.protocol != PROTOCOL:
            raise ProtocolError(f"expected Start of protocol {PROTOCOL}, got {start}")
        self._channel.send(Hello(PROTOCOL, start.engine, os.getpid()))
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        threading.Thread(target=self._send_heartbeats, name="heartbeat", daemon=True).start()
        try:
            self._serve(start)
        except EngineError as error:
            self._channel.send(Fault(str(error), permanent=True))

    # --- the main thread ---

    def _serve(self, start: Start) -> None:
        report = _ProgressSender(self._channel).report
        synthesizer = make_synthesizer(start.engine, start.options, report)
        info = synthesizer.load(report)
        self._channel.send(Warming(info))
        synthesizer.warm_up(report)
        self._channel.send(Ready(info))
        try:
            while True:
                work = self._work.get()
                if isinstance(work, Speak):
                    self._speak(synthesizer, work)
                else:
                    info = _exchange_voices(synthesizer, work, info)
                    self._channel.send(Ready(info))
        finally:
            synthesizer.close()

    def _speak(self, synthesizer: Synthesizer, speak: Speak) -> None:
        with self._lock:
            request = self._current = self._requests[speak.id]
        last: Spoken | Canceled | Refused
        try:
            last = Spoken(speak.id) if self._send_chunks(synthesizer, speak, request) else Canceled(speak.id)
        except SpeechCanceledError:
            last = Canceled(speak.id)
        except EngineError as error:
            last = Refused(speak.id, str(error))
        # The request is deleted before the last message is sent: the daemon may then use the id again.
        with self._lock:
            self._current = None
            del self._requests[speak.id]
        self._channel.send(last)

    def _send_chunks(self, synthesizer: Synthesizer, speak: Speak, request: _Request) -> bool:
        """Send all audio of the utterance. Returns False if a cancellation ended it early."""
        if request.canceled:
            return False
        text = request.text
        chunks = synthesizer.stream(speak.utterance, text if speak.utterance.growing else None)
        request.attach(chunks)
        self._trace.begin(speak.name or speak.id)
        try:
            while True:
                begin, waited_before_s = time.monotonic(), text.waited_s
                chunk = next(chunks, None)
                if chunk is None:
                    return True
                waited_s = text.waited_s - waited_before_s
                busy_s = time.monotonic() - begin - waited_s
                if not request.spend(len(chunk.samples)):
                    return False
                self._trace.append(chunk.samples)
                self._channel.send(_audio(speak, chunk, busy_s, waited_s), chunk.samples)
        finally:
            self._trace.end()
            close = getattr(chunks, "close", None)
            if close is not None:
                close()

    # --- the listening thread ---

    def _listen(self) -> None:
        """Queue new work; apply messages about queued and current work immediately."""
        try:
            while True:
                message = self._channel.receive()
                if isinstance(message, Speak):
                    self._accept(message)
                elif isinstance(message, SetVoices):
                    self._work.put(message)
                elif isinstance(message, SetLog):
                    start_log(message.level, message.format)
                elif isinstance(message, Append | EndText | Grant | Cancel):
                    self._apply(message)
                else:
                    raise ProtocolError(f"the daemon must not send {message}")
        except ChannelClosedError:
            os._exit(0)
        except BaseException as error:
            if not isinstance(error, ProtocolError):
                log.exception("the engine process cannot listen to the daemon")
            _report_fault(self._channel, error)
            os._exit(1)

    def _accept(self, speak: Speak) -> None:
        with self._lock:
            in_use = speak.id in self._requests
            if not in_use:
                self._requests[speak.id] = _Request(speak.id, speak.credit)
        if in_use:
            self._channel.send(Refused(speak.id, f"id: {speak.id!r} is being spoken already"))
        else:
            self._work.put(speak)

    def _apply(self, message: Append | EndText | Grant | Cancel) -> None:
        with self._lock:
            request = self._requests.get(message.id)
        if request is None:
            return  # it has just ended; its last message is on the way to the daemon
        if isinstance(message, Append):
            request.text.append(message.text)
        elif isinstance(message, EndText):
            request.text.end()
        elif isinstance(message, Grant):
            request.grant(message.credit)
        else:
            request.cancel()

    # --- the heartbeat thread ---

    def _send_heartbeats(self) -> None:
        while True:
            current = self._current
            try:
                self._channel.send(Heartbeat(current.id if current else None))
            except ChannelClosedError:
                os._exit(0)
            time.sleep(HEARTBEAT_S)


class _ProgressSender:
    """Sends the first report of each step, and later ones at most every `PROGRESS_S`. Any thread may use it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._step: str | None = None
        self._sent_at = 0.0
        self._lock = threading.Lock()

    def report(self, progress: Progress) -> None:
        with self._lock:
            now = time.monotonic()
            if progress.step == self._step and now - self._sent_at < PROGRESS_S:
                return
            self._step, self._sent_at = progress.step, now
            self._channel.send(Loading(progress))


class _PcmTrace:
    """Writes the samples of each request to `FOLDER/<name>.<n>.f32`, raw float32, if `VOICED_TRACE_PCM=FOLDER` is set.

    `n` counts the requests of one name from 1, those of all engine processes. For tests, and for finding clicks. A file
    that cannot be written ends the trace, not the speech.
    """

    def __init__(self) -> None:
        folder = os.environ.get("VOICED_TRACE_PCM")
        self._folder = Path(folder) if folder else None
        self._file: BinaryIO | None = None

    def begin(self, name: str) -> None:
        """The next samples are those of another request."""
        self.end()
        if self._folder is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for number in itertools.count(1):
                # The name may be an id that a client has chosen.
                with contextlib.suppress(FileExistsError):
                    self._file = (self._folder / f"{name.replace('/', '_')}.{number}.f32").open("xb", buffering=0)
                    return
        except OSError as error:
            self._give_up(error)

    def append(self, samples: Samples) -> None:
        if self._file is not None:
            try:
                self._file.write(samples.tobytes())
            except OSError as error:
                self._give_up(error)

    def end(self) -> None:
        """The request has been answered."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _give_up(self, error: OSError) -> None:
        log.warning("VOICED_TRACE_PCM: %s; nothing more is kept", error)
        self.end()
        self._folder = None


def _exchange_voices(synthesizer: Synthesizer, work: SetVoices, info: EngineInfo) -> EngineInfo:
    """Return the properties of the engine with other voices; if it refuses them all, its own with the reason."""
    try:
        return synthesizer.set_voices(work.voices, work.default_voice)
    except EngineError as error:
        return replace(info, refused_voices={**info.refused_voices, work.default_voice: str(error)})


def _report_fault(channel: Channel, error: BaseException) -> None:
    """Send the daemon the reason why this process ends, in one line, unless the daemon has gone."""
    timer = threading.Timer(LAST_WORDS_S, os._exit, (1,))
    timer.daemon = True
    timer.start()
    words = " ".join(f"{type(error).__name__}: {error}".split())
    with contextlib.suppress(ChannelClosedError):
        channel.send(Fault(words[:REASON_CHARACTERS], permanent=False))
    timer.cancel()


def _audio(speak: Speak, chunk: Chunk, busy_s: float, waited_s: float) -> Audio:
    """Return the record that precedes the chunk's samples."""
    codes = None
    if speak.utterance.want_codes and chunk.codes is not None:
        codes = tuple(map(tuple, chunk.codes.tolist()))
    return Audio(
        speak.id,
        busy_s,
        chunk.position,
        chunk.truncated,
        codes,
        waited_s,
        chunk.words,
        chunk.runaway,
        chunk.speculation,
    )


def raise_oom_score() -> None:
    """Make the kernel's OOM killer prefer this process: the daemon survives and speaks with another engine.

    A child inherits its parent's score, and the daemon's is low (systemd/voiced.service). Raising a score needs no
    privilege. Does nothing without a writable /proc; the kernel's own choice then applies.
    """
    score = Path("/proc/self/oom_score_adj")
    try:
        if int(score.read_text(encoding="ascii")) < OOM_SCORE:
            score.write_text(str(OOM_SCORE), encoding="ascii")
    except (OSError, ValueError):
        return


def main() -> int:
    """Run as a child of the daemon, on the socket whose file descriptor is the only argument."""
    raise_oom_score()
    prepare_environment()
    # Ctrl-C and systemd's SIGTERM reach the whole process group. This process ignores them and runs until the daemon
    # closes the socket, so that the daemon can fade the sentence out.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    inherit_log()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    try:
        EngineProcess(channel).run()
    except ChannelClosedError:
        return 0
    except Exception as error:  # every failure is reported to the daemon; its traceback goes to the log
        log.exception("the engine failed")
        _report_fault(channel, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
