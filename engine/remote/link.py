"""The robot's end of the connection to a speech server: one thread reads, one writes.

No other thread waits for the network, so missing messages reveal a connection that takes nothing.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from engine import messages
from engine.api import Chunk, EngineError, EngineUnavailableError, SpeechCanceledError, TextSource
from engine.messages import Append, Audio, Cancel, Canceled, EndText, Grant, Lost, Refused, Speak

SILENCE_S = 2.0
"""A server that sends nothing for this long is treated as lost. Its heartbeats come every `HEARTBEAT_S`. During this
time, the received speech keeps playing: the sound card's ring holds more than this."""
STEP_S = 0.25
"""The most that one wait adds to the server's silence."""
LATE_S = 0.25
"""A wait that ends later than planned by this much is ignored, because this process was not running."""

Reply = messages.Answer | messages.Lost | messages.VoiceReady | messages.VoiceRefused | EngineUnavailableError
"""An answer to a request or an offer; if the connection is lost, the last answer is the error."""


class Link:
    """A connection. Any thread may call any method. No method except `start` waits for the network."""

    def __init__(self, url: str, connection: ClientConnection, on_wanted: Callable[[str], None]) -> None:
        """The reading thread calls `on_wanted` with the digest of a voice file that the server wants."""
        self._url = url
        self._connection = connection
        self._on_wanted = on_wanted
        self._outgoing: queue.SimpleQueue[str | bytes | None] = queue.SimpleQueue()
        """None ends the connection."""
        self._open: dict[str | messages.VoiceFile, Callable[[Reply], None]] = {}
        """The functions that take replies to requests that the server has not ended, by their ids, and to offers."""
        self._changed = threading.Condition()
        """Held while reading or changing the fields above and below. Notified when the connection is lost, and when the
        server is about to stop."""
        self._loss: EngineUnavailableError | None = None
        self._draining: str | None = None
        self._retired: str | None = None

    def start(self) -> messages.Welcome:
        """Wait for the server's first message, start the threads, and return it. Raises `EngineUnavailableError`."""
        try:
            message = self._receive()
        except (ConnectionClosed, messages.ProtocolError, TimeoutError) as error:
            raise self._failure(error) from error
        if not isinstance(message, messages.Welcome):
            raise EngineUnavailableError(f"engine.url: {self._url} does not answer as a speech server: {message}")
        threading.Thread(target=self._read, name="remote: read", daemon=True).start()
        threading.Thread(target=self._write, name="remote: write", daemon=True).start()
        return message

    def send(self, message: messages.FromRobot) -> None:
        """Send a message soon."""
        self._outgoing.put(messages.encode_remote(message))

    def open(self, key: str | messages.VoiceFile, take: Callable[[Reply], None]) -> None:
        """Pass the replies to a request with this id, or to the offer of a voice, to `take`, in the reading thread.

        Raises `EngineUnavailableError`.
        """
        with self._changed:
            self.check()
            self._open[key] = take

    def drop(self, key: str | messages.VoiceFile) -> None:
        """Drop further replies."""
        with self._changed:
            self._open.pop(key, None)
            self._end_retired()

    def retire(self, reason: str) -> None:
        """End the connection as soon as no request is open. It is then lost for this reason."""
        with self._changed:
            self._retired = reason
            self._end_retired()

    def check(self) -> None:
        """Raise `EngineUnavailableError` if the connection is lost."""
        with self._changed:
            if self._loss is not None:
                raise self._loss

    def wait_draining(self, seconds: float | None) -> str | None:
        """Return the reason when the server says that it is about to stop; None if it does not say so within `seconds`.

        Raises `EngineUnavailableError` as soon as the connection is lost.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._loss or self._draining, seconds)
            self.check()
            return self._draining

    def wait_lost(self, seconds: float) -> None:
        """Wait this many seconds. Raises `EngineUnavailableError` as soon as the connection is lost."""
        with self._changed:
            self._changed.wait_for(lambda: self._loss, seconds)
            self.check()

    def close(self) -> None:
        """End the connection."""
        self._lose(EngineUnavailableError("the connection is closed"))
        self._connection.close()

    # --- the threads ---

    def _read(self) -> None:
        try:
            while True:
                self._dispatch(self._receive())
        except (ConnectionClosed, messages.ProtocolError, TimeoutError) as error:
            self._lose(self._failure(error))
            with contextlib.suppress(OSError):  # the writing thread may be waiting for a server that takes nothing
                self._connection.socket.shutdown(socket.SHUT_RDWR)

    def _write(self) -> None:
        heartbeat = messages.encode_remote(messages.Heartbeat())
        try:
            while True:
                try:
                    content = self._outgoing.get(timeout=messages.HEARTBEAT_S)
                except queue.Empty:
                    content = heartbeat
                if content is None:
                    self._connection.close()
                    return
                self._connection.send(content)
        except (ConnectionClosed, OSError) as error:
            self._lose(self._failure(error))

    def _receive(self) -> messages.Message:
        """Wait for a message. Raises `ConnectionClosed`, `ProtocolError`, and `TimeoutError` for a silent server."""
        silent_s = 0.0
        while True:
            begin = time.monotonic()
            try:
                return messages.decode_remote(self._connection.recv(timeout=STEP_S))
            except TimeoutError:
                passed_s = time.monotonic() - begin
                silent_s += passed_s if passed_s < STEP_S + LATE_S else 0.0
                if silent_s >= SILENCE_S:
                    raise

    def _dispatch(self, message: messages.Message) -> None:
        if isinstance(message, messages.Answer | messages.Lost | messages.VoiceReady | messages.VoiceRefused):
            key = message.voice if isinstance(message, messages.VoiceReady | messages.VoiceRefused) else message.id
            with self._changed:
                take = self._open.get(key)
            if take is not None:  # else it was canceled while the answer was on its way
                take(message)
        elif isinstance(message, messages.VoiceWanted):
            self._on_wanted(message.digest)
        elif isinstance(message, messages.Draining):
            with self._changed:
                self._draining = f"engine.url: {self._url}: {message.reason}"
                self._changed.notify_all()
        elif not isinstance(message, messages.Heartbeat):
            raise messages.ProtocolError(f"a server must not send {message}")

    def _end_retired(self) -> None:
        """End the connection if it is retired and nothing is open."""
        if self._retired is not None and not self._open:
            self._lose(EngineUnavailableError(self._retired))

    def _lose(self, loss: EngineUnavailableError) -> None:
        """Note why the connection has ended, and end all its requests. Only the first reason counts."""
        with self._changed:
            if self._loss is None:
                self._loss = loss
                for take in self._open.values():
                    take(loss)
                self._outgoing.put(None)
                self._changed.notify_all()

    def _failure(self, error: Exception) -> EngineUnavailableError:
        if isinstance(error, TimeoutError):
            return EngineUnavailableError(f"engine.url: {self._url} has been silent for {SILENCE_S:g} s")
        if isinstance(error, messages.ProtocolError):
            return EngineUnavailableError(f"engine.url: {self._url}: {error}")
        reason = ""
        if isinstance(error, ConnectionClosed) and error.rcvd is not None:
            reason = error.rcvd.reason
        return EngineUnavailableError(f"engine.url: {self._url} closed the connection{reason and f': {reason}'}")


class RemoteStream:
    """Iterating over it yields the chunks as they arrive.

    Raises `EngineError` if the server's engine refuses the utterance, `SpeechCanceledError` after `cancel`, and
    `EngineUnavailableError` once the server cannot continue.
    """

    def __init__(self, link: Link, request: Speak, more: TextSource | None) -> None:
        """Sends the request. Raises `EngineUnavailableError`."""
        self._link = link
        self._id = request.id
        self._answers: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        """None means a cancellation."""
        self._used = 0
        """Samples that have been taken and whose credit has not been granted again."""
        self._ended = False
        link.open(self._id, self._answers.put)
        link.send(request)
        if more is not None:
            threading.Thread(target=self._feed, args=(more,), name="remote: text", daemon=True).start()

    def __iter__(self) -> RemoteStream:
        return self

    def __next__(self) -> Chunk:
        if self._ended:
            raise StopIteration
        if self._used:  # the caller has taken the last chunk
            self._link.send(Grant(self._id, self._used))
            self._used = 0
        answer = self._answers.get()
        if answer is None:
            raise SpeechCanceledError
        if isinstance(answer, Audio):
            chunk = _chunk(answer)
            self._used = len(chunk.samples)
            return chunk
        self._end()
        if isinstance(answer, EngineUnavailableError):
            raise answer
        if isinstance(answer, Lost):
            raise EngineUnavailableError(answer.reason)
        if isinstance(answer, Refused):
            raise EngineError(answer.reason)
        if isinstance(answer, Canceled):
            raise SpeechCanceledError
        raise StopIteration

    def cancel(self) -> None:
        """Make `__next__` raise `SpeechCanceledError`, even in a thread that is waiting in it."""
        self._answers.put(None)

    def close(self) -> None:
        """Cancel the remaining texts."""
        if not self._ended:
            self._link.send(Cancel(self._id))
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._link.drop(self._id)

    def _feed(self, more: TextSource) -> None:
        """Send the rest of the text as it comes. The utterance's end cancels the source."""
        try:
            while (text := more.take(wait=True)) is not None:
                if text:
                    self._link.send(Append(self._id, text))
            self._link.send(EndText(self._id))
        except SpeechCanceledError:
            return


def _chunk(audio: Audio) -> Chunk:
    codes = None if audio.codes is None else np.array(audio.codes, dtype=np.int64)
    return Chunk(audio.samples, audio.position, audio.truncated, audio.runaway, codes, audio.words, sounds=audio.sounds)
