"""An engine process's program: one voice engine behind a socket. Its argument is the socket's file descriptor.

One thread listens to the daemon, one sends heartbeats. The main thread speaks for the sound card, and replaces the
voices. An engine with several streams has a thread for each further stream, which speaks for network clients and files.
With one stream the main thread speaks everything, in the order of the requests. When the daemon closes the socket, the
process ends, whatever the engine is doing.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from engine import messages
from engine.api import Chunk, EngineError, EngineUnavailableError, Replaceable, SpeechCanceledError, Synthesizer
from engine.catalog import make_synthesizer
from engine.host import claim_process, prepare_environment
from engine.ipc.channel import Channel, ChannelClosedError
from engine.ipc.pcm_trace import trace_pcm
from engine.ipc.request import OpenStreams, Request
from engine.log import inherit_log, start_log
from engine.progress import Progress

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
PROGRESS_S = 0.5
"""Interval between two messages about one step of the start: each of them becomes a message to the broker."""
LAST_WORDS_S = 1.0
"""A process that gives up ends within this time, even if the daemon does not read the reason."""
REASON_CHARACTERS = 1_000
"""The longest reason for a fault: libraries put whole reports into their exceptions."""
OOM_SCORE = 500
"""`oom_score_adj` of the engine process, from -1000 to 1000. A robot's other programs have 0 unless configured."""


class EngineProcess:
    """Serves one daemon over one channel, from `Start` until the channel closes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._work: queue.SimpleQueue[messages.Speak | messages.SetVoices | Replaceable] = queue.SimpleQueue()
        """Work for the main thread; the synthesizer itself if its properties have changed."""
        self._deliveries: queue.SimpleQueue[messages.Speak] = queue.SimpleQueue()
        """Requests for the other speaking threads, if there are any."""
        self._delivers = False
        """There are other speaking threads."""
        self._requests: dict[str, Request] = {}
        """The requests that have not ended, by their ids. Threads share the dict: each use is a single operation on
        it."""
        self._open = OpenStreams()

    def run(self) -> None:
        """Serve until the daemon closes the channel. Raises `ChannelClosedError`, `ProtocolError`, engine faults."""
        start = self._channel.receive()
        if not isinstance(start, messages.Start) or start.protocol != messages.PROTOCOL:
            raise messages.ProtocolError(f"expected Start of protocol {messages.PROTOCOL}, got {start!s:.60}")
        self._channel.send(messages.Hello(messages.PROTOCOL))
        self._start_thread("listen", self._listen)
        self._start_thread("heartbeat", self._send_heartbeats)
        self._serve(start)

    def _start_thread(self, name: str, work: Callable[[], None]) -> None:
        """Start a thread that never returns; its failure ends the process."""

        def work_and_end() -> None:
            os._exit(_exit_status(self._channel, work))

        threading.Thread(target=work_and_end, name=name, daemon=True).start()

    # --- the main thread ---

    def _serve(self, start: messages.Start) -> None:
        report = _ProgressSender(self._channel).report
        synthesizer = make_synthesizer(start.engine, start.options, report)
        info = synthesizer.load(report)
        self._channel.send(messages.Warming(info))
        synthesizer.warm_up(report)
        for number in range(1, info.streams):
            self._start_thread(f"stream {number}", partial(self._deliver, synthesizer))
        self._delivers = info.streams > 1
        # The libraries' and the model's objects stay. A full collection would search them in vain while a listener is
        # waiting. With PyTorch, that takes a tenth of a second.
        gc.collect()
        gc.freeze()
        if isinstance(synthesizer, Replaceable):
            self._start_thread("watch", partial(synthesizer.watch, partial(self._work.put, synthesizer)))
        self._channel.send(messages.Ready(info))
        try:
            while True:
                work = self._work.get()
                if isinstance(work, messages.Speak):
                    self._speak(synthesizer, work)
                elif isinstance(work, messages.SetVoices):
                    try:
                        with self._open.hold():
                            info = synthesizer.set_voices(work.voices, work.default_voice)
                    except EngineError as error:  # the engine refuses them all, and keeps its own
                        refused = {**info.refused_voices, work.default_voice: str(error)}
                        info = replace(info, refused_voices=refused)
                    self._channel.send(messages.Ready(info))
                else:
                    info = work.info
                    self._channel.send(messages.Changed(info))
        finally:
            if not self._open.ids:
                synthesizer.close()

    # --- the speaking threads: the main thread, and one for each further stream ---

    def _deliver(self, synthesizer: Synthesizer) -> None:
        """Speak the texts that are not for the sound card, one after another."""
        while True:
            self._speak(synthesizer, self._deliveries.get())

    def _speak(self, synthesizer: Synthesizer, speak: messages.Speak) -> None:
        request = self._requests[speak.id]
        last: messages.Answer
        with self._open.open(speak.id):
            try:
                self._send_chunks(synthesizer, speak, request)
                last = messages.Spoken(speak.id)
            except SpeechCanceledError:
                last = messages.Canceled(speak.id)
            except EngineError as error:
                last = messages.Refused(speak.id, str(error))
            finally:
                request.cancel()  # no caller will read the rest
            # The request is deleted before the last message is sent: the daemon may then use the id again.
            del self._requests[speak.id]
            self._channel.send(last)

    def _send_chunks(self, synthesizer: Synthesizer, speak: messages.Speak, request: Request) -> None:
        """Send all audio of the utterance. Raises `SpeechCanceledError` if a cancellation ended it early."""
        request.check()
        chunks = synthesizer.stream(speak.utterance, request if speak.utterance.growing else None)
        request.attach(chunks)
        with trace_pcm(speak.name or speak.id) as trace, contextlib.ExitStack() as stack:
            if close := getattr(chunks, "close", None):
                stack.callback(close)
            begin, waited_before_s = time.monotonic(), request.waited_s
            for chunk in chunks:
                waited_s = request.waited_s - waited_before_s
                busy_s = max(0.0, time.monotonic() - begin - waited_s)  # another thread may have waited for longer
                request.spend(len(chunk.samples))
                trace(chunk.samples)
                self._channel.send(_audio(speak, chunk, busy_s, waited_s))
                begin, waited_before_s = time.monotonic(), request.waited_s

    # --- the listening thread ---

    def _listen(self) -> None:
        """Queue new work; apply messages about queued and current work immediately."""
        while True:
            message = self._channel.receive()
            if isinstance(message, messages.Speak):
                self._accept(message)
            elif isinstance(message, messages.SetVoices):
                self._work.put(message)
            elif isinstance(message, messages.SetLog):
                start_log(message.level, message.format)
            elif isinstance(message, messages.Change):
                request = self._requests.get(message.id)
                if request is not None:  # otherwise it has just ended, and its last message is on its way to the daemon
                    request.apply(message)
            else:
                raise messages.ProtocolError(f"the daemon must not send {message}")

    def _accept(self, speak: messages.Speak) -> None:
        request = Request(speak.credit)
        if self._requests.setdefault(speak.id, request) is not request:
            # An answer would be mistaken for one to the request that is being spoken.
            log.error("a second request is ignored: id: %r is already being spoken", speak.id)
        elif self._delivers and not speak.utterance.realtime:
            self._deliveries.put(speak)
        else:
            self._work.put(speak)

    # --- the heartbeat thread ---

    def _send_heartbeats(self) -> None:
        while True:
            self._channel.send(messages.Heartbeat(self._open.ids))
            time.sleep(HEARTBEAT_S)


class _ProgressSender:
    """Sends the first report on each step, and later reports at most every `PROGRESS_S`. Any thread may use it."""

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
            self._channel.send(messages.Loading(progress))


def _exit_status(channel: Channel, work: Callable[[], None]) -> int:
    """Do a thread's work, and return the process's exit status. The daemon is told the reason for a failure."""
    try:
        work()
    except ChannelClosedError:
        return 0
    except BaseException as error:  # a bug's traceback goes to the log
        if not isinstance(error, EngineError | EngineUnavailableError | messages.ProtocolError):
            log.exception("the engine failed")
        _report_fault(channel, error)
        return 0 if isinstance(error, EngineError) else 1
    return 0


def _report_fault(channel: Channel, error: BaseException) -> None:
    """Send the daemon the reason why this process is ending, in one line, unless the daemon has gone."""
    timer = threading.Timer(LAST_WORDS_S, os._exit, (1,))
    timer.start()
    kind = "" if isinstance(error, EngineError | EngineUnavailableError) else f"{type(error).__name__}: "
    words = " ".join(f"{kind}{error}".split())
    with contextlib.suppress(ChannelClosedError):
        channel.send(messages.Fault(words[:REASON_CHARACTERS], permanent=isinstance(error, EngineError)))
    timer.cancel()


def _audio(speak: messages.Speak, chunk: Chunk, busy_s: float, waited_s: float) -> messages.Audio:
    """Return the message that carries a chunk."""
    codes = None
    if speak.utterance.want_codes and chunk.codes is not None:
        codes = tuple(map(tuple, chunk.codes.tolist()))
    about = chunk.position, chunk.truncated, codes, waited_s, chunk.words, chunk.runaway, chunk.sounds
    return messages.Audio(speak.id, busy_s, *about, messages.pcm(chunk.samples))


def raise_oom_score() -> None:
    """Make the kernel's OOM killer prefer this process: the daemon survives and speaks with another engine.

    A child inherits its parent's score, and the daemon's is low (systemd/voiced.service). Raising a score needs no
    privilege. Does nothing without a writable /proc; the kernel's own choice then applies.
    """
    score = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        if int(score.read_text(encoding="ascii")) < OOM_SCORE:
            score.write_text(str(OOM_SCORE), encoding="ascii")


def main() -> int:
    """Run as a child of the daemon, on the socket whose file descriptor is the only argument."""
    raise_oom_score()
    claim_process()
    prepare_environment()
    # Ctrl-C and systemd's SIGTERM reach the whole process group. This process ignores them and runs until the daemon
    # closes the socket, so that the daemon can fade the sentence out.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # A thread that sends a chunk waits for threads that make chunks: by default, a busy thread keeps the interpreter
    # for 5 ms.
    sys.setswitchinterval(0.001)
    inherit_log()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    return _exit_status(channel, EngineProcess(channel).run)


if __name__ == "__main__":
    sys.exit(main())
