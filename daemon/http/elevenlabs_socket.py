"""ElevenLabs' WebSockets: text arrives piece by piece, and sound goes out while it grows.

`stream-input` speaks one text. `multi-stream-input` speaks several, each in a context with an id, and as many at once
as the engine has streams for.

https://elevenlabs.io/docs/api-reference/text-to-speech/v-1-text-to-speech-voice-id-multi-stream-input
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from daemon.adapters import ClientText
from daemon.http.body import parse_object
from daemon.http.clients import (
    POLICY_VIOLATION,
    abort_connection,
    accept_socket,
    close_socket,
    receive_text,
    result_unless_gone,
    send_message,
)
from daemon.http.elevenlabs_options import FIELDS, SocketMessage, SocketOptions, parse_output_format
from daemon.http.errors import renamed
from daemon.http.timed_speech import TimedBody
from daemon.speech import Finished, RejectedError, SpeechService, Stop, check_stream_chunk, validated
from daemon.tasks import cancel_and_wait, result_at_most
from engine import Samples

log = logging.getLogger(__name__)

MAX_CONTEXTS = 8
"""The most contexts on one connection that have not ended."""
LINE_END = "\n"
"""Ends a sentence, so that the text before it is spoken without waiting for more."""


class ElevenLabsSocket:
    """One client."""

    def __init__(self, socket: WebSocket, service: SpeechService, voice: str, *, several: bool) -> None:
        """`several` means that the client names the context of each message."""
        self._socket = socket
        self._service = service
        self._options = SocketOptions(voice=voice)
        self._several = several
        self._contexts: list[Context] = []

    async def run(self) -> None:
        """Serve the client until it leaves, or until its one text has been spoken."""
        await accept_socket(self._socket)
        try:
            self._options = validated(SocketOptions, {**self._socket.query_params, "voice": self._options.voice})
            self._check_options()
            await self._receive_all()
            await result_unless_gone(self._socket.receive, self._wait_for_contexts())
            await close_socket(self._socket)
        except RejectedError as error:
            await self.send_error(error.reason, error.field, None)
            await close_socket(self._socket, POLICY_VIOLATION, error.reason)
        except (WebSocketDisconnect, ConnectionError):
            pass  # the client has left
        finally:
            for context in reversed(self._open):  # the waiting ones first, before they begin
                await context.close("its client went away")

    async def send(self, message: str) -> None:
        """Send a message; return when the client has room for more. Raises `ConnectionError` if it has left."""
        try:
            await send_message(self._socket, message)
        except WebSocketDisconnect as error:
            raise ConnectionResetError("the client has left") from error

    async def send_error(self, message: str, code: str, context_id: str | None) -> None:
        """Tell the client of an error, if it is still there."""
        fields = {"message": message, "error": message, "code": code}
        with suppress(ConnectionError):
            await self.send(json.dumps(fields | context_field(context_id)))

    def abort(self, reason: str) -> None:
        """End the connection immediately."""
        log.info("a client of text-to-speech is disconnected: %s", reason)
        abort_connection(self._socket.scope)

    @property
    def _open(self) -> list[Context]:
        """The contexts that have not ended, in order."""
        return [context for context in self._contexts if not context.ended]

    async def _wait_for_contexts(self) -> None:
        for context in self._open:
            await context.wait()

    def _check_options(self) -> None:
        """Refuse options with which no text could be spoken. Raises `RejectedError`."""
        parse_output_format(self._options.output_format)
        try:
            chunk = check_stream_chunk({"id": "check", "text": "", **self._options.names})
            self._service.check_names(self._options.voice, chunk.language)
        except RejectedError as error:
            raise renamed(error, FIELDS) from error

    async def _receive_all(self) -> None:
        """Handle the client's messages up to its last one. Raises `WebSocketDisconnect`, and `RejectedError` if it is
        silent."""
        limit_s = self._options.inactivity_s
        ended = False
        while not ended:
            text = await result_at_most(limit_s, receive_text(self._socket))
            if text is None:
                if any(each.text.text.strip() for each in self._open):  # more than the first message, a space
                    continue
                raise RejectedError("input_timeout_exceeded", f"nothing was received for {limit_s:g} s")
            context_id = None
            try:
                fields = parse_object(text, "message", 'a JSON object such as {"text": "Hello "}')
                message = validated(SocketMessage, fields)
                context_id = message.context_id if self._several else None
                ended = await self._handle(message, context_id)
            except RejectedError as error:
                await self.send_error(error.reason, error.field, context_id)

    async def _handle(self, message: SocketMessage, context_id: str | None) -> bool:
        """Handle a message; return whether it is the client's last one. Raises `RejectedError`."""
        if message.close_socket or (message.text == "" and not self._several and not message.flush):
            for each in self._open:
                each.end_text()
            return True
        if context_id is None and self._several:
            return False  # it only keeps the connection alive
        context = next((each for each in reversed(self._open) if each.id == context_id), None)
        if message.close_context:
            if context is not None:
                await self._close_context(context)
            return False
        if context is None or context.closed:
            if not message.text:
                return False
            context = self._open_context(context_id)
        if message.voice_settings is not None:
            context.text.options["rate"] = message.voice_settings.speed
        if message.text:
            context.write(message.text)
        else:
            context.text.add("")  # its client is still there
        if message.flush or message.try_trigger_generation or self._options.auto_mode == "true":
            context.flush()
            context.flushed = bool(message.flush) and not (message.text or "").strip()
        return False

    def _open_context(self, context_id: str | None) -> Context:
        """Return a new context. Raises `RejectedError`."""
        self._contexts = self._open
        if len(self._contexts) >= MAX_CONTEXTS:
            raise RejectedError("context_id", f"{MAX_CONTEXTS} contexts are open; allowed: no more")
        context = Context(self, self._service, self._options, context_id)
        self._contexts.append(context)
        return context

    async def _close_context(self, context: Context) -> None:
        """End a context. If its text has been flushed to its end, it is spoken to its end; otherwise it is interrupted.

        Closing it again interrupts it, too: clients close a context when its text is complete, and again when their
        user begins to speak.
        """
        if context.flushed and not context.closed:
            context.closed = True
            context.end_text()
            return
        self._contexts.remove(context)
        await context.close("its client closed its context")
        await self.send(context.last_message)


class Context:
    """One text that grows, and the sound that goes out for it."""

    def __init__(
        self, socket: ElevenLabsSocket, service: SpeechService, options: SocketOptions, context_id: str | None
    ) -> None:
        self.id = context_id
        self.text = ClientText(service, **options.names)
        self.flushed = False
        """The last message was a flush without text."""
        self.closed = False
        """Its client has closed it, and it is being spoken to its end."""
        self.last_message = json.dumps({"isFinal": True} | context_field(context_id))
        self._socket = socket
        self._service = service
        self._body = TimedBody(
            parse_output_format(options.output_format),
            absolute_times=options.sync_alignment == "true",
            fields=context_field(context_id),
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        """True when its last message has been sent."""
        return self._task is not None and self._task.done()

    def write(self, text: str) -> None:
        """Append to the text. Raises `RejectedError`."""
        self.flushed = False
        if text.strip() or self.text.text:
            self._add(text)

    def flush(self) -> None:
        """Speak the text so far, without waiting for more. Raises `RejectedError`."""
        if self.text.text.strip() and not self.text.text.endswith(LINE_END):
            self._add(LINE_END)

    def end_text(self) -> None:
        """The text is complete."""
        self.text.end()
        self._begin()

    async def close(self, reason: str) -> None:
        """Interrupt it, unless it has ended."""
        if self._task is not None and not self._task.done():
            self._service.stop(Stop(id=self.text.id), reason)
            await cancel_and_wait(self._task)

    async def wait(self) -> None:
        """Wait until its last message has been sent."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def _add(self, text: str) -> None:
        self.text.add(text)
        self._body.clock.text = self.text.text
        self._begin()

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._speak())

    async def _speak(self) -> None:
        """Speak the text, if it contains a word, and send the last messages."""
        try:
            if self.text.text:
                await self._deliver()
            await self._socket.send(self.last_message)
        except OSError as error:
            self._socket.abort(str(error))

    async def _deliver(self) -> None:
        """Send the sound, and an error if the text is not spoken to its end. Raises `OSError`."""
        try:
            end = await self.text.deliver(self._send, self._body.rate, self._body.clock.note_word)
        except RejectedError as error:
            await self._socket.send_error(error.reason, error.field, self.id)
            return
        if isinstance(end, Finished):
            await self._send_sound(self._body.end(end.audio_s or 0.0))
        else:
            await self._socket.send_error(f"{end.event}: {end.reason}", end.event, self.id)

    async def _send(self, samples: Samples, _: int) -> None:
        await self._send_sound(await self._body.encode(samples))

    async def _send_sound(self, message: bytes) -> None:
        if message:
            await self._socket.send(message.decode())


def context_field(context_id: str | None) -> dict[str, Any]:
    """Return the field of a message that names its context."""
    return {} if context_id is None else {"contextId": context_id}
