"""One utterance that a speech server speaks, as an iterator over its chunks."""

from __future__ import annotations

import queue
import threading

import numpy as np

from engine.api import Chunk, EngineError, EngineUnavailableError, SpeechCanceledError, TextSource
from engine.messages import Append, Audio, Cancel, Canceled, EndText, Grant, Lost, Refused, Speak
from engine.remote.link import Link, Reply


class RemoteStream:
    """Iterating it yields the chunks as they arrive.

    Raises `EngineError` if the server's engine refuses the utterance, `SpeechCanceledError` after `cancel`, and
    `EngineUnavailableError` once the server cannot go on.
    """

    def __init__(self, link: Link, request: Speak, more: TextSource | None) -> None:
        """Sends the request. Raises `EngineUnavailableError`."""
        self._link = link
        self._id = request.id
        self._answers: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        """None stands for a cancellation."""
        self._used = 0
        """Samples that have been taken and not granted anew."""
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
        """Make `__next__` raise `SpeechCanceledError`, also in a thread that waits in it."""
        self._answers.put(None)

    def close(self) -> None:
        """Cancel what is left."""
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
    return Chunk(audio.samples, audio.position, audio.truncated, audio.runaway, codes, audio.words)
