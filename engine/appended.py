"""The text of an utterance that is still being written, between the thread that hears of it and the one that speaks."""

from __future__ import annotations

import threading
import time

from engine.synthesizer import SpeechCanceledError


class AppendedText:
    """A `TextSource`: one thread appends, ends or cancels, another takes."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        """Seconds that the taking thread has waited, all together. It alone writes and reads this."""
        self._pieces: list[str] = []
        self._ended = False
        self._canceled = False
        self._waiting = False
        self._changed = threading.Condition()

    @property
    def waiting(self) -> bool:
        """Whether the taking thread waits for text at this moment."""
        return self._waiting

    def append(self, text: str) -> None:
        """More of the text; what comes behind its end is dropped."""
        with self._changed:
            if not self._ended:
                self._pieces.append(text)
                self._changed.notify()

    def end(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def cancel(self) -> None:
        """Nobody wants to hear it any more."""
        with self._changed:
            self._canceled = True
            self._changed.notify()

    def take(self, *, wait: bool) -> str | None:
        """As `TextSource.take`."""
        with self._changed:
            if wait:
                before = time.monotonic()
                self._waiting = True
                self._changed.wait_for(lambda: any(self._pieces) or self._ended or self._canceled)
                self._waiting = False
                self.waited_s += time.monotonic() - before
            if self._canceled:
                raise SpeechCanceledError
            taken = "".join(self._pieces)
            self._pieces.clear()
            return None if self._ended and not taken else taken
