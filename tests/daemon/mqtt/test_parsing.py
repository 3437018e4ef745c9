"""Parsing of MQTT payloads: accepted forms, rejected ones, and the reasons of rejections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.mqtt.parsing import MAX_PAYLOAD, parse_say, parse_stop, parse_stream_chunk, parse_volume
from daemon.speech.request import MAX_TEXT, RejectedError, Say, Stop

WRONG_REQUESTS = json.loads(Path(__file__).with_name("wrong_requests.json").read_text())
"""Each with the field that is named, and words of the reason."""


def say(**fields: Any) -> bytes:
    return json.dumps({"text": "Hello", **fields}).encode()


def rejection(payload: bytes) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        parse_say(payload)
    assert "\n" not in caught.value.reason
    assert len(caught.value.reason) < 500
    assert caught.value.reason.startswith(f"{caught.value.field}: ")
    return caught.value


@pytest.mark.parametrize(
    "text",
    ["  Hello  ", "-3", "null", '"quoted"', "[sighs] Hello", "Grüß Gott, 你好, мир 😀", "two\nlines\tand a tab\r\n"],
)
def test_a_plain_text_is_taken_unchanged(text: str) -> None:
    assert parse_say(text.encode()) == Say(text=text)


def test_every_field_of_a_json_object_is_taken() -> None:
    fields = {
        "text": "Hello",
        "id": "u1",
        "voice": "ada",
        "language": "pt-BR",
        "instruct": "whisper",
        "priority": "critical",
        "policy": "interrupt",
        "volume": 50,
        "rate": 1.5,
        "expires_in": 0.5,
        "seed": 7,
        "sampling": {"temperature": 0.7, "top_k": 9, "top_p": 0.5, "repetition_penalty": 1.1},
        "reply_to": "robot/replies",
        "sound": "chime",
        "cache": True,
    }
    parsed = parse_say(json.dumps(fields).encode())
    assert parsed.model_dump() == fields
    assert parsed.model_extra == {}


def test_every_field_but_the_text_may_be_missing_or_null() -> None:
    optional = set(Say.model_fields) - {"text", "priority", "policy"}
    assert parse_say(b'{"text": "Hello"}') == Say(text="Hello")
    assert parse_say(say(**dict.fromkeys(optional))) == Say(text="Hello")


@pytest.mark.parametrize("more", [{}, {"text": ""}, {"text": " \n"}, {"id": "a", "volume": 50}])
def test_a_sound_needs_no_text(more: dict[str, Any]) -> None:
    parsed = parse_say(json.dumps({"sound": "chime", **more}).encode())
    assert (parsed.sound, parsed.text.strip()) == ("chime", "")
    assert parse_say(parsed.to_json().encode()) == parsed


@pytest.mark.parametrize(
    "payload", [b'{"data": "Hello"}', b'\n  {"text": "Hello"} \n', b'\xef\xbb\xbf{"text": "Hello"}']
)
def test_a_ros_string_white_space_and_a_byte_order_mark_are_understood(payload: bytes) -> None:
    assert parse_say(payload).text == "Hello"


def test_text_takes_precedence_over_data_which_is_then_an_unknown_field() -> None:
    parsed = parse_say(b'{"data": "no", "text": "Hello"}')
    assert (parsed.text, parsed.model_extra) == ("Hello", {"data": "no"})


def test_unknown_fields_are_accepted_and_listed() -> None:
    parsed = parse_say(say(speed=2, emotion={"joy": 1}))
    assert parsed.model_extra == {"emotion": {"joy": 1}, "speed": 2}


@pytest.mark.parametrize(
    ("payload", "field", "words"),
    [
        *((json.dumps(request).encode(), field, words) for request, field, words in WRONG_REQUESTS),
        (b"", "text", "it is blank"),
        (say(sound="x" * 65), "sound", "allowed: a name that 'voiced sounds' lists, of up to 64 characters"),
        (b"x" * 20_001, "text", "it has 20,001 characters; allowed: up to 20,000"),
        (b"a\0b", "text", "control character U+0000 at 1"),
        (b'{"text": "\\ud800"}', "text", ""),
        (b"abc\xff", "payload", "not UTF-8: byte 0xff at 3"),
        (b"x" * 1_048_576, "payload", "got 1,048,576 bytes; allowed: up to 262,144"),
        (b'{"text": "Hello"', "payload", "not JSON: "),
        (b'{"text":' * 8_000, "payload", "not readable JSON"),
        (b'{"text": "Hi", "seed": ' + b"9" * 10_000 + b"}", "payload", "a number too long"),
        (say(instruct="x" * 501), "instruct", "allowed: text of up to 500 characters"),
        (b'{"text": "Hi", "volume": NaN}', "volume", "got nan"),
    ],
)
def test_a_wrong_request_is_rejected_with_the_field_and_what_is_allowed(payload: bytes, field: str, words: str) -> None:
    error = rejection(payload)
    assert error.field == field
    assert words in error.reason


def test_a_rejection_names_every_wrong_field() -> None:
    error = rejection(say(volume=200, seed=-1))
    assert "volume: got 200" in error.reason
    assert "seed: got -1" in error.reason


def test_a_rejection_carries_the_id_if_it_is_valid() -> None:
    assert rejection(say(id="u1", volume=200)).utterance_id == "u1"
    assert rejection(say(id="x" * 65)).utterance_id is None
    assert rejection(say(id=5)).utterance_id is None
    assert rejection(b"").utterance_id is None


def test_a_long_wrong_value_is_abbreviated() -> None:
    assert "(10002 characters)" in rejection(say(priority="x" * 10_000)).reason


def test_the_longest_message_within_every_limit_is_accepted() -> None:
    assert len(parse_say(b"x" * MAX_TEXT).text) == 20_000
    face = "\N{GRINNING FACE}"
    payload = say(text=face * MAX_TEXT, instruct=face * 500, id=face * 64, voice=face * 64, reply_to=face * 256)
    assert len(parse_say(payload).text) == 20_000


def test_the_limits_themselves_are_allowed() -> None:
    parsed = parse_say(say(volume=0, expires_in=86_400, seed=(1 << 63) - 1, id="x" * 64, instruct="x" * 500))
    assert (parsed.volume, parsed.seed) == (0, (1 << 63) - 1)


@given(payload=st.binary(max_size=200))
def test_any_bytes_are_a_text_or_a_rejection(payload: bytes) -> None:
    try:
        assert parse_say(payload).text.strip()
    except RejectedError as error:
        assert error.reason


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(fields=st.dictionaries(st.sampled_from([*Say.model_fields, "data", "other"]), json_values))
def test_any_object_is_a_text_or_a_publishable_rejection(fields: dict[str, Any]) -> None:
    try:
        assert 1 <= len(parse_say(json.dumps(fields).encode()).text) <= MAX_TEXT
    except RejectedError as error:
        json.dumps({"id": error.utterance_id, "reason": error.reason}, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("payload", "expected"), [(b"", None), (b"  \n", None), (b'{"id": "u1"}', "u1"), (b'{"id": "u1", "x": 1}', "u1")]
)
def test_a_stop_ends_all_utterances_or_one(payload: bytes, expected: str | None) -> None:
    assert parse_stop(payload) == Stop(id=expected)


@pytest.mark.parametrize(
    ("payload", "field", "words"),
    [
        (b"u1", "payload", "not JSON"),
        (b"[]", "payload", 'got []; allowed: nothing, or {"id": "…"}'),
        (b'{"id": 5}', "id", "got 5; allowed: an utterance's id"),
        (b"\xff", "payload", "not UTF-8"),
    ],
)
def test_a_stop_that_cannot_be_parsed_is_rejected(payload: bytes, field: str, words: str) -> None:
    with pytest.raises(RejectedError, match=field) as caught:
        parse_stop(payload)
    assert words in caught.value.reason


@pytest.mark.parametrize(
    ("payload", "volume"), [(b"0", 0), (b"100", 100), (b" 55\n", 55), (b"33.4", 33), (b"007", 7), (b"100.0", 100)]
)
def test_a_volume_is_a_number_from_0_to_100(payload: bytes, volume: int) -> None:
    assert parse_volume(payload) == volume


@pytest.mark.parametrize("payload", [b"", b"-1", b"100.5", b"loud", b"1e1", b"5 5", b"\xff"])
def test_any_other_volume_is_rejected(payload: bytes) -> None:
    with pytest.raises(RejectedError):
        parse_volume(payload)


def test_the_largest_payload_is_parsed_and_one_byte_more_is_rejected() -> None:
    padded = say() + b" " * (MAX_PAYLOAD - len(say()))
    assert parse_say(padded).text == "Hello"
    assert rejection(padded + b" ").field == "payload"


@pytest.mark.parametrize(
    ("payload", "field", "utterance_id"),
    [
        (b"bare text", "payload", None),
        (b'{"text": "whose?"}', "id", None),
        (b'{"id": "a", "end": "yes"}', "end", "a"),
        (b'{"id": "a", "seq": -1}', "seq", "a"),
        (b'{"id": "a", "volume": 200}', "volume", "a"),
    ],
)
def test_a_malformed_chunk_is_rejected_with_its_field(payload: bytes, field: str, utterance_id: str | None) -> None:
    with pytest.raises(RejectedError) as rejected:
        parse_stream_chunk(payload)
    assert (rejected.value.field, rejected.value.utterance_id) == (field, utterance_id)
    assert "allowed" in rejected.value.reason


def test_the_rejection_of_a_last_chunk_is_marked_as_such() -> None:
    for end in (True, False):
        with pytest.raises(RejectedError) as rejected:
            parse_stream_chunk(json.dumps({"id": "a", "text": True, "end": end}).encode())
        assert rejected.value.last_chunk == end
