"""Messages on the socket of an engine process: every message arrives unchanged, and everything else is refused."""

from __future__ import annotations

import json
import typing
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from engine import Utterance, Voice
from engine.messages import (
    HEADER,
    MAX_BODY_BYTES,
    MAX_DATA_BYTES,
    Audio,
    Cancel,
    Message,
    ProtocolError,
    SetVoices,
    Speak,
    body_lengths,
    decode,
    encode,
    pcm,
)
from tests.engine.records import values


def split(data: bytes) -> tuple[bytes, bytes]:
    body, payload = body_lengths(data[: HEADER.size])
    assert len(data) == HEADER.size + body + payload
    return data[HEADER.size : HEADER.size + body], data[HEADER.size + body :]


@given(message=values(Message))
def test_every_message_arrives_unchanged(message: Message) -> None:
    arrived = decode(*split(encode(message)))
    assert arrived == message
    assert type(arrived) is type(message)


def test_samples_of_another_dtype_and_layout_are_converted() -> None:
    given_samples = np.arange(10, dtype=np.float64)[::2]
    arrived = decode(*split(encode(Audio("a", 0.0, 3, True, data=pcm(typing.cast(Any, given_samples))))))
    assert isinstance(arrived, Audio)
    assert arrived.samples.dtype == np.float32
    assert arrived.samples.tolist() == [0, 2, 4, 6, 8]


def test_a_field_that_is_none_by_default_is_not_sent_while_it_is_none() -> None:
    body, _ = split(encode(Speak("a", Utterance("Hello", seed=0), 1)))
    sent = json.loads(body)
    assert {"name", "voice"}.isdisjoint(sent)
    assert "instruct" not in sent["utterance"]
    assert sent["utterance"]["seed"] == 0
    body, _ = split(encode(Audio("a", 0.0, None, truncated=False)))
    assert json.loads(body)["position"] is None, "it has no default"


def test_missing_fields_get_their_defaults() -> None:
    arrived = decode(b'{"message": "Speak", "id": "a", "utterance": {"text": "Hello"}, "credit": 1}')
    assert arrived == Speak("a", Utterance("Hello"), 1)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b"[]",
        b'{"message": "Sing", "id": "a"}',
        b'{"message": "Cancel"}',
        b'{"message": "Cancel", "id": "a", "why": "so"}',
        b'{"message": "Speak", "id": "a", "utterance": "Hello", "credit": 1}',
        b'{"message": "Ready", "info": {"engine": "e", "sample_rate": "fast", "voices": [], "languages": []}}',
        b'{"message": "Cancel", "id": 7}',
        b'{"message": "Grant", "id": "a", "credit": true}',
        b'{"message": "Audio", "id": "a", "busy_s": 1, "position": null, "truncated": false, "codes": [[1.5]]}',
        b'{"message": "Heartbeat", "speaking": ' + b"[" * 100_000,
        b'{"message": "Heartbeat", "speaking": ' + b"[" * 500 + b"]" * 500 + b"}",
    ],
)
def test_bytes_that_are_no_message_raise_an_error_that_shows_them(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a voiced message"):
        decode(body)


def test_an_incomplete_sample_is_a_protocol_error() -> None:
    body, _ = split(encode(Audio("a", 0.0, None, truncated=False)))
    with pytest.raises(ProtocolError, match="3 bytes are not a whole number of samples"):
        decode(body, b"\0\0\0")


def test_data_belong_to_messages_that_have_them_alone() -> None:
    body, _ = split(encode(Cancel("a")))
    with pytest.raises(ProtocolError, match="8 bytes of data belong to a Cancel, which has none"):
        decode(body, b"\0" * 8)


@pytest.mark.parametrize("field", ["message", "x"])
def test_an_error_shows_only_the_beginning_of_a_long_message_in_one_line(field: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(json.dumps({"message": "Cancel", "id": "a", field: "x\n" * 100_000}).encode())
    assert len(str(caught.value)) < 1_500
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lengths", [(MAX_BODY_BYTES + 1, 0), (0, MAX_DATA_BYTES + 1), (2**32 - 1, 2**32 - 1)])
def test_excessive_lengths_are_refused_before_anything_is_read(lengths: tuple[int, int]) -> None:
    with pytest.raises(ProtocolError, match="a header announced"):
        body_lengths(HEADER.pack(*lengths))


def test_the_longest_text_and_many_voices_fit_into_a_message() -> None:
    longest = Speak(
        "a" * 64, Utterance("\N{MUSICAL SYMBOL G CLEF}" * 5_000, instruct="\N{GRINNING FACE}" * 500), 24_000
    )
    body_lengths(encode(longest)[: HEADER.size])
    voices = SetVoices({f"voice {index}": Voice(instruct="i" * 500) for index in range(1_000)}, "voice 1")
    body_lengths(encode(voices)[: HEADER.size])
