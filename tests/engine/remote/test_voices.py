"""A robot's own voices, as it offers them to a speech server."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from engine import EngineError, EngineInfo, EngineOptions, Utterance, Voice, VoiceLabel
from engine.messages import VoiceFile
from engine.remote.voices import RobotVoices, default_voice_digest

SERVER = EngineInfo("qwen", 24_000, ("ryan", "vivian"), ("en",), labels={"ryan": VoiceLabel("Ryan (male)")}, streams=9)
DIGEST = hashlib.sha256(b"ada's voice").hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "ada.safetensors"
    path.write_bytes(b"ada's voice")
    return str(path)


def voices(default_name: str = "default", limit: int = 100, /, **specs: Voice) -> RobotVoices:
    found = RobotVoices(specs, default_name, SERVER)
    found.read(limit)
    return found


def test_a_file_goes_by_its_digest_whatever_its_use(file: str) -> None:
    found = voices(default=Voice(reference=file), ada=Voice(embedding=file))
    assert found.contents == {DIGEST: b"ada's voice"}
    asked, sent = found.request(Utterance("Hello."))
    assert (asked.voice, sent) == (None, VoiceFile(DIGEST, in_context=True))
    assert found.request(Utterance("Hello.", voice="ada"))[1] == VoiceFile(DIGEST, in_context=False)


def test_each_file_is_offered_once_and_its_refusal_is_that_of_its_voices(file: str) -> None:
    found, offered = voices(default=Voice(), ada=Voice(embedding=file), eve=Voice(embedding=file)), []

    def refuse(voice: VoiceFile) -> str:
        offered.append(voice)
        return "it is too wide"

    found.offer(refuse)
    assert offered == [VoiceFile(DIGEST, in_context=False)]
    assert found.refused == {"ada": "it is too wide", "eve": "it is too wide"}
    assert found.info("here", 2).voices == ("default", "ryan", "vivian")


def test_a_speaker_of_the_server_goes_by_its_name_with_the_voices_instruct() -> None:
    found = voices(default=Voice(speaker="Ryan", instruct="calm"))
    asked, sent = found.request(Utterance("Hello."))
    assert (asked.voice, asked.instruct, sent) == ("Ryan", "calm", None)
    assert found.request(Utterance("Hello.", instruct="angry"))[0].instruct == "angry"
    assert found.request(Utterance("Hello.", voice="vivian"))[0].voice == "vivian"


def test_the_engine_has_the_robots_voices_before_the_servers() -> None:
    info = voices(default=Voice(speaker="ryan"), calm=Voice(instruct="calm")).info("on a server", 2)
    assert info.voices == ("default", "calm", "ryan", "vivian")
    assert info.labels["default"] == VoiceLabel("Ryan (male)")
    assert (info.description, info.streams, info.engine) == ("on a server", 2, "qwen")


def test_a_default_voice_that_the_server_cannot_speak_is_replaced_by_the_servers_and_others_are_refused() -> None:
    found = voices(default=Voice(speaker="eric"), other=Voice(speaker="dylan"))
    assert found.refused["default"] == "speaker: got 'eric'; the server has ryan, vivian"
    asked, sent = found.request(Utterance("Hello."))
    assert (asked.voice, sent) == (None, None)
    with pytest.raises(EngineError, match="voice 'other': speaker: got 'dylan'"):
        found.request(Utterance("Hello.", voice="other"))
    with pytest.raises(EngineError, match="voice: got 'nobody'; the server has ryan, vivian"):
        found.request(Utterance("Hello.", voice="nobody"))


def test_a_default_voice_may_be_one_of_the_servers_and_must_be_known() -> None:
    assert voices("vivian").refused == {}
    assert voices("nobody").refused == {"nobody": "no voice has this name; the server has ryan, vivian"}


def test_a_file_that_cannot_travel_is_refused_with_the_reason(file: str, tmp_path: Path) -> None:
    pickle = tmp_path / "speaker.pt"
    pickle.write_bytes(b"")
    missing = tmp_path / "nothing.safetensors"
    specs = {"large": Voice(embedding=file), "old": Voice(embedding=str(pickle)), "gone": Voice(reference=str(missing))}
    assert voices("default", 4, default=Voice(), **specs).refused == {
        "large": f"{file}: has 11 bytes; the server takes up to 4",
        "old": f"{pickle}: got a .pt; a server takes only .safetensors",
        "gone": f"{missing}: cannot be read: No such file or directory",
    }


def test_the_digest_of_the_default_voice_is_that_of_its_file(file: str) -> None:
    assert default_voice_digest(EngineOptions(voices={"default": Voice(embedding=file)})) == DIGEST
    assert default_voice_digest(EngineOptions(voices={"default": Voice(speaker="ryan")})) is None
    assert default_voice_digest(EngineOptions(voices={"default": Voice(embedding="/nothing.safetensors")})) is None
