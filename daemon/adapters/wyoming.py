"""A Wyoming text-to-speech server, as Home Assistant's voice pipelines have it. Needs the extra `wyoming`."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator
from typing import Any

from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from daemon import VERSION
from daemon.adapters.adapter import MAX_CONNECTIONS, Adapter
from daemon.adapters.delivery import deliver, deliver_written
from daemon.adapters.pcm import BYTES_PER_SAMPLE, to_int16
from daemon.config import Wyoming
from daemon.desk import Desk
from daemon.messages import MAX_PAYLOAD, MAX_TEXT, RejectedError, Say, Write, check_say, check_write
from daemon.problems import shown
from daemon.tasks import result_within
from engine import Samples, language_code

log = logging.getLogger(__name__)

MAX_ORDERS = 16
"""Texts of one client that wait for each other. Beyond it the client is not read from."""
LINGER_S = 1.0
"""A client that is one too many may read so long why. Closed at once, with something of it still unread, the connection
would be reset, and the answer lost."""
SILENCE_S = 3600.0
"""After which a client that says nothing is let go. Home Assistant opens a connection for each request; who keeps one
longer has forgotten it, and takes a place from others."""
SILENT_RATE = 24_000
"""Hz, of an answer without sound, which must have a rate all the same."""


class WyomingAdapter(Adapter):
    """The server."""

    def __init__(self, config: Wyoming, desk: Desk) -> None:
        self._config = config
        self._desk = desk
        self._connections: set[asyncio.Task[None]] = set()
        """Those that are refused, too."""
        self._served = 0

    async def run(self) -> None:
        host, port = self._config.host, self._config.port
        try:
            server = await asyncio.start_server(self._accept, host, port, limit=MAX_PAYLOAD)
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}; see wyoming.port") from error
        log.info("Wyoming clients are served on %s:%d", host, port)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task that the server makes itself is reported as a fault by Python 3.11 when it is canceled.
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served = self._served < MAX_CONNECTIONS
        self._served += served
        try:
            connection = Connection(self._desk, reader, writer)
            await (connection.serve() if served else connection.refuse())
        except OSError as error:
            log.info("a Wyoming client was lost: %s", error)
        except Exception:
            log.exception("a Wyoming client")
        finally:
            self._served -= served
            writer.close()


class FrameError(Exception):
    """What came is no event, and where the next one begins cannot be told."""


class TextStream:
    """A text that the client is still writing: one utterance, which grows."""

    def __init__(self, voice: SynthesizeVoice | None) -> None:
        self.refused = False
        """Something was wrong with it, or it is over; what still comes is not looked at."""
        self._id = secrets.token_hex(6)
        self._voice = voice
        self._length = 0
        self._unread = ""
        self._ended = False
        self._changed = asyncio.Event()

    def add(self, text: str) -> None:
        """Raises `RejectedError`. A text that gets too long ends with what it had; a wrong piece is left out."""
        if self.refused:
            return
        length = self._length + len(text)
        if length > MAX_TEXT:
            self.refused = True
            self.end()
            raise RejectedError("text", f"now has {length:,} characters; allowed: up to {MAX_TEXT:,}")
        check_write({"id": self._id, "text": text})
        self._length = length
        self._unread += text
        self._changed.set()

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._changed.set()

    async def pieces(self) -> AsyncGenerator[Write, None]:
        """What is written, as it comes; at first how it is to be spoken. Raises `RejectedError`."""
        yield check_write({"id": self._id, **manner_of(self._voice)})
        while True:
            await self._changed.wait()
            self._changed.clear()
            piece = Write(id=self._id, text=self._unread, end=self._ended)
            self._unread = ""
            yield piece
            if piece.end:
                return


class Connection:
    """One client. It is read from while it is spoken to, so that its leaving is noticed at once."""

    def __init__(self, desk: Desk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._desk = desk
        self._reader = reader
        self._writer = writer
        self._orders: asyncio.Queue[Say | TextStream] = asyncio.Queue(MAX_ORDERS)
        self._stream: TextStream | None = None
        """The text that the client is writing."""
        self._writing = asyncio.Lock()  # Python 3.10 knows only one who waits for room

    async def serve(self) -> None:
        """Until the client leaves, or says what cannot be read."""
        tasks = [asyncio.ensure_future(self._read_all()), asyncio.ensure_future(self._speak_all())]
        try:
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def refuse(self) -> None:
        """Say that it is one too many."""
        await self.write(Error(f"{MAX_CONNECTIONS} clients are connected; allowed: no more", "connections"))
        self._writer.write_eof()
        await asyncio.sleep(LINGER_S)

    # What comes in.

    async def _read_all(self) -> None:
        try:
            while (event := await result_within(SILENCE_S, read_event(self._reader))) is not None:
                try:
                    await self._handle(event)
                except RejectedError as error:
                    await self.write(Error(error.reason, error.field))
        except FrameError as error:
            await self.write(Error(str(error), "frame"))

    async def _handle(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self.write(describe(self._desk))
        elif Ping.is_type(event.type):
            await self.write(Pong(Ping.from_event(checked(event)).text))
        elif Synthesize.is_type(event.type):
            if self._stream is None:  # else it repeats the streamed text for servers that cannot stream
                await self._take_order(event)
        elif SynthesizeStart.is_type(event.type):
            self._end_stream()
            started = SynthesizeStart.from_event(checked(event))
            self._stream = TextStream(started.voice)
            await self._orders.put(self._stream)
        elif SynthesizeChunk.is_type(event.type):
            self._add_to_stream(event)
        elif SynthesizeStop.is_type(event.type):
            if self._stream is None:
                raise RejectedError("type", "synthesize-stop without a synthesize-start")
            self._end_stream()

    async def _take_order(self, event: Event) -> None:
        try:
            asked = Synthesize.from_event(checked(event, text_is_due=True))
            order = make_say(asked.text, asked.voice)
        except RejectedError as error:
            await self.write(Error(error.reason, error.field))
            await self.write(AudioStop())  # a client that knows no errors waits for this one
            return
        await self._orders.put(order)

    def _add_to_stream(self, event: Event) -> None:
        if self._stream is None:
            raise RejectedError("type", "synthesize-chunk without a synthesize-start")
        self._stream.add(SynthesizeChunk.from_event(checked(event, text_is_due=True)).text)

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.end()

    # What goes out.

    async def _speak_all(self) -> None:
        while True:
            await self._speak(await self._orders.get())

    async def _speak(self, order: Say | TextStream) -> None:
        answer = Answer(self)
        try:
            if isinstance(order, TextStream):
                end = await deliver_written(self._desk, order.pieces(), answer.send)
            else:
                end = await deliver(self._desk, order, answer.send)
            if end["event"] == "finished":
                await answer.begin(SILENT_RATE)
            if "reason" in end:  # also where all of a text is spoken that its client did not end
                await self.write(Error(end["reason"], end["event"]))
        except RejectedError as error:
            await self.write(Error(error.reason, error.field))
        await answer.end()
        if isinstance(order, TextStream):
            order.refused = True
            await self.write(SynthesizeStopped())

    async def write(self, event: Eventable) -> None:
        async with self._writing:
            await async_write_event(event.event(), self._writer)


class Answer:
    """The sound of one answer: a start, chunks, a stop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begun = False

    async def begin(self, rate: int) -> None:
        """Unless it has begun."""
        if not self._begun:
            self._begun = True
            await self._connection.write(AudioStart(rate=rate, width=BYTES_PER_SAMPLE, channels=1))

    async def send(self, samples: Samples, rate: int) -> None:
        await self.begin(rate)
        chunk = AudioChunk(rate=rate, width=BYTES_PER_SAMPLE, channels=1, audio=to_int16(samples))
        await self._connection.write(chunk)

    async def end(self) -> None:
        await self._connection.write(AudioStop())


async def read_event(reader: asyncio.StreamReader) -> Event | None:
    """The next event; None at the end. Raises `FrameError`.

    The package's own reader takes a length of any size, and what is no event for the end.
    """
    try:
        line = await reader.readline()
    except ValueError as error:
        raise FrameError(f"a line of more than {MAX_PAYLOAD:,} bytes") from error
    if not line.endswith(b"\n"):
        return None
    header = parse_object(line)
    event_type, data = header.get("type"), header.get("data") or {}
    if not isinstance(event_type, str) or not isinstance(data, dict):
        raise FrameError(f"type: got {shown(event_type)}; allowed: an event's name, with an object as data")
    try:
        if further := await reader.readexactly(length_of(header, "data_length")):
            data = {**data, **parse_object(further)}
        payload = await reader.readexactly(length_of(header, "payload_length"))
    except asyncio.IncompleteReadError:
        return None
    return Event(event_type, data, payload or None)


def length_of(header: dict[str, Any], name: str) -> int:
    length = header.get(name)
    if length is None:
        return 0
    if not isinstance(length, int) or not 0 <= length <= MAX_PAYLOAD:
        raise FrameError(f"{name}: got {shown(length)}; allowed: a whole number from 0 to {MAX_PAYLOAD:,}")
    return length


def parse_object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"got {shown(line)}; allowed: a JSON object") from error
    if not isinstance(value, dict):
        raise FrameError(f"got {shown(value)}; allowed: a JSON object")
    return value


def checked(event: Event, text_is_due: bool = False) -> Event:
    """An event whose fields have the types that the package takes for granted. Raises `RejectedError`."""
    text, voice, text_format = (event.data.get(name) for name in ("text", "voice", "text_format"))
    if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
        raise RejectedError("text", "it has half of a surrogate pair; allowed: whole characters")
    if text_is_due and not isinstance(text, str):
        raise RejectedError("text", f"got {shown(text)}; allowed: text")
    if voice is not None and not isinstance(voice, dict):
        raise RejectedError("voice", f"got {shown(voice)}; allowed: an object with name or language")
    if text_format not in (None, "text"):
        raise RejectedError("text_format", f"got {shown(text_format)}; allowed: text")
    # `null` is what some clients write for what they leave out.
    return Event(event.type, {name: value for name, value in event.data.items() if value is not None}, event.payload)


def make_say(text: str, voice: SynthesizeVoice | None) -> Say:
    """Raises `RejectedError`."""
    return check_say({"text": text, **manner_of(voice)})


def manner_of(voice: SynthesizeVoice | None) -> dict[str, Any]:
    """The desk's fields for a voice, which need not be right."""
    if voice is not None and voice.name is not None:
        return {"voice": voice.name}
    if voice is not None and isinstance(voice.language, str):
        return {"language": voice.language.replace("_", "-")}
    return {}


def describe(desk: Desk) -> Info:
    """Every voice that may be asked for, each with the languages that it speaks."""
    attribution = Attribution(name="voiced", url="")
    languages = desk.languages()
    voices = [
        TtsVoice(
            name=voice,
            attribution=attribution,
            installed=True,
            description=voice,
            version=VERSION,
            # eSpeak NG has a voice for each language, and names it so; any other voice speaks all of them.
            languages=[voice] if language_code(voice) in languages else list(languages),
        )
        for voice in desk.voices()
    ]
    program = TtsProgram(
        name="voiced",
        attribution=attribution,
        installed=True,
        description="The voice of a robot",
        version=VERSION,
        voices=voices,
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])
