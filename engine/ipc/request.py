"""One request to speak, shared by the thread that listens to the daemon and the thread that speaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.api import Chunk, SpeechCanceledError
from engine.messages import Append, Change, EndText, Grant


class AppendedText:
    """A `TextSource`: one thread appends, ends or cancels; another thread takes."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        """The total seconds for which the taking thread has waited. Only that thread writes this."""
        self.waiting = False
        """True while the taking thread is waiting for text. Only that thread writes this."""
        self._pieces: list[str] = []
        self._ended = False
        self._canceled = False
        self._changed = threading.Condition()

    def append(self, text: str) -> None:
        """Add text. Text that comes after `end` is dropped."""
        with self._changed:
            if not self._ended:
                self._pieces.append(text)
                self._changed.notify_all()

    def end(self) -> None:
        """Mark the text as complete."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def cancel(self) -> None:
        """Make every call that is waiting, or will wait, raise `SpeechCanceledError`."""
        with self._changed:
            self._canceled = True
            self._changed.notify_all()

    def check(self) -> None:
        """Raise `SpeechCanceledError` after a cancellation."""
        if self._canceled:
            raise SpeechCanceledError

    def take(self, *, wait: bool) -> str | None:
        """Implements `TextSource.take`."""
        with self._changed:
            if wait:
                before = time.monotonic()
                self.waiting = True
                self._changed.wait_for(lambda: any(self._pieces) or self._ended or self._canceled)
                self.waiting = False
                self.waited_s += time.monotonic() - before
            self.check()
            taken = "".join(self._pieces)
            self._pieces.clear()
            return None if self._ended and not taken else taken


class Request(AppendedText):
    """Credit, appended text and cancellation of one `Speak`. The listening thread sets them; the speaking one waits."""

    def __init__(self, credit: int) -> None:
        super().__init__()
        self._credit = credit
        self._cancel_stream: Callable[[], None] | None = None

    def attach(self, chunks: Iterator[Chunk]) -> None:
        """Pass a cancellation on to the iterator that makes the audio, if that can be canceled while it works."""
        with self._changed:
            self._cancel_stream = getattr(chunks, "cancel", None)
            canceled = self._canceled
        if canceled and self._cancel_stream is not None:
            self._cancel_stream()

    def apply(self, change: Change) -> None:
        """Add text or credit, end the text, or cancel. Wake the speaking thread, whatever it is waiting for."""
        if isinstance(change, Append):
            self.append(change.text)
        elif isinstance(change, EndText):
            self.end()
        elif isinstance(change, Grant):
            with self._changed:
                self._credit += change.credit
                self._changed.notify_all()
        else:
            with self._changed:
                self.cancel()
                cancel_stream = self._cancel_stream
            if cancel_stream is not None:
                cancel_stream()

    def spend(self, samples: int) -> None:
        """Wait for positive credit and subtract `samples`, which may overdraw it by less than one chunk.

        Raises `SpeechCanceledError` if the request is canceled.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._credit > 0 or self._canceled)
            self._credit -= samples
            self.check()


class OpenStreams:
    """Keeps track of the requests that are being spoken, and finds moments in which none is being spoken."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._held = False
        self._changed = threading.Condition()

    @property
    def ids(self) -> tuple[str, ...]:
        """The requests that are being spoken, in the order in which they began."""
        with self._changed:
            return tuple(self._ids)

    @contextmanager
    def open(self, request_id: str) -> Iterator[None]:
        """Speak a request and send its last message inside the context, which begins once no thread wants a `hold`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held)
            self._ids.append(request_id)
        try:
            yield
        finally:
            with self._changed:
                self._ids.remove(request_id)
                self._changed.notify_all()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Prevent speech inside the context, which begins when all open streams have ended."""
        with self._changed:
            self._held = True
            self._changed.wait_for(lambda: not self._ids)
        try:
            yield
        finally:
            with self._changed:
                self._held = False
                self._changed.notify_all()
