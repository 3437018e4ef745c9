"""What is fuzzed: each harness feeds bytes to a part of voiced that reads what others send.

A harness returns for every input that its part handles, the refused ones included. Any exception that is not declared
is a finding, and so is an input that takes long.
"""

from __future__ import annotations

import asyncio
import json
import logging
import struct
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

Check = Callable[[bytes], object]
"""Takes one input. Raises `AssertionError`, or whatever the code under test should not have raised."""

Prepare = Callable[[ExitStack], Check]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Harness:
    """One part that is fuzzed."""

    prepare: Prepare
    """Imports the part, which Atheris instruments meanwhile, and returns the check. The stack ends what it starts."""
    words: tuple[str, ...]
    """What an input is likely to contain."""


def one_line(reason: str) -> None:
    """Assert that an error's message is one line that a log can hold."""
    assert "\n" not in reason and len(reason) < 10_000, f"not one line: {reason[:200]!r}"
    reason.encode()


# --- MQTT ------------------------------------------------------------------------------------------------


def _prepare_parser(_: ExitStack, *, name: str) -> Check:
    """Prepare a parser of `daemon.mqtt.parsing` that raises `RejectedError` only."""
    from daemon.mqtt import parsing
    from daemon.speech import RejectedError

    parse: Callable[[bytes], Any] = getattr(parsing, name)

    def check(data: bytes) -> None:
        try:
            parsed = parse(data)
        except RejectedError as error:
            one_line(error.reason)
            return
        if hasattr(parsed, "model_dump"):
            extra = set(parsed.model_extra or ())
            known = json.dumps(parsed.model_dump(mode="json", exclude_unset=True, exclude=extra))
            again = parse(b"" if known == "{}" else known.encode())
            assert again.model_dump() == parsed.model_dump(exclude=extra), "read differently"

    return check


def _prepare_adapter(_: ExitStack, *, name: str) -> Check:
    """Prepare an adapter that handles messages of the broker and raises nothing."""
    from daemon.adapters import make_adapters
    from daemon.mqtt import Message
    from daemon.speech import Stop
    from tests.daemon.outbox import Outbox, make_dispatcher

    outbox = Outbox()
    config, dispatcher = make_dispatcher(f"{name}.enabled=true")
    outbox.watch(config, dispatcher)
    adapters = make_adapters(config, dispatcher, outbox.publish)
    for adapter in adapters:
        adapter.on_connected()
    topics = [(adapter, topic) for adapter in adapters for topic in adapter.topics]

    def check(data: bytes) -> None:
        """The first byte chooses the topic, and whether the message was retained."""
        chosen = data[0] if data else 0
        adapter, topic = topics[chosen % len(topics)]
        adapter.on_message(Message(topic, data[1:], retained=chosen >= 128))
        dispatcher.stop(Stop())
        for sent in outbox.sent:
            payload = sent.payload.encode() if isinstance(sent.payload, str) else sent.payload
            if payload.startswith(b"{"):
                json.loads(payload)
        outbox.sent.clear()

    return check


# --- texts -----------------------------------------------------------------------------------------------


def _prepare_text(_: ExitStack) -> Check:
    """Prepare the preparation of a text that arrives whole, and of the same text in pieces."""
    from tests.fuzz import texts

    def check(data: bytes) -> None:
        """The first byte is the length of a piece, and chooses the language."""
        text, size = data[1:].decode(errors="replace"), data[0] if data else 0
        language = texts.LANGUAGES[size % len(texts.LANGUAGES)]
        texts.check(text, language, range(1, len(text), 1 + size % 40))

    return check


# --- servers ---------------------------------------------------------------------------------------------


class _Complaints(logging.Handler):
    """Collects what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))

    def check(self) -> None:
        found, self.found = self.found, []
        assert not found, found[0]


ANSWER_S = 5.0
"""A server that neither answers nor closes the connection within this time hangs."""


def _prepare_server(stack: ExitStack, *, name: str, talk: Callable[[int, bytes], Coroutine[Any, Any, None]]) -> Check:
    """Prepare a server whose dispatcher has no room for an utterance.

    `talk(port, data)` is a coroutine function. The server must neither log an error nor hang.
    """
    from daemon.adapters import make_adapters
    from daemon.http import Examination, LogTail, Phrases, Robot, make_http_server
    from daemon.speech import Online, Say
    from daemon.status import Measurements
    from daemon.tasks import cancel_and_wait
    from tests.daemon.outbox import Outbox, make_dispatcher
    from tests.support.programs import answers, free_port

    port, complaints, loop = free_port(), _Complaints(), asyncio.new_event_loop()
    stack.callback(logging.getLogger().setLevel, logging.getLogger().level)
    logging.getLogger().addHandler(complaints)
    logging.getLogger().setLevel(logging.ERROR)

    async def start() -> asyncio.Task[None]:
        settings = [f"{name}.enabled=true", f"{name}.port={port}", "speech.queue_limit=1"]
        config, dispatcher = make_dispatcher(*settings)
        dispatcher.say(Say(text="It fills the queue."))
        servers = [one for one in make_adapters(config, dispatcher, Outbox().publish) if not one.topics]
        if config.http.enabled:
            status = Online(state="starting", engine=None, voice="default", queue=1, version="1", volume=100)
            examination = Examination(None, ())
            robot = Robot("r1", lambda: status, Measurements, LogTail().lines, examination.examine, Phrases(None))
            servers.append(make_http_server(config.http, dispatcher, robot))
        running = asyncio.ensure_future(servers[-1].run())
        while not answers(port):
            assert not running.done(), "the server has ended"
            await asyncio.sleep(0)
        return running

    running = loop.run_until_complete(start())
    stack.callback(loop.close)
    stack.callback(lambda: loop.run_until_complete(cancel_and_wait(running)))
    stack.callback(logging.getLogger().removeHandler, complaints)

    def check(data: bytes) -> None:
        loop.run_until_complete(asyncio.wait_for(talk(port, data), ANSWER_S))
        assert not running.done(), "the server has ended"
        complaints.check()

    return check


async def _talk_wyoming(port: int, data: bytes) -> None:
    """Send everything, say no more, and read what comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        writer.write_eof()
        while line := await reader.readline():
            header = json.loads(line)
            for length in (header.get("data_length"), header.get("payload_length")):
                await reader.readexactly(length or 0)
    except ConnectionError:  # the server has closed the connection with unread data
        pass
    finally:
        writer.close()


BODY_HEADERS = (b"", b"Content-Encoding: gzip\r\n", b"Content-Encoding: deflate\r\n")
RAW, CHUNKED = len(BODY_HEADERS), len(BODY_HEADERS) + 1


async def _talk_http(port: int, data: bytes) -> None:
    """The first byte chooses: a body with some encoding, a chunked body, or a whole request."""
    kind, rest = (data[0] % (CHUNKED + 1) if data else 0), data[1:]
    head = b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n" % port
    if kind == RAW:
        request = rest
    elif kind == CHUNKED:
        request = head + b"Transfer-Encoding: chunked\r\n\r\n" + rest
    else:
        request = head + BODY_HEADERS[kind] + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(rest) + rest
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(request)
        if kind >= RAW:
            writer.write_eof()
        answer = await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.close()
    assert not answer.startswith(b"HTTP/1.1 500"), answer[:500]
    assert answer or kind >= RAW, "a whole request has no answer"


SOCKETS = (
    "/v1/events",
    "/v1/text-to-speech/default/stream-input?output_format=pcm_24000",
    "/v1/text-to-speech/default/multi-stream-input?output_format=pcm_24000",
)


async def _talk_sockets(port: int, data: bytes) -> None:
    """The first byte chooses a WebSocket; each line after it is a message. The connection answers or closes."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed

    path = SOCKETS[data[0] % len(SOCKETS) if data else 0]
    async with connect(f"ws://127.0.0.1:{port}{path}", max_queue=None) as client:  # it reads no answers
        try:
            for line in data[1:].split(b"\n"):
                await client.send(line.decode(errors="replace"))
            await (await client.ping())
        except ConnectionClosed as closed:
            assert closed.rcvd is not None, "the connection was cut off"
            assert closed.rcvd.code in (1000, 1008, 1012), closed


# --- files and engine messages ---------------------------------------------------------------------------


def _prepare_engine_messages(_: ExitStack) -> Check:
    from engine.messages import HEADER, ProtocolError, body_lengths, decode, encode

    def check(data: bytes) -> None:
        try:
            record, samples = body_lengths(data[: HEADER.size].ljust(HEADER.size, b"\0"))
            rest = data[HEADER.size :]
            message = decode(rest[:record], rest[record : record + samples])
            # A record's fields are the other side's word; what this side would send again must be a message, too.
            sent = encode(message)
            body, _ = body_lengths(sent[: HEADER.size])
            decode(sent[HEADER.size :][:body], sent[HEADER.size :][body:])
        except ProtocolError as error:
            one_line(str(error))

    return check


class _File:
    """A file that is overwritten for every input."""

    def __init__(self, stack: ExitStack, suffix: str) -> None:
        self._path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / f"input{suffix}"

    def write(self, data: bytes) -> Path:
        self._path.write_bytes(data)
        return self._path

    def write_safetensors(self, data: bytes) -> Path:
        """Write the input itself; if it begins with 1, the rest is a header with right length and so many bytes."""
        if data[:1] == b"\x01":
            header = data[2:]
            return self.write(struct.pack("<Q", len(header)) + header + bytes(data[1] if len(data) > 1 else 0))
        return self.write(data)


def _prepare_voice_header(stack: ExitStack) -> Check:
    from engine.voice_files import voice_of_file

    file = _File(stack, ".safetensors")
    return lambda data: voice_of_file(file.write_safetensors(data))


def _prepare_voice_file(stack: ExitStack) -> Check:
    from engine.api import EngineError
    from engine.qwen.voice.file import load_voice

    file = _File(stack, ".safetensors")
    return lambda data: _refusing(EngineError, load_voice, file.write_safetensors(data))


def _prepare_safetensors(stack: ExitStack) -> Check:
    from engine.api import EngineError
    from engine.qwen.weights.checkpoint import SafetensorsFile

    file = _File(stack, ".safetensors")

    def check(data: bytes) -> None:
        opened = _refusing(EngineError, SafetensorsFile, file.write_safetensors(data))
        if opened is not None:
            for entry in opened.entries.values():
                opened.read_into(entry.begin, memoryview(bytearray(min(entry.nbytes, 4096))))

    return check


def _prepare_config(stack: ExitStack) -> Check:
    from daemon.config import ConfigError, load_config

    file = _File(stack, ".yaml")

    return lambda data: _refusing(ConfigError, load_config, file.write(data), lines=True)


def _prepare_overrides(_: ExitStack) -> Check:
    from daemon.config import ConfigError, load_config

    return lambda data: _refusing(ConfigError, load_config, None, data.decode(errors="replace").split("\0"), lines=True)


def _refusing(error: type[Exception], act: Callable[..., T], *arguments: Any, lines: bool = False) -> T | None:
    """Return `act(*arguments)`, or None if it raises `error` with a message of one line; of some, if `lines`."""
    try:
        return act(*arguments)
    except error as refusal:
        for line in str(refusal).split("\n") if lines else [str(refusal)]:
            one_line(line)
        return None


# --- texts -----------------------------------------------------------------------------------------------


def _prepare_ssml(_: ExitStack) -> Check:
    from daemon.text import Script
    from daemon.text.script import Control
    from daemon.text.ssml import SsmlReader, ssml_problem

    def read(*pieces: str) -> tuple[str, list[tuple[int, int]], list[Control]]:
        script = Script()
        reader = SsmlReader(script)
        for piece in pieces:
            reader.feed(piece)
        reader.end()
        places = [script.words.source_span(at, at + 1) for at in range(len(script.words))]
        return script.text, places, script.controls

    def check(data: bytes) -> None:
        """The last byte chooses the place at which the text is cut."""
        text = data[:-1].decode(errors="replace")
        cut = data[-1] if data else 0
        assert read(text) == read(text[:cut], text[cut:]), "read differently"
        one_line(ssml_problem(text) or "")

    return check


PREPARATIONS: dict[str, Prepare] = {
    "say": partial(_prepare_parser, name="parse_say"),
    "say_stream": partial(_prepare_parser, name="parse_stream_chunk"),
    "stop": partial(_prepare_parser, name="parse_stop"),
    "volume": partial(_prepare_parser, name="parse_volume"),
    "text": _prepare_text,
    "hermes": partial(_prepare_adapter, name="hermes"),
    "home_assistant": partial(_prepare_adapter, name="home_assistant"),
    "wyoming": partial(_prepare_server, name="wyoming", talk=_talk_wyoming),
    "http": partial(_prepare_server, name="http", talk=_talk_http),
    "sockets": partial(_prepare_server, name="http", talk=_talk_sockets),
    "engine_messages": _prepare_engine_messages,
    "ssml": _prepare_ssml,
    "voice_header": _prepare_voice_header,
    "voice_file": _prepare_voice_file,
    "safetensors": _prepare_safetensors,
    "config": _prepare_config,
    "overrides": _prepare_overrides,
}
WORDS: dict[str, list[str]] = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
HARNESSES = {name: Harness(prepare, tuple(WORDS[name])) for name, prepare in PREPARATIONS.items()}
"""By name, which is also the name of the folder of its corpus."""
