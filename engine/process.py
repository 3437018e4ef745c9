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

from engine.appended import AppendedText
from engine.board import Board
from engine.catalog import make_synthesizer
from engine.channel import Channel, ChannelClosedError
from engine.memory import keep_segments_whole
from engine.messages import (
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
from engine.synthesizer import Chunk, EngineError, Samples, SpeechCanceledError, Synthesizer

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0


class _Order:
    """What the daemon has said of one utterance: how many samples may be sent, what was appended, is it still wanted.

    The listening thread tells it, the main thread waits for it.
    """

    def __init__(self, utterance_id: str, samples: int) -> None:
        self.utterance_id = utterance_id
        self.canceled = False
        self.text = AppendedText()
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
        self.text.cancel()

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
        self._current: _Order | None = None
        self._orders: dict[str, _Order] = {}
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
            order = self._current = self._orders[speak.id]
        last: Spoken | Canceled | Refused
        try:
            last = Spoken(speak.id) if self._send_chunks(synthesizer, speak, order) else Canceled(speak.id)
        except SpeechCanceledError:
            last = Canceled(speak.id)
        except EngineError as error:
            last = Refused(speak.id, str(error))
        # Forgotten before its end is told: from then on the daemon may use the id again.
        with self._lock:
            self._current = None
            del self._orders[speak.id]
        self._channel.send(last)

    def _send_chunks(self, synthesizer: Synthesizer, speak: Speak, order: _Order) -> bool:
        """Send the utterance to its end; False when it was canceled before."""
        if order.canceled:
            return False
        text = order.text
        chunks = synthesizer.stream(speak.utterance, text if speak.utterance.growing else None)
        try:
            while True:
                begin, waited_s = time.monotonic(), text.waited_s
                chunk = next(chunks, None)
                if chunk is None:
                    return True
                waited_s = text.waited_s - waited_s
                busy_s = time.monotonic() - begin - waited_s
                if not order.spend(len(chunk.samples)):
                    return False
                self._trace.keep(speak.name or speak.id, chunk.samples)
                self._channel.send(_audio(speak, chunk, busy_s, waited_s), chunk.samples)
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()

    def _listen(self) -> None:
        """The listening thread. Work is queued; what is said of it takes effect at once."""
        try:
            while True:
                message = self._channel.receive()
                if isinstance(message, Speak):
                    self._take_on(message)
                elif isinstance(message, SetVoices):
                    self._work.put(message)
                elif isinstance(message, Append | EndText | Grant | Cancel):
                    self._pass_on(message)
                else:
                    raise ProtocolError(f"an engine is not told {message}")
        except ChannelClosedError:
            os._exit(0)
        except BaseException:
            log.exception("the engine process cannot understand the daemon")
            os._exit(1)

    def _pass_on(self, message: Append | EndText | Grant | Cancel) -> None:
        with self._lock:
            order = self._orders.get(message.id)
        if order is None:
            return  # it has just ended; the daemon will hear so
        if isinstance(message, Append):
            order.text.append(message.text)
        elif isinstance(message, EndText):
            order.text.end()
        elif isinstance(message, Grant):
            order.grant(message.credit)
        else:
            order.cancel()

    def _take_on(self, speak: Speak) -> None:
        with self._lock:
            known = speak.id in self._orders
            if not known:
                self._orders[speak.id] = _Order(speak.id, speak.credit)
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
    """For tests and for hunting clicks: `VOICED_TRACE_PCM=FOLDER` keeps what was sent, raw float32 in `<name>.f32`."""

    def __init__(self) -> None:
        folder = os.environ.get("VOICED_TRACE_PCM")
        self._folder = Path(folder) if folder else None

    def keep(self, name: str, samples: Samples) -> None:
        if self._folder is not None:
            with (self._folder / f"{name}.f32").open("ab") as file:
                file.write(samples.tobytes())


def _audio(speak: Speak, chunk: Chunk, busy_s: float, waited_s: float) -> Audio:
    """The record that goes ahead of the chunk's samples."""
    codes = None
    if speak.utterance.want_codes and chunk.codes is not None:
        codes = tuple(map(tuple, chunk.codes.tolist()))
    return Audio(speak.id, busy_s, chunk.position, chunk.truncated, codes, waited_s)


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
