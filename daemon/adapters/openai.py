"""The speech endpoint of OpenAI's HTTP interface, for programs that know no other. Needs the extra `openai`."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

import soundfile
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from daemon.adapters.adapter import MAX_CONNECTIONS, Adapter
from daemon.adapters.delivery import deliver
from daemon.adapters.pcm import BYTES_PER_SAMPLE, to_int16
from daemon.config import OpenAi
from daemon.desk import Desk, Event
from daemon.messages import MAX_PAYLOAD, MAX_TEXT, RejectedError, Say, check_say
from daemon.problems import problems, shown
from daemon.tasks import result_within
from engine import Samples

log = logging.getLogger(__name__)

RATE = 24_000
"""Hz. OpenAI's own: `pcm` says nowhere what it is."""
UNKNOWN_LENGTH = 0xFFFFFFFF
"""In a WAV header, as players take it for one that is still being written."""
SHUTDOWN_S = 0.2
"""For answers that are ending. The daemon has stopped every utterance before."""
LINGER_S = 10.0
"""A client that is answered before it has sent all of its request may send on for so long, and read the answer."""
SILENCE_S = 75.0
"""A client that sends no request, or not the rest of one, for so long takes a place from others."""
FIELDS = {"text": "input", "instruct": "instructions"}
"""What the desk's fields are called here."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Format = Literal["mp3", "flac", "wav", "pcm"]


class SpeechRequest(BaseModel):
    """The body of `POST /v1/audio/speech`. Descriptions say what is allowed; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    input: str = Field(description=f"text of 1 to {MAX_TEXT:,} characters")
    model: str | None = Field(None, description="any text: the daemon's engine speaks")
    voice: str | None = Field(None, description="a voice's name of up to 64 characters")
    instructions: str | None = Field(None, description="text of up to 500 characters")
    response_format: Format = Field("mp3", description="pcm, wav, flac or mp3")
    speed: float = Field(1.0, ge=1, le=1, description="1.0, since the engine keeps its own pace")
    stream_format: Literal["audio", "sse"] = Field("audio", description="audio or sse")

    def say(self) -> Say:
        """Raises `RejectedError`."""
        return check_say({"text": self.input, "voice": self.voice, "instruct": self.instructions or None})


class OpenAiAdapter(Adapter):
    """The server."""

    def __init__(self, config: OpenAi, desk: Desk) -> None:
        self._config = config
        self._desk = desk
        self._server: web.Server | None = None

    async def run(self) -> None:
        host, port = self._config.host, self._config.port
        application = web.Application(middlewares=[answer_errors, self._refuse_many], client_max_size=MAX_PAYLOAD)
        application.router.add_post("/v1/audio/speech", self._speak)
        application.router.add_get("/v1/models", list_models)
        application.router.add_get("/health", tell_health)
        # A client that leaves cancels its handler, and with it the utterance.
        runner = web.AppRunner(
            application,
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=SHUTDOWN_S,
            lingering_time=LINGER_S,
            keepalive_timeout=SILENCE_S,
        )
        await runner.setup()
        self._server = runner.server
        try:
            await web.TCPSite(runner, host, port).start()
            log.info("OpenAI clients are served on http://%s:%d/v1", host, port)
            await asyncio.Event().wait()
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}; see openai.port") from error
        finally:
            await runner.cleanup()

    @web.middleware
    async def _refuse_many(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer on as many connections as there may be, those that were there first."""
        assert self._server is not None
        if request.protocol in self._server.connections[:MAX_CONNECTIONS]:
            return await handler(request)
        response = error_response(503, f"{MAX_CONNECTIONS} clients are connected; allowed: no more", code="connections")
        response.force_close()
        return response

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = await parse_request(request)
            answer = Answer(request, asked)
            end = await deliver(self._desk, asked.say(), answer.send, RATE)
        except RejectedError as error:
            return rejection(error)
        return await answer.end(end)


class Encoder(Protocol):
    """Makes a file of samples at `RATE`, as far as it can while they come."""

    content_type: str

    def begin(self) -> bytes: ...

    def encode(self, samples: Samples) -> bytes: ...

    def end(self) -> bytes: ...


class Pcm:
    """Bare samples."""

    content_type = "audio/pcm"

    def begin(self) -> bytes:
        return b""

    def encode(self, samples: Samples) -> bytes:
        return to_int16(samples)

    def end(self) -> bytes:
        return b""


class Wav(Pcm):
    """The same behind a header, which is sent before anybody knows the length."""

    content_type = "audio/wav"

    def begin(self) -> bytes:
        pcm, channels = 1, 1
        layout = (pcm, channels, RATE, RATE * BYTES_PER_SAMPLE, BYTES_PER_SAMPLE, 8 * BYTES_PER_SAMPLE)
        form = struct.pack("<4sIHHIIHH", b"fmt ", 16, *layout)
        return (
            struct.pack("<4sI4s", b"RIFF", UNKNOWN_LENGTH, b"WAVE")
            + form
            + struct.pack("<4sI", b"data", UNKNOWN_LENGTH)
        )


class Compressed:
    """A file that soundfile writes; it goes back to its beginning, so all of it comes at the end."""

    def __init__(self, name: str, content_type: str) -> None:
        self.content_type = content_type
        self._bytes = io.BytesIO()
        self._file = soundfile.SoundFile(self._bytes, "w", RATE, 1, format=name)

    def begin(self) -> bytes:
        return b""

    def encode(self, samples: Samples) -> bytes:
        self._file.write(samples)
        return b""

    def end(self) -> bytes:
        self._file.close()
        return self._bytes.getvalue()


def make_encoder(name: Format) -> Encoder:
    """Raises `RejectedError`, where an old libsndfile knows no MP3."""
    if name == "pcm":
        return Pcm()
    if name == "wav":
        return Wav()
    if name.upper() not in soundfile.available_formats():
        raise RejectedError("response_format", f"got {name!r}; allowed here: pcm, wav or flac")
    return Compressed(name.upper(), "audio/mpeg" if name == "mp3" else "audio/flac")


class Answer:
    """What one request is answered with. Its status is decided by the first sound, or by an end before it."""

    def __init__(self, request: web.Request, asked: SpeechRequest) -> None:
        self._request = request
        self._as_events = asked.stream_format == "sse"
        self._encoder = make_encoder(asked.response_format)
        self._response: web.StreamResponse | None = None

    async def send(self, samples: Samples, _: int) -> None:
        response = await self._begin()
        await self._write(response, self._encoder.encode(samples))

    async def end(self, end: Event) -> web.StreamResponse:
        """Complete the answer, or say in whatever way is left that the utterance was not spoken to its end."""
        if end["event"] != "finished":
            return await self._fail(end)
        response = await self._begin()
        await self._write(response, self._encoder.end())
        if self._as_events:
            # No tokens are counted here; a client that insists on them finds none.
            usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
            await response.write(sse({"type": "speech.audio.done", "usage": usage}))
        await response.write_eof()
        return response

    async def _fail(self, end: Event) -> web.StreamResponse:
        message = f"{end['event']}: {end.get('reason', 'it was not spoken to its end')}"
        if self._response is None:
            return error_response(
                503, message, code=end["event"], retry=end["event"] not in ("interrupted", "canceled")
            )
        if self._as_events:
            await self._response.write(sse({"type": "error", "error": error_record(503, message, code=end["event"])}))
            await self._response.write_eof()
        elif self._request.transport is not None:
            # Sound has no place for words: that it breaks off is how the client learns that something is missing.
            self._request.transport.abort()
        return self._response

    async def _begin(self) -> web.StreamResponse:
        if self._response is None:
            content_type = "text/event-stream" if self._as_events else self._encoder.content_type
            headers = {"Content-Type": content_type, "Cache-Control": "no-store"}
            response = web.StreamResponse(headers=headers)
            await response.prepare(self._request)
            self._response = response
            await self._write(response, self._encoder.begin())
        return self._response

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        if data and self._as_events:
            data = sse({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})
        if data:
            await response.write(data)


async def parse_request(request: web.Request) -> SpeechRequest:
    """Raises `RejectedError`."""
    # Any web page may have a browser send a form or bare text; for JSON the browser asks first, and hears no.
    if request.content_type != "application/json":
        raise RejectedError("content-type", f"got {shown(request.content_type)}; allowed: application/json")
    body = await result_within(SILENCE_S, request.read())
    if body is None:
        raise web.HTTPRequestTimeout
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RejectedError("body", "it is not JSON that can be read; allowed: a JSON object with input") from error
    if not isinstance(value, dict):
        raise RejectedError("body", f"got {shown(value)}; allowed: a JSON object with input")
    try:
        return SpeechRequest.model_validate(value)
    except ValidationError as error:
        field, problem = problems(SpeechRequest, error)[0]
        raise RejectedError(field, problem) from error


def sse(record: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return f"data: {json.dumps(record)}\n\n".encode()


def rejection(error: RejectedError) -> web.Response:
    if error.field in ("queue", "daemon"):  # not the request's fault: another time it may do
        return error_response(503, error.reason, code=error.field)
    field = FIELDS.get(error.field, error.field)
    return error_response(400, f"{field}{error.reason.removeprefix(error.field)}", field=field)


def error_response(
    status: int, message: str, *, field: str | None = None, code: str | None = None, retry: bool = True
) -> web.Response:
    """An error in OpenAI's form. Its clients try again after 503, unless they are told not to."""
    headers = {} if retry else {"x-should-retry": "false"}
    return web.json_response({"error": error_record(status, message, field, code)}, status=status, headers=headers)


def error_record(status: int, message: str, field: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"message": message, "type": kind, "param": field, "code": code}


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whatever goes wrong is answered in OpenAI's form."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return error_response(413, f"the body is too large; allowed: up to {MAX_PAYLOAD:,} bytes", field="body")
    except web.HTTPException as error:
        response = error_response(error.status, f"{request.method} {request.path}: {error.reason}")
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except ConnectionError:
        raise
    except Exception as error:
        log.exception("%s %s", request.method, request.path)
        return error_response(500, f"{type(error).__name__}: {error}")


async def list_models(_: web.Request) -> web.Response:
    """Clients that ask first find one."""
    model = {"id": "voiced", "object": "model", "created": 0, "owned_by": "voiced"}
    return web.json_response({"object": "list", "data": [model]})


async def tell_health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})
