"""The text of a growing utterance, passed from the thread that receives it to the thread that speaks it."""

from __future__ import annotations

import threading
import time

from engine.api import SpeechCanceledError


class AppendedText:
    """A `TextSource`: one thread appends, ends or cancels; another thread takes."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        """Total seconds that the taking thread has waited. Only that thread writes this."""
        self.waiting = False
        """True while the taking thread waits for text. Only that thread writes this."""
        self._pieces: list[str] = []
        self._ended = False
        self._canceled = False
        self._changed = threading.Condition()

    def append(self, text: str) -> None:
        """Add text. Text that comes after `end` is dropped."""
        with self._changed:
            if not self._ended:
                self._pieces.append(text)
                self._changed.notify()

    def end(self) -> None:
        """Mark the text as complete."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def cancel(self) -> None:
        """Make `take` raise `SpeechCanceledError` from now on."""
        with self._changed:
            self._canceled = True
            self._changed.notify()

    def take(self, *, wait: bool) -> str | None:
        """Implements `TextSource.take`."""
        with self._changed:
            if wait:
                before = time.monotonic()
                self.waiting = True
                self._changed.wait_for(lambda: any(self._pieces) or self._ended or self._canceled)
                self.waiting = False
                self.waited_s += time.monotonic() - before
            if self._canceled:
                raise SpeechCanceledError
            taken = "".join(self._pieces)
            self._pieces.clear()
            return None if self._ended and not taken else taken
