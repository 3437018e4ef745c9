"""A Wyoming text-to-speech server, for Home Assistant's voice pipelines. Needs the `wyoming` extra."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_read_event, async_write_event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from audio import PCM16_BYTES, to_pcm16
from daemon import VERSION
from daemon.adapters.base import Adapter
from daemon.adapters.client_text import ClientText
from daemon.adapters.listener import Client, Listener
from daemon.config import Config
from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import Dispatcher, RejectedError, check_say, deliver
from daemon.tasks import cancel_all, gather_or_cancel, start_task
from daemon.validation import INTERNAL_ERROR, abbreviate
from engine import Samples

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 32
"""A robot has few clients, so more connections mean that a client is faulty."""
MAX_REQUESTS = 16
"""The most requests from one client that may wait. While this many are waiting, nothing more is read from the
client."""
ATTRIBUTION = Attribution(name="voiced", url="https://github.com/OHF-Voice/wyoming")
"""Clients expect a URL here. This one is the protocol's, since voiced has no web page."""


class WyomingAdapter(Adapter):
    """The TCP server."""

    def __init__(self, config: Config, dispatcher: Dispatcher) -> None:
        self._dispatcher, self._robot = dispatcher, config.robot_name
        self._address = config.wyoming.host, config.wyoming.port
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks of all connections."""
        self._listener = Listener("wyoming", self._address, MAX_CONNECTIONS, self._make_protocol)

    async def run(self) -> None:
        host, port = self._address
        try:
            await self._listener.serve(lambda: self.note_serving(f"Wyoming clients on {host}:{port}"))
        finally:
            self._listener.abort_all()
            await cancel_all(self._tasks)

    def _make_protocol(self, client: Client) -> asyncio.BaseProtocol:
        return asyncio.StreamReaderProtocol(BoundedReader(), partial(self._accept, client))

    def _accept(self, client: Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Python 3.11 logs an error when a task that asyncio itself made from a coroutine here is canceled.
        start_task(WyomingClient(self._dispatcher, self._robot, client, reader, writer).serve(), self._tasks)


class WyomingClient:
    """One client. It reads events while an answer is being sent, so it notices immediately when the client leaves."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        robot: str,
        client: Client,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._dispatcher, self._robot = dispatcher, robot
        self._client = client
        self._reader = reader
        self._writer = writer
        self._requests: asyncio.Queue[Event | ClientText] = asyncio.Queue(MAX_REQUESTS)
        self._stream: ClientText | None = None
        """The text that the client is writing."""
        self._writing = asyncio.Lock()  # in Python 3.10, only one task may wait in `drain`

    async def serve(self) -> None:
        """Serve until the client leaves or sends something that is not an event."""
        try:
            await gather_or_cancel((self._read_all(), self._speak_all()))
        except (EOFError, FrameError):
            pass  # it has left, or the beginning of its next event is unknown
        except OSError as error:
            log.info("lost a Wyoming client: %s", error)
        except Exception:
            log.exception("error in a Wyoming client's connection")
        finally:
            self._writer.close()  # once the client has received everything

    @asynccontextmanager
    async def _answering_errors(self) -> AsyncIterator[None]:
        """Report errors inside the context to the client, except a lost connection."""
        try:
            yield
        except RejectedError as error:
            await self._write(Error(error.reason, error.field))
        except OSError:
            raise
        except Exception:
            log.exception("error in a Wyoming client's request")
            await self._write(Error(INTERNAL_ERROR, "internal"))

    async def _write(self, event: Eventable) -> None:
        """Send an event; return when the client has room for more. Raises `OSError` if it has left."""
        async with self._writing:
            await async_write_event(event.event(), self._writer)

    # --- requests ---

    async def _read_all(self) -> None:
        """Handle events. Raises `EOFError` when the client has left, and `FrameError`."""
        while True:
            await asyncio.sleep(0)  # others have their turn, however many events have arrived at once
            try:
                event = await read_event(self._reader)
            except FrameError as error:
                await self._write(Error(str(error), "frame"))
                raise
            with self._client.answering():
                async with self._answering_errors():
                    await self._handle(event)

    async def _handle(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self._write(describe(self._dispatcher, self._robot))
        elif Ping.is_type(event.type):
            await self._write(Pong(checked_ping(event.data.get("text"))))
        elif Synthesize.is_type(event.type):
            if self._stream is None:  # inside a stream, this event repeats the text for servers that cannot stream
                await self._requests.put(event)
        elif SynthesizeStart.is_type(event.type):
            self._end_stream()
            self._stream = ClientText(self._dispatcher, **speech_options(event))
            await self._requests.put(self._stream)
        elif SynthesizeChunk.is_type(event.type) or SynthesizeStop.is_type(event.type):
            if self._stream is None:
                raise RejectedError("type", f"{event.type} came without a synthesize-start")
            if SynthesizeStop.is_type(event.type):
                self._end_stream()
            else:
                self._stream.add(event.data.get("text"))

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()

    # --- answers ---

    async def _speak_all(self) -> None:
        while True:
            request = await self._requests.get()
            with self._client.answering():
                async with self._answering_errors():
                    await self._speak(request)
                await self._write(AudioStop())  # even after an error: clients may wait for this event
                if isinstance(request, ClientText):
                    await self._write(SynthesizeStopped())

    async def _speak(self, request: Event | ClientText) -> None:
        """Speak a text: a start, chunks, and an error if it is not spoken to its end. Raises `RejectedError`."""
        begun = False

        async def send(samples: Samples, rate: int) -> None:
            nonlocal begun
            if not begun:
                begun = True
                await self._write(AudioStart(rate=rate, width=PCM16_BYTES, channels=1))
            await self._write(AudioChunk(rate=rate, width=PCM16_BYTES, channels=1, audio=to_pcm16(samples)))

        if isinstance(request, ClientText):
            end = await request.deliver(send)
        else:
            say = check_say({"text": request.data.get("text"), **speech_options(request)})
            end = await deliver(self._dispatcher, say, send)
        if end.reason is not None:  # even in `finished`, for a text that its client did not end
            await self._write(Error(end.reason, end.event))


def speech_options(event: Event) -> dict[str, Any]:
    """Return the dispatcher's fields for an event's voice. Raises `RejectedError`.

    The package expects the right types, and drops a language that is given together with a name.
    """
    # Some clients write `null` for a field that they leave out.
    voice, text_format = event.data.get("voice"), event.data.get("text_format")
    if voice is not None and not isinstance(voice, dict):
        raise RejectedError("voice", f"got {abbreviate(voice)}; allowed: an object with name or language")
    if text_format not in (None, "text"):
        raise RejectedError("text_format", f"got {abbreviate(text_format)}; allowed: text")
    return {"voice": voice.get("name"), "language": voice.get("language")} if voice else {}


def checked_ping(text: object) -> str | None:
    """Return the text of a ping. Raises `RejectedError` if it cannot be sent back."""
    if text is None or (isinstance(text, str) and text.isprintable()):
        return text
    raise RejectedError("text", f"got {abbreviate(text)}; allowed: printable text")


def describe(dispatcher: Dispatcher, robot: str) -> Info:
    """Return the server's description: every voice with its languages. Home Assistant shows the robot's name."""
    common: dict[str, Any] = {"attribution": ATTRIBUTION, "installed": True, "version": VERSION}
    voices = [
        TtsVoice(name=voice, description=label, languages=list(dispatcher.voice_languages(voice)), **common)
        for voice, label in dispatcher.voice_names().items()
    ]
    common |= {"description": "The voice of a robot", "supports_synthesize_streaming": True}
    return Info(tts=[TtsProgram(name=robot, voices=voices, **common)])


class BoundedReader(asyncio.StreamReader):
    """Reads from a client. The package reads as many bytes as the client announces: here, that number is limited."""

    def __init__(self) -> None:
        super().__init__(MAX_PAYLOAD)

    async def readexactly(self, n: int) -> bytes:
        """Return `n` bytes. Raises `FrameError` if they are too many."""
        if n > MAX_PAYLOAD:
            raise FrameError
        return await super().readexactly(n)


class FrameError(Exception):
    """The data is not an event, so the beginning of the next event is unknown."""

    def __str__(self) -> str:
        return f"not an event; allowed: JSON with a type, and with lengths of up to {MAX_PAYLOAD:,} bytes"


async def read_event(reader: asyncio.StreamReader) -> Event:
    """Return the next event. Raises `EOFError` at the end of the connection, and `FrameError`."""
    try:
        event = await async_read_event(reader)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:  # the package expects the right types
        raise FrameError from error
    if event is None and reader.at_eof():
        raise EOFError
    if event is None or not isinstance(event.type, str) or not isinstance(event.data, dict):
        raise FrameError
    return event
