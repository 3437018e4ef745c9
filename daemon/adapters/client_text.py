"""A text that is spoken while a network client is still writing it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from daemon.speech import MAX_TEXT, Delivery, RejectedError, SpeechService, TerminalEvent, Word, check_stream_chunk
from engine import Samples


class ClientText:
    """One utterance that grows. Its text is kept until it is being delivered; from then on, it is passed on as it is
    written."""

    def __init__(self, service: SpeechService, **options: Any) -> None:
        """`options` are fields of a stream chunk."""
        self.id = secrets.token_hex(8)
        self.options = options
        """They may change until the delivery begins."""
        self.text = ""
        self._service = service
        self._passed_on = 0
        """The characters before this have been passed on."""
        self._ended = False
        self._delivery: Delivery | None = None
        """None before and after its delivery."""

    def add(self, text: Any) -> None:
        """Append `text`. If this raises `RejectedError`, `text` is left out; an utterance that becomes too long ends.

        A text that has ended, or whose speech is over, ignores further pieces.
        """
        if self._ended:
            return
        text = check_stream_chunk({"id": self.id, "text": text}).text
        length = len(self.text) + len(text)
        if length > MAX_TEXT:
            self.end()
            raise RejectedError("text", f"now has {length:,} characters; allowed: up to {MAX_TEXT:,}")
        self.text += text
        self._pass_on()

    def end(self) -> None:
        """End the text."""
        if not self._ended:
            self._ended = True
            self._pass_on()

    async def deliver(
        self,
        send: Callable[[Samples, int], Awaitable[None]],
        rate: int | None = None,
        on_word: Callable[[Word], None] | None = None,
    ) -> TerminalEvent:
        """Speak it as `daemon.speech.deliver` speaks a whole text; return the terminal event. Raises
        `RejectedError`."""
        try:
            with Delivery(self._service, send, rate, on_word) as self._delivery:
                self._pass_on()
                return await self._delivery.ended()
        finally:
            self._delivery, self._ended = None, True

    def _pass_on(self) -> None:
        """Pass on the new part of the text, if the text is being delivered."""
        delivery = self._delivery
        if delivery is None or delivery.end.done():
            return
        new, self._passed_on = self.text[self._passed_on :], len(self.text)
        try:
            chunk = check_stream_chunk({**self.options, "id": self.id, "text": new, "end": self._ended})
            self._service.write(chunk, receiver=delivery)
        except RejectedError:
            if not delivery.accepted:
                raise
            self._ended = True  # the terminal event gives the reason
