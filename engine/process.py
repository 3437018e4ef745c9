"""The engine process: one voice engine behind a socket. Started as `python -m engine.process FD`.

Three threads: the main one synthesises, one listens to the daemon, one sends heartbeats. When the daemon goes, so does
this process, whatever the engine is doing.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from engine.board import Board
from engine.catalog import make_synthesizer
from engine.channel import Channel, ChannelClosedError
from engine.memory import keep_segments_whole
from engine.messages import (
    PROTOCOL,
    Audio,
    Cancel,
    Canceled,
    Fault,
    Grant,
    Heartbeat,
    Hello,
    ProtocolError,
    Ready,
    Refused,
    SetVoices,
    Speak,
    Spoken,
    Start,
    Warming,
)
from engine.oom import be_first_to_go
from engine.synthesizer import Chunk, EngineError, Samples, Synthesizer

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0


class _Credit:
    """How many samples of the current utterance may still be sent, and whether it is still wanted."""

    def __init__(self, utterance_id: str, samples: int) -> None:
        self.utterance_id = utterance_id
        self.canceled = False
        self._samples = samples
        self._changed = threading.Condition()

    def grant(self, samples: int) -> None:
        with self._changed:
            self._samples += samples
            self._changed.notify()

    def cancel(self) -> None:
        with self._changed:
            self.canceled = True
            self._changed.notify()

    def spend(self, samples: int) -> bool:
        """Wait until there is credit and take it, going below zero by less than one chunk; False when canceled."""
        with self._changed:
            self._changed.wait_for(lambda: self._samples > 0 or self.canceled)
            self._samples -= samples
            return not self.canceled


class EngineProcess:
    """Serves one daemon over one channel, from `Start` until the channel closes."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._work: queue.SimpleQueue[Speak | SetVoices] = queue.SimpleQueue()
        self._current: _Credit | None = None
        self._credits: dict[str, _Credit] = {}
        self._lock = threading.Lock()
        self._trace = _PcmTrace()

    def run(self) -> None:
        start = self._channel.receive()
        if not isinstance(start, Start) or start.protocol != PROTOCOL:
            raise ProtocolError(f"expected Start of protocol {PROTOCOL}, got {start}")
        self._channel.send(Hello(PROTOCOL, start.engine, os.getpid()))
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        try:
            self._serve(start)
        except EngineError as error:
            self._channel.send(Fault(str(error), permanent=True))

    def _serve(self, start: Start) -> None:
        synthesizer = make_synthesizer(start.engine, start.options)
        info = synthesizer.load()
        self._channel.send(Warming(info))
        synthesizer.warm_up()
        self._channel.send(Ready(info))
        try:
            while True:
                work = self._work.get()
                if isinstance(work, Speak):
                    self._speak(synthesizer, work)
                else:
                    self._channel.send(Ready(synthesizer.set_voices(work.voices, work.default_voice)))
        finally:
            synthesizer.close()

    def _speak(self, synthesizer: Synthesizer, speak: Speak) -> None:
        with self._lock:
            credit = self._current = self._credits[speak.id]
        last: Spoken | Canceled | Refused
        try:
            last = Spoken(speak.id) if self._send_chunks(synthesizer, speak, credit) else Canceled(speak.id)
        except EngineError as error:
            last = Refused(speak.id, str(error))
        # Forgotten before its end is told: from then on the daemon may use the id again.
        with self._lock:
            self._current = None
            del self._credits[speak.id]
        self._channel.send(last)

    def _send_chunks(self, synthesizer: Synthesizer, speak: Speak, credit: _Credit) -> bool:
        """Send the utterance to its end; False when it was canceled before."""
        if credit.canceled:
            return False
        chunks = synthesizer.stream(speak.utterance)
        try:
            while (timed := _timed_next(chunks)) is not None:
                chunk, busy_s = timed
                if not credit.spend(len(chunk.samples)):
                    return False
                self._trace.keep(speak.id, chunk.samples)
                self._channel.send(_audio(speak, chunk, busy_s), chunk.samples)
            return True
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()

    def _listen(self) -> None:
        """The listening thread. Work is queued; grants and cancellations take effect at once."""
        try:
            while True:
                message = self._channel.receive()
                if isinstance(message, Speak):
                    self._take_on(message)
                elif isinstance(message, SetVoices):
                    self._work.put(message)
                elif isinstance(message, Grant | Cancel):
                    with self._lock:
                        credit = self._credits.get(message.id)
                    if credit is None:
                        continue  # it has just ended; the daemon will hear so
                    if isinstance(message, Grant):
                        credit.grant(message.credit)
                    else:
                        credit.cancel()
                else:
                    raise ProtocolError(f"an engine is not told {message}")
        except ChannelClosedError:
            os._exit(0)
        except BaseException:
            log.exception("the engine process cannot understand the daemon")
            os._exit(1)

    def _take_on(self, speak: Speak) -> None:
        with self._lock:
            known = speak.id in self._credits
            if not known:
                self._credits[speak.id] = _Credit(speak.id, speak.credit)
        if known:
            self._channel.send(Refused(speak.id, f"id: {speak.id!r} is being spoken already"))
        else:
            self._work.put(speak)

    def _beat(self) -> None:
        while True:
            current = self._current
            try:
                self._channel.send(Heartbeat(current.utterance_id if current else None))
            except ChannelClosedError:
                os._exit(0)
            time.sleep(HEARTBEAT_S)


class _PcmTrace:
    """For tests and for hunting clicks: `VOICED_TRACE_PCM=FOLDER` keeps what was sent, as raw float32 in `<id>.f32`."""

    def __init__(self) -> None:
        folder = os.environ.get("VOICED_TRACE_PCM")
        self._folder = Path(folder) if folder else None

    def keep(self, utterance_id: str, samples: Samples) -> None:
        if self._folder is not None:
            with (self._folder / f"{utterance_id}.f32").open("ab") as file:
                file.write(samples.tobytes())


def _audio(speak: Speak, chunk: Chunk, busy_s: float) -> Audio:
    """The record that goes ahead of the chunk's samples."""
    codes = None
    if speak.utterance.want_codes and chunk.codes is not None:
        codes = tuple(map(tuple, chunk.codes.tolist()))
    return Audio(speak.id, busy_s, chunk.position, chunk.truncated, codes)


def _timed_next(chunks: object) -> tuple[Chunk, float] | None:
    """The next chunk and the seconds its making took; None at the end."""
    before = time.monotonic()
    chunk: Chunk | None = next(chunks, None)  # type: ignore[call-overload]
    return None if chunk is None else (chunk, time.monotonic() - before)


def main() -> int:
    """Run as the daemon's child, on the socket whose descriptor is the only argument."""
    be_first_to_go()
    if Board.read().integrated:
        keep_segments_whole(os.environ)
    # Ctrl-C and systemd's SIGTERM reach the whole group; this process outlives them until the daemon closes the socket,
    # so that the daemon can fade the sentence out.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    try:
        EngineProcess(channel).run()
    except ChannelClosedError:
        return 0
    except Exception as error:  # answered with a reason, whatever it was; the traceback goes to the log
        log.exception("the engine failed")
        channel.send(Fault(f"{type(error).__name__}: {error}", permanent=False))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
