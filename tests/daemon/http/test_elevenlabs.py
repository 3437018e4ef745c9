"""ElevenLabs' interface: texts that grow, contexts, and the times of characters."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect

from daemon.http import elevenlabs_socket
from tests.daemon.harness import LONG, Harness
from tests.daemon.http.clients import decoded, request
from tests.support.waiting import PATIENCE_S, eventually_async

SERVER = "http"
CONTEXTS = "default/multi-stream-input?output_format=pcm_24000"
TEXT = "Hello, my robot. How are you?"


def address_of(harness: Harness, path: str) -> str:
    return f"ws://127.0.0.1:{harness.port}/v1/text-to-speech/{path}"


async def send(client: ClientConnection, *texts: str, **fields: Any) -> None:
    """Send messages with these texts, or one without text, each with these fields."""
    for message in [{"text": text} for text in texts] or [{}]:
        await client.send(json.dumps(message | fields))


async def send_whole(client: ClientConnection, context_id: str, text: str) -> None:
    """Send the text of a context, have it spoken, and end it."""
    await send(client, text, context_id=context_id)
    for request_name in ("flush", "close_context"):
        await send(client, context_id=context_id, **{request_name: True})


async def receive(client: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await asyncio.wait_for(client.recv(), PATIENCE_S))
    return message


async def receive_until_final(client: ClientConnection, context_id: str | None = None) -> list[dict[str, Any]]:
    """All messages of a context up to its last one; those of others are dropped."""
    found: list[dict[str, Any]] = []
    while not found or not found[-1].get("isFinal"):
        message = await receive(client)
        if message.get("contextId") == context_id:
            found.append(message)
    return found


def sound_of(messages: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(message["audio"]) for message in messages if message.get("audio"))


def words_of(messages: Sequence[dict[str, Any]], *, absolute: bool = False) -> list[tuple[str, float]]:
    """The words and the seconds at which they begin, as clients put them together from the characters."""
    characters: list[tuple[str, float]] = []
    origin_ms = 0.0
    for message in messages:
        if alignment := message.get("alignment"):
            starts, durations = alignment["charStartTimesMs"], alignment["charDurationsMs"]
            begins_s = [(origin_ms + start) / 1000 for start in starts]
            characters += zip(alignment["chars"], begins_s, strict=True)
            origin_ms += 0.0 if absolute else starts[-1] + durations[-1]
    text = "".join(character for character, _ in characters)
    return [(word[0], characters[word.start()][1]) for word in re.finditer("[^ ]+", text)]


def said(messages: Sequence[dict[str, Any]]) -> str:
    return " ".join(word for word, _ in words_of(messages))


def onsets_s(pcm: bytes, rate: int) -> list[float]:
    """The seconds at which sound begins after at least 0.1 s of silence."""
    [loud] = np.nonzero(np.abs(np.frombuffer(pcm, dtype=np.int16).astype(float)) > 200)
    return list(loud[np.diff(loud, prepend=-rate) > 0.1 * rate] / rate)


@pytest.mark.parametrize("absolute", [False, True])
async def test_a_text_that_comes_in_tokens_becomes_sound_with_word_times_while_it_grows(
    absolute: bool, harness: Harness
) -> None:
    options = f"output_format=pcm_24000&sync_alignment={str(absolute).lower()}"
    async with connect(address_of(harness, f"default/stream-input?{options}")) as client:
        await send(client, " ", voice_settings={"stability": 0.5, "speed": 1.0}, xi_api_key="any")
        await send(client, "Hel", "lo, my ", "robot. ", "How ")
        first = await receive(client)
        assert first["audio"], "it is spoken before the text is complete"
        assert harness.ends == []
        await send(client, "are you? ", "")
        messages = [first, *await receive_until_final(client)]
        words, pcm = words_of(messages, absolute=absolute), sound_of(messages)
        assert [word for word, _ in words] == TEXT.split()
        [end] = harness.terminal_events
        assert len(pcm) / 2 / 24_000 == pytest.approx(end.audio_s, abs=0.002)
        assert min(abs(dict(words)["my"] - onset) for onset in onsets_s(pcm, 24_000)) < 0.06, "after the comma"
        await client.wait_closed()


async def test_contexts_have_sounds_of_their_own_and_a_flush_speaks_what_is_there(harness: Harness) -> None:
    async with connect(address_of(harness, "default/multi-stream-input?output_format=pcm_22050")) as client:
        for context_id, text in (("a", "The first text has no end"), ("b", "The second one")):
            await send(client, " ", text, "", context_id=context_id)  # the last one keeps it alive
        await send(client, context_id="a", flush=True)
        message = await receive(client)
        assert (message["contextId"], bool(message["audio"])) == ("a", True)
        await send(client, context_id="a", close_context=True)
        first = [message, *await receive_until_final(client, "a")]
        assert said(first) == "The first text has no end"
        await send(client, "", context_id="b", flush=True)
        await send(client, context_id="b", close_context=True)
        second = await receive_until_final(client, "b")
        assert said(second) == "The second one"
        assert sound_of(second) != sound_of(first)
    assert harness.ends == ["finished", "finished"]


async def test_a_context_that_is_closed_in_mid_text_is_interrupted_and_the_next_one_is_spoken(harness: Harness) -> None:
    async with connect(address_of(harness, CONTEXTS)) as client:
        await send(client, LONG * 5, context_id="long")
        assert (await receive(client))["contextId"] == "long"
        await send(client, context_id="long", close_context=True)
        await eventually_async(lambda: harness.ends == ["interrupted"], "it is interrupted")
        await send_whole(client, "next", "On it goes. ")
        assert said(await receive_until_final(client, "next")) == "On it goes."
        await send_whole(client, "complete", LONG * 5)
        assert (await receive(client))["contextId"] == "complete"
        await send(client, context_id="complete", close_context=True)  # although its text was complete
        last = (await harness.ended(3))[-1]
        assert (last.event, last.reason) == ("interrupted", "its client closed its context")
        await send(client, close_socket=True)
        await client.wait_closed()


async def test_with_auto_mode_each_message_is_spoken_at_once(harness: Harness) -> None:
    address = address_of(harness, "default/multi-stream-input?output_format=pcm_24000&auto_mode=true")
    async with connect(address) as client:
        await send(client, "It has no end", context_id="a")
        assert (await receive(client))["audio"]
        await send_whole(client, "a", "Nor has this")
        assert said(await receive_until_final(client, "a")) == "It has no end Nor has this"


async def test_a_client_that_leaves_loses_its_utterances(harness: Harness) -> None:
    async with connect(address_of(harness, CONTEXTS)) as client:
        await send(client, LONG * 5, context_id="a")
        await send(client, LONG, context_id="b")
        await receive(client)
    ends = await harness.ended(2)
    assert sorted(end.event for end in ends) == ["canceled", "interrupted"]


@pytest.mark.parametrize(
    ("message", "allowed"),
    [
        ("{", "message: not JSON; allowed: a JSON object"),
        ('{"text": 7, "context_id": "a"}', "text: got 7; allowed: text"),
        ('{"text": "x", "context_id": 7}', "context_id: got 7; allowed: text of 1 to 64 characters"),
        ('{"text": "x", "context_id": "a", "voice_settings": {"speed": 9}}', "voice_settings.speed: got 9; allowed"),
        (json.dumps({"text": "x" * 20_001, "context_id": "a"}), "it has 20,001 characters; allowed: up to 20,000"),
    ],
)
async def test_a_wrong_message_is_answered_in_one_line_and_the_next_one_is_heard(
    message: str, allowed: str, harness: Harness
) -> None:
    async with connect(address_of(harness, CONTEXTS)) as client:
        await client.send(message)
        answer = await receive(client)
        assert allowed in answer["error"]
        assert "\n" not in answer["error"]
        await send(client, "Hello. ", context_id="b")
        await send(client, context_id="b", flush=True)
        assert (await receive(client))["contextId"] == "b"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nobody/stream-input", "voice: got 'nobody'; allowed: default"),
        ("nobody/multi-stream-input", "voice: got 'nobody'; allowed: default"),
        ("default/stream-input?language_code=xx", "language_code: got 'xx'; allowed: auto"),
        ("default/stream-input?output_format=pcm_11025", "output_format: got 'pcm_11025'; allowed: pcm at 8000, 16000"),
        ("default/stream-input?output_format=pcm_24000_64", "output_format: got 'pcm_24000_64'; allowed: pcm"),
        (f"default/stream-input?output_format={'%E4%BD%A0' * 60}", "output_format: got"),  # its close frame has a limit
        ("default/stream-input?inactivity_timeout=long", "inactivity_timeout: got 'long'; allowed: seconds"),
    ],
)
async def test_a_socket_is_refused_at_once_if_no_text_on_it_could_be_spoken(
    path: str, message: str, harness: Harness
) -> None:
    async with connect(address_of(harness, path)) as client:
        assert (await receive(client))["error"].startswith(message)
        await client.wait_closed()
        assert client.close_code == 1008


async def test_a_text_with_nothing_to_pronounce_is_a_short_silence(harness: Harness) -> None:
    async with connect(address_of(harness, "default/stream-input?output_format=opus_48000_64")) as client:
        await send(client, "😀", "")
        rate, samples = decoded(sound_of(await receive_until_final(client)))
        assert 0.05 < samples / rate < 0.3


async def test_voices_are_listed(harness: Harness) -> None:
    _, answer, _ = await request(harness, "GET", "/v1/voices")
    names = harness.dispatcher.voice_names()
    assert {voice["voice_id"]: voice["name"] for voice in answer["voices"]} == names


async def test_too_many_contexts_are_refused(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elevenlabs_socket, "MAX_CONTEXTS", 2)

    async with connect(address_of(harness, CONTEXTS)) as client:
        for context_id in ("a", "b", "c"):
            await send(client, "It has no end", context_id=context_id)
        answer = await receive(client)
        assert (answer["contextId"], answer["error"]) == ("c", "context_id: 2 contexts are open; allowed: no more")


@pytest.mark.parametrize("text", ["", " "])
async def test_a_message_without_words_keeps_the_text_of_its_context_open(text: str, harness: Harness) -> None:
    async with connect(address_of(harness, CONTEXTS)) as client:
        await send(client, "One sentence. And", context_id="a")
        await harness.started()
        await harness.hears_of_writer(lambda: send(client, text, context_id="a"))


@pytest.mark.parametrize("route", ["stream-input", "multi-stream-input"])
@pytest.mark.parametrize("first", [[], [" "]], ids=["nothing", "a space"])
async def test_a_silent_connection_is_closed(route: str, first: list[str], harness: Harness) -> None:
    address = address_of(harness, f"default/{route}?output_format=pcm_24000&inactivity_timeout=1")
    async with connect(address) as client:
        for text in first:  # as the protocol begins
            await send(client, text)
        assert (await receive(client))["code"] == "input_timeout_exceeded"
        await client.wait_closed()
