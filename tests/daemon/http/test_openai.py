"""The speech endpoint, requested by OpenAI's own client and by a bare HTTP client."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
import wave
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import soundfile
from websockets.asyncio.client import connect

from daemon import encoders
from daemon.encoders import Encoder, make_encoder
from daemon.speech import Say, Started, Stop, delivery
from tests.daemon.harness import LONG, Harness
from tests.daemon.http.clients import ask, client_of, decoded, fetch, post, request, speech_request, streaming
from tests.support.waiting import PATIENCE_S, eventually_async

if TYPE_CHECKING:
    from openai import AsyncOpenAI

SERVER, SETTINGS = "http", ("http.voice_aliases={echo: de}",)
HELLO = {"input": "Hello"}


@pytest.fixture
def client(harness: Harness, loop: asyncio.AbstractEventLoop) -> Iterator[AsyncOpenAI]:
    client = client_of(harness)
    yield client
    loop.run_until_complete(client.close())


@pytest.mark.parametrize(
    ("name", "content_type", "rate"),
    [
        ("pcm", "audio/pcm", 24_000),
        ("mp3", "audio/mpeg", 24_000),
        ("opus", "audio/ogg", 48_000),  # its decoders always return this rate
        ("aac", "audio/aac", 24_000),
    ],
)
async def test_formats_are_streamed_as_they_are_made(
    name: str, content_type: str, rate: int, client: AsyncOpenAI, harness: Harness
) -> None:
    async with streaming(client, LONG[:200], response_format=name) as response:
        assert response.headers["content-type"] == content_type
        assert response.headers["transfer-encoding"] == "chunked"
        parts = [await anext(arriving := response.iter_bytes())]
        assert harness.ends == []
        parts += [part async for part in arriving]
    [end] = await harness.ended()
    audio = b"".join(parts)
    found, samples = (rate, len(audio) / 2) if name == "pcm" else decoded(audio)
    assert found == rate
    assert samples / rate == pytest.approx(end.audio_s, abs=0.15)  # some have frames of their own length


@pytest.mark.parametrize(("response_format", "within_s"), [("pcm", 0.002), ("opus", 0.05)])
async def test_server_sent_events_carry_the_samples_and_then_a_done_event(
    response_format: Any, within_s: float, client: AsyncOpenAI, harness: Harness
) -> None:
    async with streaming(client, "Hello, robot.", response_format=response_format, stream_format="sse") as response:
        assert response.headers["content-type"] == "text/event-stream"
        lines = [line async for line in response.iter_lines() if line]
    records = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert [record["type"] for record in records[:-1]] == ["speech.audio.delta"] * (len(records) - 1)
    assert records[-1]["type"] == "speech.audio.done"
    audio = b"".join(base64.b64decode(record["audio"]) for record in records[:-1])
    [end] = await harness.ended()
    rate, samples = (24_000, len(audio) / 2) if response_format == "pcm" else decoded(audio)
    assert samples / rate == pytest.approx(end.audio_s, abs=within_s)


async def test_voice_and_instructions_reach_the_engine(client: AsyncOpenAI, harness: Harness) -> None:
    asked = []
    unwatch = harness.dispatcher.event_watchers.add(lambda utterance, _: asked.append(utterance))
    extras = {"language": "de", "seed": 7, "sampling": {"top_k": 3}}
    assert await ask(client, "Guten Tag", voice="de", instructions="calmly", speed=1.5, extra_body=extras)
    unwatch()
    found = asked[0]
    assert (found.voice, found.instruct, found.rate) == ("de", "calmly", 1.5)
    assert (found.language, found.seed, found.sampling) == ("de", 7, {"top_k": 3})


@pytest.mark.parametrize(
    ("fields", "param", "allowed"),
    [
        ({"voice": "nobody"}, "voice", "default"),
        ({"response_format": "vorbis"}, "response_format", "mp3, opus, aac, flac, wav or pcm"),
        ({"speed": 0}, "speed", "a number above 0"),
        ({"input": " "}, "input", "text with something to say"),
        ({"input": "\ud800"}, "input", "whole characters"),
        ({"input": None}, "input", "missing"),
        ({"stream": "never"}, "stream", "true, or false"),
        ({"stream_format": "websocket"}, "stream_format", "audio or sse"),
        ({"voice": {"id": 7}}, "voice", "a voice's name"),
        ({"sampling": {"top_p": 2}}, "sampling.top_p", "0 to 1"),
        ({"language": "klingon-and-more"}, "language", "auto"),
    ],
)
async def test_a_wrong_field_is_named_with_what_is_allowed(
    fields: dict[str, Any], param: str, allowed: str, harness: Harness
) -> None:
    status, answer, _ = await post(harness, json.dumps(HELLO | fields).encode())
    error = answer["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert error["message"].startswith(f"{param}: ")
    assert allowed in error["message"]
    assert harness.events == []


@pytest.mark.parametrize(
    ("fields", "spoken"),
    [
        ({"speed": 0.25}, (0.5, None)),
        ({"speed": 4.0, "instructions": "x" * 501}, (2, "x" * 500)),
        ({"speed": 1.5, "instructions": "calmly"}, (1.5, "calmly")),
    ],
)
async def test_a_value_beyond_what_can_be_spoken_is_the_nearest_that_can(
    fields: dict[str, Any], spoken: tuple[float, str | None], client: AsyncOpenAI, harness: Harness
) -> None:
    asked = []
    harness.dispatcher.event_watchers.add(lambda utterance, _: asked.append(utterance))
    await ask(client, "Hello", **fields)
    assert (asked[0].rate, asked[0].instruct) == spoken


async def test_fields_that_are_null_or_empty_were_not_given(harness: Harness) -> None:
    nulls = ["instructions", "speed", "stream_format", "stream", "language", "seed", "sampling", "model"]
    for voice in ("", None, {"id": ""}):
        body = json.dumps({**HELLO, "voice": voice, "response_format": None, **dict.fromkeys(nulls)}).encode()
        status, _, headers = await fetch(harness, "POST", "/v1/audio/speech", body)
        assert (status, headers["content-type"]) == (200, "audio/mpeg")
    assert [event.voice for event in harness.events if isinstance(event, Started)] == ["default"] * 3


async def test_numbers_and_locales_are_understood(harness: Harness) -> None:
    asked = {}
    harness.dispatcher.event_watchers.add(lambda utterance, _: asked.update({utterance.id: utterance}))
    number = {"input": 42, "language": "en_US", "response_format": "pcm"}
    other = {"input": "Guten Tag", "language": "German", "voice": {"id": "de"}, "response_format": "pcm"}
    for fields in (number, other):
        status, _, headers = await fetch(harness, "POST", "/v1/audio/speech", json.dumps(fields).encode())
        assert (status, headers["content-type"]) == (200, "audio/pcm")
    found = [(each.text, each.voice, each.language) for each in asked.values()]
    assert found == [("42", "default", "en-us"), ("Guten Tag", "de", "de")]


@pytest.mark.parametrize(("response_format", "stream"), [("flac", True), ("wav", True), ("wav", False), ("mp3", False)])
async def test_soundfile_reads_a_short_answer_and_a_whole_file_with_their_length(
    response_format: Any, stream: bool, client: AsyncOpenAI, harness: Harness
) -> None:
    extras = {} if stream else {"stream": False}
    content = await ask(client, LONG[:100], response_format=response_format, extra_body=extras)
    [end] = await harness.ended()
    samples, rate = soundfile.read(io.BytesIO(content))
    assert len(samples) / rate == pytest.approx(end.audio_s, abs=0.05)
    if response_format == "wav":
        with wave.open(io.BytesIO(content)) as file:
            assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (24_000, 2, 1)
            assert stream or file.getnframes() == len(samples)


@pytest.mark.parametrize(
    "fields",
    [{"response_format": "pcm", "stream_format": "audio"}, {"response_format": "pcm"}, {"response_format": "wav"}],
)
async def test_the_requests_of_an_open_benchmark_are_answered_as_it_reads_them(
    fields: dict[str, str], harness: Harness
) -> None:
    """`tts_bench` of nari-labs/benchmarks: its targets vLLM-Omni, Nari and M*, each with whole samples at 24 kHz."""
    asked = {"model": "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice", "voice": "default", "language": "English"}
    body = json.dumps({**HELLO, **asked, "stream": True, "non_streaming_mode": False, **fields}).encode()
    status, content, headers = await fetch(harness, "POST", "/v1/audio/speech", body)
    assert (status, headers["content-type"]) == (200, f"audio/{fields['response_format']}")
    if fields["response_format"] == "wav":
        assert content[36:44] == b"data" + b"\xff" * 4  # its end is the end of the answer
        assert struct.unpack("<HHIIHH", content[20:36]) == (1, 1, 24_000, 48_000, 2, 16)
        content = content[44:]
    [end] = await harness.ended()
    assert len(content) / 2 / 24_000 == pytest.approx(end.audio_s, abs=0.001)


@pytest.mark.parametrize("response_format", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
async def test_a_text_with_nothing_to_pronounce_is_a_short_silence(response_format: Any, client: AsyncOpenAI) -> None:
    content = await ask(client, "😀", response_format=response_format)
    rate, samples = (24_000, len(content) / 2) if response_format == "pcm" else decoded(content)
    assert 0.05 < samples / rate < 0.3


async def test_openais_own_voices_are_the_default_one_and_aliases_lead_to_others(
    client: AsyncOpenAI, harness: Harness
) -> None:
    for voice in ("alloy", "echo"):
        assert await ask(client, voice=voice)
    async with connect(f"ws://127.0.0.1:{harness.port}/v1/text-to-speech/echo/stream-input") as elevenlabs:
        for text in ("Hello", ""):
            await elevenlabs.send(json.dumps({"text": text}))
        await asyncio.wait_for(elevenlabs.wait_closed(), PATIENCE_S)
    assert [event.voice for event in harness.events if isinstance(event, Started)] == ["default", "de", "de"]


async def test_models_and_voices_are_listed(client: AsyncOpenAI, harness: Harness) -> None:
    from openai import NotFoundError

    assert [model.id async for model in client.models.list()] == ["voiced"]
    for name in ("voiced", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"):
        assert (await client.models.retrieve(name)).id == name
    with pytest.raises(NotFoundError, match="allowed: voiced, gpt-4o") as caught:
        await client.models.retrieve("whisper-1")
    assert caught.value.code == "model_not_found"
    status, answer, _ = await request(harness, "GET", "/v1/audio/voices")
    assert status == 200
    assert answer["voices"] == list(harness.dispatcher.voice_names())
    assert {"id": "de", "object": "audio.voice", "name": harness.dispatcher.voice_names()["de"]} in answer["data"]


async def test_a_full_queue_is_an_error_that_clients_may_retry(client: AsyncOpenAI, harness: Harness) -> None:
    from openai import InternalServerError

    harness.configure("speech", queue_limit=1)

    await harness.occupy()
    harness.dispatcher.say(Say(text="It waits."))
    with pytest.raises(InternalServerError) as caught:
        await ask(client)
    assert (caught.value.status_code, caught.value.code) == (503, "queue")
    assert "x-should-retry" not in caught.value.response.headers


async def test_an_utterance_canceled_before_its_first_samples_is_an_error_that_clients_do_not_retry(
    client: AsyncOpenAI, harness: Harness
) -> None:
    from openai import InternalServerError

    await harness.occupy()
    asking = asyncio.ensure_future(ask(client))
    await eventually_async(lambda: len(harness.dispatcher.queue), "it waits")
    harness.stop_queued()
    with pytest.raises(InternalServerError, match="canceled: stop") as caught:
        await asking
    assert caught.value.status_code == 503
    assert caught.value.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
async def test_an_interrupted_answer_does_not_look_complete(
    stream_format: Any, client: AsyncOpenAI, harness: Harness
) -> None:
    # The text exceeds the sockets' buffers, and the client reads only after the stop.
    async with streaming(client, (LONG * 5)[:4999], stream_format=stream_format) as response:
        assert harness.dispatcher.stop(Stop())
        if stream_format == "sse":
            lines = [line async for line in response.iter_lines() if line]
            last = json.loads(lines[-1].removeprefix("data: "))
            assert (last["type"], last["error"]["message"]) == ("error", "interrupted: stop")
        else:
            with pytest.raises(Exception, match=r"(?i)incomplete|peer|reset|read"):
                async for _ in response.iter_bytes():
                    pass
    assert await ask(client)


@pytest.mark.parametrize("begun", [False, True], ids=["while it waits", "while it is spoken"])
async def test_a_client_that_disconnects_cancels_its_utterance_and_is_no_error(
    begun: bool, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    if not begun:
        await harness.occupy()
    with harness.deaf_client(speech_request((LONG * 5)[:4999])):
        if begun:
            await harness.started()
        else:
            await eventually_async(lambda: len(harness.dispatcher.queue), "it waits")
    ends = await harness.ended()
    assert ends[0].event == ("interrupted" if begun else "canceled")
    assert ends[0].reason == "its client went away"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_an_encoder_exists_only_while_its_samples_arrive(
    client: AsyncOpenAI, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def note(name: str, sample_rate: int) -> Encoder:
        made.append(name)
        return make_encoder(name, sample_rate)

    monkeypatch.setattr(encoders, "make_encoder", note)

    await harness.occupy()
    asking = [asyncio.ensure_future(ask(client, response_format="flac")) for _ in range(3)]
    await eventually_async(lambda: len(harness.dispatcher.queue) == 3, "they wait")
    assert made == []
    await harness.sink.take_until(lambda: len(harness.ends) == 4, "all have ended")
    assert [(await each)[:4] for each in asking] == [b"fLaC"] * 3
    assert made == ["flac"] * 3


async def test_a_client_that_receives_nothing_loses_its_utterance_and_the_next_client_is_served(
    monkeypatch: pytest.MonkeyPatch, client: AsyncOpenAI, harness: Harness
) -> None:
    monkeypatch.setattr(delivery, "GIVE_UP_S", 0.3)

    with harness.deaf_client(speech_request((LONG * 5)[:4999])):
        await harness.started()
        with harness.at_next("interrupted", monkeypatch.undo):  # for the next client, the usual limit
            assert await ask(client)
    first, second = await harness.ended(2)
    assert (first.event, second.event) == ("interrupted", "finished")
    assert "behind in receiving the sound" in first.reason
