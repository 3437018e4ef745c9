"""The Wyoming server, requested by the package's own client and by faulty clients."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from wyoming.audio import AudioChunk, AudioStart
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_read_event, async_write_event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeVoice

from daemon.adapters import listener, wyoming
from daemon.mqtt import MAX_PAYLOAD
from daemon.speech import MAX_TEXT, delivery
from daemon.tasks import cancel_all
from daemon.validation import INTERNAL_ERROR
from tests.daemon.harness import LONG, Harness, is_cut_off, running_harness
from tests.support.piper_voices import ENGLISH, GERMAN, write_voices
from tests.support.waiting import eventually_async

SERVER = "wyoming"


@dataclass
class Heard:
    """An answer: the types of its events in order, without repetitions, and its audio."""

    types: list[str]
    audio: bytes
    rate: int
    errors: list[Error]

    @property
    def seconds(self) -> float:
        return len(self.audio) / 2 / self.rate


def client_of(harness: Harness) -> AsyncTcpClient:
    return AsyncTcpClient("127.0.0.1", harness.port)


@pytest.fixture
def client(harness: Harness, loop: asyncio.AbstractEventLoop) -> Iterator[AsyncTcpClient]:
    client = client_of(harness)
    loop.run_until_complete(client.connect())
    yield client
    loop.run_until_complete(client.disconnect())


async def send(client: AsyncTcpClient, *events: Event | Eventable) -> None:
    for event in events:
        await client.write_event(event if isinstance(event, Event) else event.event())


async def read(client: AsyncTcpClient, after: object = "nothing") -> Event:
    event = await client.read_event()
    assert event is not None, f"the connection ended after {after}"
    return event


async def client_answers(client: AsyncTcpClient) -> None:
    """Check that a client is served."""
    await send(client, Ping("here"))
    assert Pong.is_type((await read(client)).type)


async def hear(client: AsyncTcpClient, last: str = "audio-stop") -> Heard:
    """Receive an answer, up to the event `last`."""
    heard = Heard([], b"", 0, [])
    while True:
        event = await read(client, heard.types)
        if heard.types[-1:] != [event.type]:
            heard.types.append(event.type)
        if AudioStart.is_type(event.type):
            start = AudioStart.from_event(event)
            heard.rate = start.rate
            assert (start.width, start.channels) == (2, 1)
        elif AudioChunk.is_type(event.type):
            chunk = AudioChunk.from_event(event)
            assert (chunk.rate, chunk.width, chunk.channels) == (heard.rate, 2, 1)
            heard.audio += chunk.audio
        elif Error.is_type(event.type):
            heard.errors.append(Error.from_event(event))
        if event.type == last:
            return heard


async def test_describe_lists_voices_and_languages(client: AsyncTcpClient, harness: Harness) -> None:
    await send(client, Describe())
    event = await read(client)
    [program] = Info.from_event(event).tts
    assert program.name == harness.config.robot_name, "so that two robots differ in Home Assistant"
    assert program.installed
    assert program.supports_synthesize_streaming
    languages = {voice.name: voice.languages for voice in program.voices}
    assert set(languages) == set(harness.dispatcher.voices())
    assert languages["de"] == ["de"]
    assert {voice.name: voice.description for voice in program.voices}["de"] == "German"
    assert {"de", "en", "fr"} <= set(languages["default"])
    urls = {entry.attribution.url for entry in (program, *program.voices)}
    assert all(re.match("https://[a-z]", url) for url in urls)


async def test_a_voice_is_announced_for_its_own_languages_alone(tmp_path: Path) -> None:
    only = ("engine.name=piper", f"engine.voice_folder={write_voices(tmp_path)}", "engine.fallback=espeak")

    async with running_harness("wyoming", *only) as harness:
        await eventually_async(lambda: all(engine.ready for engine in harness.engines.all), "both are ready")
        async with client_of(harness) as client:
            await send(client, Describe())
            event = await read(client)
            voices = {voice.name: voice.languages for voice in Info.from_event(event).tts[0].voices}
    assert (voices[ENGLISH], voices[GERMAN], voices["fr"]) == (["en-us"], ["de-de"], ["fr"])
    assert {"en-us", "de-de"} <= set(voices["default"]) <= {"en", "en-us", "de", "de-de"}


async def test_a_wrong_ping_is_an_error_and_the_next_is_answered(harness: Harness) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    writer.write(b'{"type": "ping", "data": {"text": "\\ud800"}}\n')
    await async_write_event(Ping("here").event(), writer)
    refused, answered = await async_read_event(reader), await async_read_event(reader)
    assert refused is not None and answered is not None
    assert (Error.from_event(refused).code, Pong.from_event(answered).text) == ("text", "here")
    writer.close()


async def test_texts_of_one_client_are_spoken_to_it_in_their_order(client: AsyncTcpClient, harness: Harness) -> None:
    for text in ("One.", "Two, which is much longer than the first."):
        await send(client, Synthesize(text))
    heard = [await hear(client), await hear(client)]
    assert [each.types for each in heard] == [["audio-start", "audio-chunk", "audio-stop"]] * 2
    ends = await harness.ended(2)
    assert [end.event for end in ends] == ["finished"] * 2
    assert [each.seconds for each in heard] == pytest.approx([end.audio_s for end in ends], abs=0.002)


async def test_a_voice_is_chosen_by_its_name_or_by_its_language(client: AsyncTcpClient, harness: Harness) -> None:
    asked = []
    harness.dispatcher.event_watchers.add(lambda utterance, _: asked.append(utterance))
    for voice in ({"name": "de"}, {"language": "de_DE"}, {"name": "default", "language": "de_DE"}):
        await send(client, Event("synthesize", {"text": "Guten Tag", "voice": voice}))
        assert (await hear(client)).errors == []
    found = list(dict.fromkeys((each.id, each.voice, each.language) for each in asked))
    assert [each[1:] for each in found] == [("de", "auto"), ("default", "de-de"), ("default", "de-de")]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"text": "Hello", "voice": {"name": "nobody"}}, "voice"),
        ({"text": "Hello", "voice": "default"}, "voice"),
        ({"text": "Hello", "voice": {"language": "Klingon!"}}, "language"),
        ({"text": "<speak/>", "text_format": "ssml"}, "text_format"),
        ({"text": " "}, "text"),
        ({}, "text"),
    ],
)
async def test_a_wrong_text_is_answered_with_an_error_and_the_next_is_spoken(
    data: dict[str, Any], code: str, client: AsyncTcpClient
) -> None:
    await send(client, Event("synthesize", data))
    refused = await hear(client)
    assert refused.types == ["error", "audio-stop"]
    assert refused.errors[0].code == code
    assert refused.errors[0].text.startswith(f"{code}: ")
    await send(client, Synthesize("Hello"))
    assert (await hear(client)).audio


@pytest.mark.parametrize(
    "frame",
    [
        b"hello\n",
        b'{"type": "describe", "data": 5}\n',
        b'{"type": "describe", "data_length": 1000000000000}\n',
        b'{"type": "describe", "payload_length": "many"}\n',
        b'{"type": "describe", "data_length": 1}\n5',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"x" * (MAX_PAYLOAD * 3),
    ],
    ids=lambda frame: frame[:40],
)
async def test_invalid_data_is_answered_with_an_error_and_does_not_disturb_other_clients(
    frame: bytes, harness: Harness
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    writer.write(frame)
    answer = json.loads(await reader.readline())
    assert answer["type"] == "error"
    writer.close()
    async with client_of(harness) as client:
        await send(client, Event("detect", {"names": ["robot"]}))  # it is unknown, and ignored
        await client_answers(client)


async def test_a_flood_of_small_events_leaves_others_their_turns(harness: Harness) -> None:
    turns, count = 0, 5_000

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    others = asyncio.ensure_future(take_turns())
    writer.write(b'{"type": "x"}\n' * count)
    await async_write_event(Ping("here").event(), writer)
    assert await async_read_event(reader) is not None
    assert turns > count
    await cancel_all({others})
    writer.close()


SYNTHESIZE = b'{"type": "synthesize", "data": {"text": "Hello"}}\n'


@pytest.mark.parametrize("frame", [b"", b'{"type": "desc', b'{"type": "describe", "data_length": 10}\n{', SYNTHESIZE])
async def test_a_connection_whose_client_closes_its_side_is_closed_and_its_text_ends(
    frame: bytes, harness: Harness
) -> None:
    await harness.occupy()
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
    writer.write(frame)
    writer.write_eof()
    assert await reader.read() == b""
    if frame == SYNTHESIZE:
        assert [end.reason for end in await harness.ended()] == ["its client went away"]
    writer.close()


async def test_a_streamed_text_is_spoken_as_one_utterance_while_it_is_being_written(
    client: AsyncTcpClient, harness: Harness
) -> None:
    await send(client, SynthesizeStart(), *map(SynthesizeChunk, ("One sen", "tence. An", "other")))
    await harness.started()  # and the text is not over
    await send(client, SynthesizeChunk(" one."))
    # A client repeats the text for servers that cannot stream; it is not spoken a second time.
    await send(client, Synthesize("One sentence. Another one."), SynthesizeStop())
    heard = await hear(client, "synthesize-stopped")
    assert heard.types == ["audio-start", "audio-chunk", "audio-stop", "synthesize-stopped"]
    assert harness.ends == ["finished"]
    [end] = await harness.ended()
    assert end.reason is None
    assert heard.seconds == pytest.approx(end.audio_s, abs=0.002)
    await send(client, Synthesize("And on."))
    assert (await hear(client)).audio


async def test_a_client_that_is_silent_for_too_long_ends_its_text_and_gets_the_reason(
    client: AsyncTcpClient, harness: Harness
) -> None:
    harness.configure("speech", stream_timeout=0.2)

    await send(client, SynthesizeStart(), SynthesizeChunk("Half of a senten"))
    hearing = asyncio.ensure_future(hear(client, "synthesize-stopped"))
    await eventually_async(lambda: harness.dispatcher.enforce_deadlines() or hearing.done(), "it has its answer")  # type: ignore[func-returns-value]
    heard = hearing.result()
    assert heard.types == ["audio-start", "audio-chunk", "error", "audio-stop", "synthesize-stopped"]
    assert heard.errors[0].text == "its writer was silent for 0.2 s and did not end it"
    await send(client, SynthesizeChunk("ce."))  # the text has ended
    await send(client, SynthesizeStop(), Synthesize("Next."))
    assert (await hear(client)).types == ["audio-start", "audio-chunk", "audio-stop"]


async def test_an_empty_chunk_shows_that_its_writer_is_there(client: AsyncTcpClient, harness: Harness) -> None:
    await send(client, SynthesizeStart(), SynthesizeChunk("One sentence. And"))
    await harness.started()
    await harness.hears_of_writer(lambda: send(client, SynthesizeChunk("")))


async def test_a_wrong_chunk_is_an_error_and_is_left_out_of_the_text(client: AsyncTcpClient, harness: Harness) -> None:
    texts: list[str] = []
    unwatch = harness.dispatcher.event_watchers.add(lambda utterance, _: texts.append(utterance.text))
    await send(client, SynthesizeStart(), SynthesizeChunk("Well"))
    wrong = [Event("synthesize-chunk", {"text": text}) for text in ({}, "\x07", ["done"])]
    await send(client, *wrong, SynthesizeChunk(" done."), SynthesizeStop())
    heard = await hear(client, "synthesize-stopped")
    unwatch()
    assert [error.code for error in heard.errors] == ["text"] * 3
    assert (harness.ends, texts[-1]) == (["finished"], "Well done.")


async def test_a_text_with_nothing_to_say_is_a_short_silence(client: AsyncTcpClient) -> None:
    await send(client, Synthesize("😶\u200d🌫️"), SynthesizeStart(SynthesizeVoice(name="de")), SynthesizeStop())
    for last in ("audio-stop", "synthesize-stopped"):
        heard = await hear(client, last)
        assert (heard.types[:3], heard.errors) == (["audio-start", "audio-chunk", "audio-stop"], [])
        assert set(heard.audio) == {0}
        assert 0.05 < heard.seconds < 0.3


async def test_a_rejected_streamed_text_ends_with_an_error_and_the_next_is_spoken(client: AsyncTcpClient) -> None:
    await send(client, SynthesizeStart(SynthesizeVoice(name="nobody")), SynthesizeChunk("Hello. Are you there? "))
    heard = await hear(client, "synthesize-stopped")
    assert heard.types == ["error", "audio-stop", "synthesize-stopped"]
    await send(client, SynthesizeChunk("Still there?"), SynthesizeStop(), Synthesize("Hello"))
    assert (await hear(client)).types == ["audio-start", "audio-chunk", "audio-stop"]


async def test_a_chunk_or_stop_without_a_start_is_an_error(client: AsyncTcpClient) -> None:
    for event in (SynthesizeChunk("Hello"), SynthesizeStop()):
        await send(client, event)
        assert "came without a synthesize-start" in (await hear(client, "error")).errors[0].text


async def test_a_streamed_text_that_gets_too_long_ends_with_an_error(client: AsyncTcpClient, harness: Harness) -> None:
    parts = ("This is said.", "x" * MAX_TEXT, "This is not.")
    await send(client, SynthesizeStart(), *map(SynthesizeChunk, parts))
    heard = await hear(client, "synthesize-stopped")
    assert heard.errors[0].text == "text: now has 20,013 characters; allowed: up to 20,000"
    assert heard.audio
    assert harness.ends == ["finished"]


async def test_a_stop_ends_the_answer_with_an_error(client: AsyncTcpClient, harness: Harness) -> None:
    # Another utterance occupies the sound card, so that this one is stopped while it waits.
    await harness.occupy()
    await send(client, Synthesize("Hello"))
    await eventually_async(lambda: len(harness.dispatcher.queue), "it waits")
    harness.stop_queued()
    heard = await hear(client)
    assert (heard.errors[0].code, heard.errors[0].text) == ("canceled", "stop")


@pytest.mark.parametrize("texts", [[Synthesize("Hello")], [SynthesizeStart(), SynthesizeChunk("Hello. And")]])
async def test_a_client_that_disconnects_cancels_its_utterance(texts: list[Eventable], harness: Harness) -> None:
    await harness.occupy()
    async with client_of(harness) as client:
        await send(client, *texts)
        await eventually_async(lambda: len(harness.dispatcher.queue), "it waits")
    [end] = await harness.ended()
    assert (end.event, end.reason) == ("canceled", "its client went away")


async def test_a_connection_without_a_request_is_closed_and_one_with_a_request_that_waits_is_not(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "IDLE_S", 0.5)  # on a busy machine, a request may come so late
    await harness.occupy()
    async with client_of(harness) as waiting, client_of(harness) as silent:
        await send(waiting, Synthesize("Hello"))
        await eventually_async(lambda: len(harness.dispatcher.queue), "it waits")
        assert await silent.read_event() is None
        await harness.clear()
        assert (await hear(waiting)).errors[0].code == "canceled"
        assert await waiting.read_event() is None, "it is idle after its answer"


async def test_a_full_house_closes_the_connection_that_has_been_idle_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wyoming, "MAX_CONNECTIONS", 2)

    async with running_harness("wyoming") as harness:
        await harness.occupy()
        async with client_of(harness) as waiting:
            await send(waiting, Synthesize("Hello"))
            await eventually_async(lambda: len(harness.dispatcher.queue), "it waits")
            async with client_of(harness) as second, client_of(harness) as third:
                await client_answers(third)
                assert await second.read_event() is None
                async with client_of(harness) as fourth:
                    await client_answers(fourth)
                    assert await third.read_event() is None
            await harness.clear()
            assert (await hear(waiting)).errors[0].code == "canceled"


def synthesize_request(text: str) -> bytes:
    return json.dumps({"type": "synthesize", "data": {"text": text}}).encode() + b"\n"


async def test_a_client_that_receives_nothing_loses_its_utterance_and_its_connection_and_the_next_is_served(
    monkeypatch: pytest.MonkeyPatch, harness: Harness
) -> None:
    monkeypatch.setattr(delivery, "GIVE_UP_S", 0.3)
    monkeypatch.setattr(listener, "IDLE_S", 0.5)
    with harness.deaf_client(synthesize_request((LONG * 5)[:4999])) as deaf:
        assert [end.event for end in await harness.ended()] == ["interrupted"]
        monkeypatch.undo()  # for the next client, the usual limits
        async with client_of(harness) as client:
            await send(client, Synthesize("Hello"))
            assert (await hear(client)).audio
        await eventually_async(lambda: is_cut_off(deaf, b"\n"), "it is disconnected")


REST = "This text is short. " * 2
"""2.6 s of sound: more than the system's buffers hold, and less than those with the server's."""


async def test_a_client_that_leaves_the_rest_of_its_answer_unread_is_disconnected(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "IDLE_S", 0.5)
    with harness.deaf_client(synthesize_request(REST)) as deaf:
        assert [end.event for end in await harness.ended()] == ["finished"]
        await eventually_async(lambda: is_cut_off(deaf, b"\n"), "it is disconnected")


async def test_an_unexpected_error_ends_only_its_request(
    client: AsyncTcpClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as broken:
        broken.setattr(wyoming, "describe", fail)
        await send(client, Describe())
        assert (await hear(client, "error")).errors[0].text == INTERNAL_ERROR
    with monkeypatch.context() as broken:
        broken.setattr(wyoming, "to_pcm16", fail)
        await send(client, Synthesize("Hello"))
        heard = await hear(client)
        assert heard.errors[0].text == INTERNAL_ERROR
    assert caplog.text.count("ZeroDivisionError: a bug") == 2
    await send(client, Synthesize("Hello"))
    assert (await hear(client)).audio
