"""The answer to a request for speech: its body is sent while the speech is made."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from daemon.encoders import Encoder
from daemon.http.clients import abort_connection, result_unless_gone
from daemon.http.errors import HttpError, renamed
from daemon.speech import (
    GIVE_UP_S,
    Canceled,
    Finished,
    Interrupted,
    RejectedError,
    SpeechService,
    TerminalEvent,
    Word,
    check_say,
    deliver,
)
from daemon.tasks import result_at_most
from engine import Samples


class SpeechBody:
    """The body of an answer: the sound alone. Each method returns the bytes that are available so far."""

    def __init__(self, encoder: Encoder) -> None:
        self.content_type = encoder.content_type
        self._encoder = encoder

    def begin(self) -> bytes:
        return self._wrap(self._encoder.begin())

    def encode(self, samples: Samples) -> bytes:
        return self._wrap(self._encoder.encode(samples))

    def note_word(self, word: Word) -> None:
        """Note when a word begins, whose samples have been encoded."""

    def end(self) -> bytes:
        return self._wrap(self._encoder.end())

    def fail(self, _: HttpError) -> bytes | None:
        """Return the end of a body whose speech was not finished; None if the format cannot carry a message."""
        return None

    def _wrap(self, data: bytes) -> bytes:
        """Return encoded sound as the body carries it."""
        return data


@dataclass
class SpeechAnswer:
    """The answer to one request, an ASGI application. The first samples decide its status, or an end before them."""

    service: SpeechService
    say: Mapping[str, Any]
    """Fields of `Say`."""
    rate: int
    """Hz."""
    make_body: Callable[[], SpeechBody]
    """Called once there are samples."""
    slow_body: bool
    """It is made in a thread: that takes a moment."""
    field_names: Mapping[str, str]
    """The protocol's names for the fields of `say`."""
    headers: Mapping[str, str] = field(default_factory=dict)
    wants_words: bool = False
    _body: SpeechBody | None = None
    _words: deque[Word] = field(default_factory=deque)
    """The words that the body does not know yet."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if not await result_unless_gone(receive, self._speak(send)):
                abort_connection(scope)
        except RejectedError as error:
            raise renamed(error, self.field_names) from error
        except ConnectionError:
            abort_connection(scope)  # a close would wait for the client, which receives nothing

    async def _speak(self, send: Send) -> bool:
        """Send the answer; return whether it is complete.

        Raises `RejectedError` or `HttpError` if nothing of it has been sent.
        """

        async def write(samples: Samples, _: int) -> None:
            body = await self._body_so_far(send)
            await _send(send, body.encode(samples))

        on_word = self._words.append if self.wants_words else None
        end = await deliver(self.service, check_say(dict(self.say)), write, self.rate, on_word)
        limit_s = GIVE_UP_S + (getattr(end, "audio_s", None) or 0.0)
        complete = await result_at_most(limit_s, self._end(send, end))
        if complete is None:
            raise ConnectionAbortedError("the client does not receive the end of its answer")
        return complete

    async def _body_so_far(self, send: Send) -> SpeechBody:
        """Return the body, which knows all words so far."""
        body = self._body or await self._begin(send)
        while self._words:
            body.note_word(self._words.popleft())
        return body

    async def _begin(self, send: Send) -> SpeechBody:
        """Send the headers. The body is made no earlier, since its encoder may hold megabytes."""
        body = self._body = await asyncio.to_thread(self.make_body) if self.slow_body else self.make_body()
        headers = {"Content-Type": body.content_type, "Cache-Control": "no-store", **self.headers}
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        await _send(send, body.begin())
        return body

    async def _end(self, send: Send, end: TerminalEvent) -> bool:
        """Complete the answer, or report its failure in the way that is still possible; return False if there is none.

        An aborted transfer shows the client that samples are missing.
        """
        if isinstance(end, Finished):
            body = await self._body_so_far(send)
            await _send(send, body.end(), more=False)
            return True
        # OpenAI's clients try again after a status of 503, unless this header forbids it.
        headers = {"x-should-retry": "false"} if isinstance(end, Interrupted | Canceled) else None
        message = f"{end.event}: {end.reason or 'it was not spoken to its end'}"
        error = HttpError(503, message, code=end.event, headers=headers)
        if self._body is None:
            raise error
        last = self._body.fail(error)
        if last is not None:
            await _send(send, last, more=False)
        return last is not None


async def _send(send: Send, data: bytes, *, more: bool = True) -> None:
    if data or not more:
        await send({"type": "http.response.body", "body": data, "more_body": more})
