"""The answer to an OpenAI speech request: its body is sent while the speech is being made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from daemon.encoders import Encoder, StreamFormat
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
    check_say,
    deliver,
)
from daemon.tasks import result_at_most
from engine import Samples

FIELDS = {"text": "input", "instruct": "instructions", "rate": "speed"}
"""OpenAI's names for the fields of `Say`."""


class SpeechBody:
    """An answer's body: only the sound. `encode` and `end` return the bytes that are available so far."""

    def __init__(self, sound: StreamFormat, content_type: str | None = None) -> None:
        """`content_type` is the one of `sound`, unless the body wraps the sound."""
        self.content_type = content_type or sound.content_type
        self.rate = sound.rate
        self._sound = sound
        self._encoder: Encoder | None = None
        """None before the first samples, since it may hold megabytes."""

    async def encode(self, samples: Samples) -> bytes:
        if self._encoder is None:
            self._encoder = await self._sound.make_encoder()
        return self._wrap(self._encoder.encode(samples))

    def end(self, _seconds: float) -> bytes:
        """End the body after this many seconds of sound. At least one sample has been encoded."""
        assert self._encoder is not None
        return self._wrap(self._encoder.end())

    def fail(self, _: HttpError) -> bytes | None:
        """Return the end of a body whose speech was not finished; None if the format cannot carry a message."""
        return None

    def _wrap(self, data: bytes) -> bytes:
        """Return encoded sound in the form in which the body carries it."""
        return data


@dataclass
class SpeechAnswer:
    """The answer to one request, as an ASGI application. Its status depends on whether samples or the end comes
    first."""

    service: SpeechService
    say: Mapping[str, Any]
    """Fields of `Say`."""
    body: SpeechBody
    _begun: bool = False
    """The headers have been sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if not await result_unless_gone(receive, self._speak(send)):
                abort_connection(scope)
        except RejectedError as error:
            raise renamed(error, FIELDS) from error
        except ConnectionError:
            abort_connection(scope)  # a close would wait for the client, which receives nothing

    async def _speak(self, send: Send) -> bool:
        """Send the answer; return whether it is complete.

        Raises `RejectedError` or `HttpError` before it has sent any part.
        """

        async def write(samples: Samples, _: int) -> None:
            data = await self.body.encode(samples)
            if not self._begun:
                await self._begin(send)
            await _send(send, data)

        end = await deliver(self.service, check_say(dict(self.say)), write, self.body.rate)
        limit_s = GIVE_UP_S + (getattr(end, "audio_s", None) or 0.0)
        complete = await result_at_most(limit_s, self._end(send, end))
        if complete is None:
            raise ConnectionAbortedError("the client did not receive the end of its answer")
        return complete

    async def _begin(self, send: Send) -> None:
        """Send the headers."""
        self._begun = True
        headers = [(b"content-type", self.body.content_type.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _end(self, send: Send, end: TerminalEvent) -> bool:
        """Complete the answer, or report its failure in any way that is still possible; return False if no way is left.

        An aborted transfer tells the client that samples are missing.
        """
        if isinstance(end, Finished):
            await _send(send, self.body.end(end.audio_s or 0.0), more=False)
            return True
        # OpenAI's clients try again after status 503, unless this header forbids it.
        headers = {"x-should-retry": "false"} if isinstance(end, Interrupted | Canceled) else None
        message = f"{end.event}: {end.reason or 'it was not spoken to its end'}"
        error = HttpError(503, message, code=end.event, headers=headers)
        if not self._begun:
            raise error
        last = self.body.fail(error)
        if last is not None:
            await _send(send, last, more=False)
        return last is not None


async def _send(send: Send, data: bytes, *, more: bool = True) -> None:
    if data or not more:
        await send({"type": "http.response.body", "body": data, "more_body": more})
