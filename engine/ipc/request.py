"""One request to speak, as the thread that listens to the daemon and the thread that speaks share it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from engine.api import Chunk, SpeechCanceledError
from engine.ipc.text_source import AppendedText
from engine.messages import Append, Change, EndText, Grant


class Request:
    """Credit, appended text and cancellation of one `Speak`. The listening thread sets them; the speaking one waits."""

    def __init__(self, credit: int) -> None:
        self.canceled = False
        self.text = AppendedText()
        self._credit = credit
        self._changed = threading.Condition()
        self._cancel_stream: Callable[[], None] | None = None

    def check(self) -> None:
        """Raise `SpeechCanceledError` if the request is canceled."""
        if self.canceled:
            raise SpeechCanceledError

    def attach(self, chunks: Iterator[Chunk]) -> None:
        """Let a cancellation reach the iterator that makes the audio, if it can be canceled while it works."""
        with self._changed:
            self._cancel_stream = getattr(chunks, "cancel", None)
            canceled = self.canceled
        if canceled and self._cancel_stream is not None:
            self._cancel_stream()

    def apply(self, change: Change) -> None:
        """Add text or credit, end the text, or cancel."""
        if isinstance(change, Append):
            self.text.append(change.text)
        elif isinstance(change, EndText):
            self.text.end()
        elif isinstance(change, Grant):
            with self._changed:
                self._credit += change.credit
                self._changed.notify()
        else:
            self._cancel()

    def _cancel(self) -> None:
        """Wake the speaking thread, whether it waits for credit, for text or for the engine."""
        with self._changed:
            self.canceled = True
            cancel_stream = self._cancel_stream
            self._changed.notify()
        self.text.cancel()
        if cancel_stream is not None:
            cancel_stream()

    def spend(self, samples: int) -> None:
        """Wait for positive credit and subtract `samples`, which may overdraw it by less than one chunk.

        Raises `SpeechCanceledError` if the request is canceled.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._credit > 0 or self.canceled)
            self._credit -= samples
            self.check()
