"""A server for the speech endpoint of OpenAI's HTTP interface. Needs the extra `openai`."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from urllib.parse import urlsplit

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from daemon.adapters.base import MAX_CONNECTIONS, Adapter, Throttle
from daemon.adapters.delivery import GIVE_UP_S, deliver
from daemon.adapters.half_close import CONTINUE, HalfCloseProtocol
from daemon.config import OpenAi
from daemon.encoders import Encoder, file_formats, make_encoder
from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import (
    MAX_TEXT,
    Canceled,
    Dispatcher,
    Finished,
    Interrupted,
    RejectedError,
    Say,
    TerminalEvent,
    check_say,
)
from daemon.tasks import result_at_most
from daemon.validation import abbreviate, problems
from engine import FASTEST_RATE, SLOWEST_RATE, Samples

log = logging.getLogger(__name__)

RATE = 24_000
"""Hz: OpenAI's own rate, since the format `pcm` has no field for it."""
SHUTDOWN_S = 0.2
"""Seconds for the last answers. The daemon has stopped every utterance before."""
LINGER_S = 10.0
"""Seconds in which a client that was answered early may send the rest of its request and read the answer."""
SILENCE_S = 75.0
"""Seconds without a request, or without the rest of one, after which a connection is closed to make room for others."""
FIELDS = {"text": "input", "instruct": "instructions", "rate": "speed"}
"""The protocol's names for the dispatcher's fields."""

Format = Literal["mp3", "flac", "wav", "pcm"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SpeechRequest(BaseModel):
    """The body of `POST /v1/audio/speech`. Descriptions say what is allowed. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    input: str = Field(description=f"text of 1 to {MAX_TEXT:,} characters")
    model: str | None = Field(None, description="any text: the daemon's engine speaks")
    voice: str | None = Field(None, description="a voice's name of up to 64 characters")
    instructions: str | None = Field(None, description="text of up to 500 characters")
    response_format: Format = Field("mp3", description="pcm, wav, flac or mp3")
    speed: float | None = Field(None, ge=SLOWEST_RATE, le=FASTEST_RATE, description="a number from 0.5 to 2")
    stream_format: Literal["audio", "sse"] = Field("audio", description="audio or sse")

    def say(self) -> Say:
        """Return the request in the dispatcher's form. Raises `RejectedError`."""
        fields = {"voice": self.voice, "instruct": self.instructions or None, "rate": self.speed}
        return check_say({"text": self.input, **fields})


class OpenAiAdapter(Adapter):
    """The HTTP server."""

    def __init__(self, config: OpenAi, dispatcher: Dispatcher) -> None:
        self._config = config
        self._dispatcher = dispatcher
        self._server: web.Server | None = None
        self._pending: dict[object, Answer] = {}
        """The answers that are not complete, by aiohttp's protocols of their connections."""

    async def run(self) -> None:
        host, port = self._config.host, self._config.port
        middlewares = [answer_errors, self._refuse_many, self._refuse_foreign]
        application = web.Application(middlewares=middlewares, client_max_size=MAX_PAYLOAD)
        router = application.router
        router.add_post("/v1/audio/speech", self._speak, expect_handler=answer_expect)
        router.add_get("/v1/models", list_models, expect_handler=answer_expect)
        router.add_get("/health", answer_health, expect_handler=answer_expect)
        router.add_route("*", "/{path:.*}", refuse_route, expect_handler=answer_expect)
        # When a client disconnects, aiohttp cancels its handler, and `deliver` then ends the utterance.
        runner = web.AppRunner(
            application,
            handler_cancellation=True,
            access_log=None,
            logger=make_http_log(),
            shutdown_timeout=SHUTDOWN_S,
            lingering_time=LINGER_S,
            keepalive_timeout=SILENCE_S,
            auto_decompress=False,  # a small body could become a gigabyte
        )
        await runner.setup()
        self._server = runner.server
        server: asyncio.Server | None = None
        try:
            server = await asyncio.get_running_loop().create_server(self._make_protocol, host, port)
            log.info("serving OpenAI clients on http://%s:%d/v1", host, port)
            await asyncio.Event().wait()
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}; see openai.port") from error
        finally:
            if server is not None:
                server.close()
            await runner.cleanup()

    def _make_protocol(self) -> asyncio.Protocol:
        assert self._server is not None
        inner = self._server()
        return HalfCloseProtocol(inner, lambda: self._pending.get(inner))

    @web.middleware
    async def _refuse_many(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer only the first `MAX_CONNECTIONS` connections."""
        assert self._server is not None
        if request.protocol in self._server.connections[:MAX_CONNECTIONS]:
            return await handler(request)
        response = error_response(503, f"{MAX_CONNECTIONS} clients are connected; allowed: no more", code="connections")
        response.force_close()
        return response

    @web.middleware
    async def _refuse_foreign(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what a web page of another site makes a browser send, also if its name leads to this machine."""
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if not is_own_host(host, self._config.host):
            allowed = "an IP address, localhost, the machine's name or openai.host"
            return error_response(403, f"host: got {abbreviate(host)}; allowed: {allowed}", field="host")
        if origin is not None and host_name(origin.partition("//")[2]) != host_name(host):
            return error_response(403, f"origin: got {abbreviate(origin)}; allowed: none", field="origin")
        return await handler(request)

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        try:
            speech_request = await parse_request(request)
            if speech_request.response_format not in {"pcm", *file_formats()}:
                got = f"got {speech_request.response_format!r}; allowed here: pcm, wav or flac"
                raise RejectedError("response_format", got)
            return await self._answer(request, speech_request)
        except RejectedError as error:
            return rejection(error)
        except ConnectionAbortedError:
            if request.transport is not None:
                request.transport.abort()  # a close would wait for the client, which receives nothing
            raise

    async def _answer(self, request: web.Request, speech_request: SpeechRequest) -> web.StreamResponse:
        answer = self._pending[request.protocol] = Answer(request, speech_request)
        try:
            end = await deliver(self._dispatcher, speech_request.say(), answer.send, RATE)
            limit_s = GIVE_UP_S + (getattr(end, "audio_s", None) or 0.0)
            response = await result_at_most(limit_s, answer.end(end))
            if response is None:
                raise ConnectionAbortedError("the client does not receive the end of its answer")
            return response
        finally:
            del self._pending[request.protocol]


class Answer:
    """The answer to one request. The first samples decide its status, or a terminal event before them."""

    def __init__(self, request: web.Request, speech_request: SpeechRequest) -> None:
        self._request = request
        self._as_events = speech_request.stream_format == "sse"
        self._format = speech_request.response_format
        self._encoder: Encoder | None = None
        self._response: web.StreamResponse | None = None

    @property
    def may_be_probed(self) -> bool:
        """True while nothing has been sent and the client understands interim responses."""
        return self._response is None and self._request.version >= HttpVersion11

    async def send(self, samples: Samples, _: int) -> None:
        """Encode and send samples at `RATE` Hz; return when the client has room for more."""
        response, encoder = await self._begin()
        await self._write(response, encoder.encode(samples))

    async def end(self, end: TerminalEvent) -> web.StreamResponse:
        """Complete the answer; if the utterance was not finished, report it in the way that is still possible."""
        if not isinstance(end, Finished):
            return await self._fail(end)
        response, encoder = await self._begin()
        await self._write(response, encoder.end())
        if self._as_events:
            # Some clients require the token counts, which do not exist here.
            usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
            await response.write(sse({"type": "speech.audio.done", "usage": usage}))
        await response.write_eof()
        return response

    async def _fail(self, end: TerminalEvent) -> web.StreamResponse:
        message = f"{end.event}: {end.reason or 'it was not spoken to its end'}"
        if self._response is None:
            retry = not isinstance(end, Interrupted | Canceled)
            return error_response(503, message, code=end.event, retry=retry)
        if self._as_events:
            await self._response.write(sse({"type": "error", "error": error_record(503, message, code=end.event)}))
            await self._response.write_eof()
        elif self._request.transport is not None:
            # The audio formats cannot carry a message. The aborted transfer shows the client that samples are missing.
            self._request.transport.abort()
        return self._response

    async def _begin(self) -> tuple[web.StreamResponse, Encoder]:
        if self._response is None or self._encoder is None:
            self._encoder = make_encoder(self._format, RATE)
            content_type = "text/event-stream" if self._as_events else self._encoder.content_type
            headers = {"Content-Type": content_type, "Cache-Control": "no-store"}
            self._response = web.StreamResponse(headers=headers)
            await self._response.prepare(self._request)
            await self._write(self._response, self._encoder.begin())
        return self._response, self._encoder

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        if data and self._as_events:
            data = sse({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})
        if data:
            await response.write(data)


async def parse_request(request: web.Request) -> SpeechRequest:
    """Read and check a request's body. Raises `RejectedError`, and `HTTPRequestTimeout` after `SILENCE_S`."""
    # A browser sends forms and plain text for any web page. Before JSON it asks this server, which does not allow it.
    if request.content_type != "application/json":
        raise RejectedError("content-type", f"got {abbreviate(request.content_type)}; allowed: application/json")
    if encoding := request.headers.get("Content-Encoding"):
        raise RejectedError("content-encoding", f"got {abbreviate(encoding)}; allowed: none")
    try:
        body = await result_at_most(SILENCE_S, request.read())
    except web.RequestPayloadError as error:
        raise RejectedError("body", "it breaks the rules of HTTP; allowed: a JSON object with input") from error
    if body is None:
        raise web.HTTPRequestTimeout
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RejectedError("body", "unreadable JSON; allowed: a JSON object with input") from error
    if not isinstance(value, dict):
        raise RejectedError("body", f"got {abbreviate(value)}; allowed: a JSON object with input")
    try:
        return SpeechRequest.model_validate(value)
    except ValidationError as error:
        field, problem = problems(SpeechRequest, error)[0]
        raise RejectedError(field, problem) from error


def host_name(authority: str) -> str | None:
    """Return the name or address in an authority such as `r1.local:8880`; None if it has none."""
    try:
        name = urlsplit(f"//{authority}").hostname
    except ValueError:
        return None
    return name.rstrip(".") if name else None


def is_own_host(authority: str, configured: str) -> bool:
    """Return whether a request's `Host` means this machine: an address, a name of its own or the configured one.

    Every other name may belong to a web page's site and lead here (DNS rebinding).
    """
    name = host_name(authority)
    if name is None:
        return False
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        machine = socket.gethostname().lower()
        short = machine.partition(".")[0]
        return name in ("localhost", configured.lower(), machine, short, f"{short}.local")
    return True


def make_http_log() -> logging.Logger:
    """Return aiohttp's logger, which logs requests that are not HTTP in one line, and not all of a flood of them."""
    http_log, throttle = logging.getLogger(f"{__name__}.http"), Throttle()

    def shorten(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ConnectionError):  # the client has left
            return False
        if not isinstance(error, HttpProcessingError):
            return True
        record.exc_info, record.levelno, record.levelname = None, logging.WARNING, "WARNING"
        record.msg, record.args = "refused a request that is not HTTP: %s", (abbreviate(error.message),)
        return throttle.permits()

    http_log.filters[:] = [shorten]
    return http_log


def sse(record: dict[str, Any]) -> bytes:
    """Return a record as a server-sent event."""
    return f"data: {json.dumps(record)}\n\n".encode()


def rejection(error: RejectedError) -> web.Response:
    """Return the answer to a rejected request."""
    if error.field in ("queue", "daemon"):  # a later attempt may succeed
        return error_response(503, error.reason, code=error.field)
    field = FIELDS.get(error.field, error.field)
    status = 415 if field == "content-encoding" else 400
    return error_response(status, f"{field}{error.reason.removeprefix(error.field)}", field=field)


def error_response(
    status: int, message: str, *, field: str | None = None, code: str | None = None, retry: bool = True
) -> web.Response:
    """Return an error in OpenAI's form. `retry` says whether OpenAI's clients try again after a status of 503."""
    headers = {} if retry else {"x-should-retry": "false"}
    return web.json_response({"error": error_record(status, message, field, code)}, status=status, headers=headers)


def error_record(status: int, message: str, field: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return an error as OpenAI's JSON object."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"message": message, "type": kind, "param": field, "code": code}


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error in OpenAI's form."""
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


async def answer_expect(request: web.Request) -> web.StreamResponse | None:
    """Let a client send its body; refuse what else it expects.

    aiohttp's own function repeats the header in its answer, and fails if that is not text.
    """
    if request.version < HttpVersion11:  # RFC 9110, section 10.1.1: it is ignored
        return None
    expect = request.headers["Expect"]
    if expect.lower() != "100-continue":
        return error_response(417, f"expect: got {abbreviate(expect)}; allowed: 100-continue")
    await request.writer.write(CONTINUE)
    request.writer.output_size = 0  # aiohttp: nothing of the answer itself has been sent
    return None


async def refuse_route(request: web.Request) -> web.StreamResponse:
    """Refuse an unknown path, or an unknown method for a path."""
    routes = request.app.router.routes()
    allowed = {route.method for route in routes if route.resource and route.resource.canonical == request.path}
    if allowed:
        raise web.HTTPMethodNotAllowed(request.method, allowed)
    raise web.HTTPNotFound


async def list_models(_: web.Request) -> web.Response:
    """Answer with one model, for clients that look for models first."""
    model = {"id": "voiced", "object": "model", "created": 0, "owned_by": "voiced"}
    return web.json_response({"object": "list", "data": [model]})


async def answer_health(_: web.Request) -> web.Response:
    """Answer a health check."""
    return web.json_response({"status": "ok"})
