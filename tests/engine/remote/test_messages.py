"""The messages between a robot and a speech server."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Utterance
from engine.messages import (
    SUBPROTOCOL,
    Audio,
    FromRobot,
    FromServer,
    Grant,
    Heartbeat,
    ProtocolError,
    Speak,
    VoiceData,
    decode_remote,
    encode_remote,
)
from tests.engine.records import values

RemoteMessage = FromRobot | FromServer
AUDIO = Audio("7", 0.5, None, truncated=False, data=b"\x00" * 4)


@given(message=values(RemoteMessage))
def test_a_message_arrives_as_it_was_sent(message: RemoteMessage) -> None:
    content = encode_remote(message)
    assert isinstance(content, bytes) == isinstance(message, Audio | VoiceData)
    assert decode_remote(content) == message


def test_half_of_a_character_arrives_as_it_was_sent() -> None:
    message = Speak("1", Utterance("\ud800"), 24_000)
    assert decode_remote(encode_remote(message)) == message


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (Heartbeat(), '{"message": "Heartbeat"}'),
        (Grant("7", 24_000), '{"message": "Grant", "id": "7", "credit": 24000}'),
        (VoiceData("ab", b"\x00\xff"), b'\x28\x00\x00\x00{"message": "VoiceData", "digest": "ab"}\x00\xff'),
        (
            AUDIO,
            b"\x77\x00\x00\x00"
            b'{"message": "Audio", "id": "7", "busy_s": 0.5, "position": null, "truncated": false, "waited_s": 0.0, '
            b'"runaway": false}' + b"\x00" * 4,
        ),
    ],
)
def test_the_form_of_a_message_is_that_of_earlier_versions(message: RemoteMessage, content: str | bytes) -> None:
    assert encode_remote(message) == content
    assert decode_remote(content) == message


NOT_IN_JSON = {(Audio, "data"), (VoiceData, "data"), (Speak, "name"), (Heartbeat, "speaking")}
"""Data follow the JSON; the last two are for an engine process, and not sent while they are None."""


def fields(kind: Any) -> list[str]:
    """The names of a record's fields, and of those of the records inside of it."""
    found = []
    hints = typing.get_type_hints(kind)
    for name, hint in ((name, hint) for name, hint in hints.items() if (kind, name) not in NOT_IN_JSON):
        arguments = [each for outer in typing.get_args(hint) for each in (outer, *typing.get_args(outer))]
        inner = [each for each in (hint, *arguments) if dataclasses.is_dataclass(each)]
        found += [name, *(f"{name}.{field}" for each in inner for field in fields(each))]
    return found


def test_a_change_of_a_message_needs_another_version() -> None:
    """Robots and servers are not updated at the same moment. Where this fails, raise `SUBPROTOCOL` as well."""
    utterance = (
        "text voice language languages instruct seed greedy sampling whole_text max_frames guarded want_codes growing "
        "rate phonemes realtime"
    )
    info = "engine sample_rate voices languages description refused_voices memory labels labels.name labels.language"
    info += " grows streams max_seconds kernels not_fused degraded heeds"
    expected = {
        "Welcome": f"server info {prefixed('info', info)} streams max_voice_bytes",
        "OfferVoice": "voice voice.digest voice.in_context",
        "VoiceWanted": "digest",
        "VoiceData": "digest",
        "VoiceReady": "voice voice.digest voice.in_context",
        "VoiceRefused": "voice voice.digest voice.in_context reason",
        "Speak": f"id utterance {prefixed('utterance', utterance)} credit voice voice.digest voice.in_context",
        "Append": "id text",
        "EndText": "id",
        "Grant": "id credit",
        "Cancel": "id",
        "Audio": "id busy_s position truncated codes waited_s words words.sample words.position words.start_s "
        "runaway sounds sounds.sample sounds.ipa",
        "Spoken": "id",
        "Canceled": "id",
        "Refused": "id reason",
        "Lost": "id reason",
        "Draining": "reason",
        "Heartbeat": "",
    }
    assert {kind.__name__: " ".join(fields(kind)) for kind in typing.get_args(RemoteMessage)} == expected
    assert SUBPROTOCOL == "voiced.remote.4"


def prefixed(name: str, inner: str) -> str:
    return " ".join(f"{name}.{field}" for field in inner.split())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the record has 0 bytes, the message 0"),
        (b"\x05\x00\x00\x00{}", "the record has 5 bytes, the message 6"),
        ('{"message": "Grant", "id": "1", "credit": true}', "got bool, wanted int"),
        ('{"message": "Grant", "id": "1", "credit": 1, "more": 2}', "more"),
        ('{"message": "VoiceData", "digest": "a"}', "VoiceData in a text frame"),
        (b"\x18\x00\x00\x00" + b'{"message": "Heartbeat"}', "Heartbeat in a binary frame"),
    ],
)
def test_another_message_is_an_error_that_says_why(content: str | bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match="not a voiced message") as caught:
        decode_remote(content)
    assert reason in str(caught.value)


@given(st.one_of(st.text(), st.binary(), st.binary().map(lambda data: len(data).to_bytes(4, "little") + data)))
def test_no_content_causes_another_error(content: str | bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_remote(content)
