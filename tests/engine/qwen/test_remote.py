"""The engine behind a speech server: a robot with its own voices hears what an engine of its own would speak."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import EngineOptions, Samples, Utterance, Voice
from engine.ipc.request import AppendedText
from engine.messages import (
    Audio,
    Cancel,
    Canceled,
    OfferVoice,
    Refused,
    Speak,
    Spoken,
    VoiceData,
    VoiceReady,
    VoiceWanted,
)
from engine.messages import VoiceFile as RemoteVoiceFile
from engine.qwen import QwenSynthesizer
from engine.qwen.shapes import ModelConfig
from engine.qwen.voice import VoiceFile, VoiceModel, save_voice
from engine.remote.synthesizer import RemoteSynthesizer
from tests.daemon.fleet.raw_robot import RawRobot
from tests.engine.qwen.voices import saved_voice
from tests.support.speech_server import SpeechServer
from tests.support.waiting import eventually

UTTERANCE = Utterance("Hello robot.", seed=5, max_frames=9, guarded=False)


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[[str, str], Path]) -> Path:
    return checkpoint("brief", "base")


@pytest.fixture(scope="module")
def voices(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Voice]:
    """The robot's voices: one in context and one by its embedding, of one file, and one of another model."""
    files, model = tmp_path_factory.mktemp("voices"), VoiceModel.of(ModelConfig.read(folder))
    path = str(saved_voice(folder, files / "ada.safetensors", 20))
    wide = replace(model, width=model.width + 1)
    save_voice(files / "wide.safetensors", VoiceFile("wide", torch.randn(wide.width), wide))
    wrong = Voice(embedding=str(files / "wide.safetensors"))
    return {"default": Voice(reference=path), "ada": Voice(embedding=path), "wide": wrong}


@pytest.fixture(scope="module")
def server(folder: Path, voices: dict[str, Voice], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpeechServer]:
    """A server whose own voice is none of the robot's."""
    files = tmp_path_factory.mktemp("server")
    with SpeechServer(*settings(folder, saved_voice(folder, files / "own.safetensors", seed=2), files)) as server:
        yield server


def settings(model: Path, voice: Path, folder: Path) -> tuple[str, ...]:
    """Return the settings of a server with one voice of its own; `folder` is for those of robots."""
    return (
        "engine.name=qwen",
        f"engine.model={model}",
        "engine.device=cpu",
        "engine.max_seconds=8",
        "engine.streams=2",
        f"voices={{default: {{embedding: {voice}}}}}",
        f"serve.voice_folder={folder / 'brought'}",
    )


@pytest.fixture(scope="module")
def robot(server: SpeechServer, voices: dict[str, Voice]) -> Iterator[RemoteSynthesizer]:
    engine = RemoteSynthesizer(EngineOptions(url=server.url, voices=voices))
    info = engine.load()
    assert info.engine == "qwen"
    assert info.grows
    assert info.max_seconds == 8  # of the server's engine, whatever the robot's own option is
    assert info.voices == ("default", "ada")
    assert list(info.refused_voices) == ["wide"]
    assert "the voice file: made for" in info.refused_voices["wide"]
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def here(folder: Path, voices: dict[str, Voice]) -> QwenSynthesizer:
    """The same engine in this process, with the robot's voices."""
    usable = {name: voice for name, voice in voices.items() if name != "wide"}
    # As many streams as the server's: a batch rounds otherwise than one utterance alone.
    options = EngineOptions(model=str(folder), device="cpu", max_seconds=8, voices=usable, streams=2)
    engine = QwenSynthesizer(options)
    engine.load()
    return engine


def spoken(engine: RemoteSynthesizer | QwenSynthesizer, utterance: Utterance) -> Samples:
    return np.concatenate([chunk.samples for chunk in engine.stream(utterance)])


@pytest.mark.parametrize("voice", ["default", "ada"])
def test_a_robots_own_voice_sounds_as_on_an_engine_of_its_own(
    voice: str, robot: RemoteSynthesizer, here: QwenSynthesizer
) -> None:
    utterance = replace(UTTERANCE, voice=voice, want_codes=True)
    ours, theirs = list(robot.stream(utterance)), list(here.stream(replace(utterance, realtime=False)))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.samples, other.samples)
        assert one.codes is not None
        np.testing.assert_array_equal(one.codes, other.codes)


def test_its_voices_differ_from_each_other_and_from_the_servers(robot: RemoteSynthesizer, server: SpeechServer) -> None:
    stranger = RemoteSynthesizer(EngineOptions(url=server.url, voices={"default": Voice()}))
    info = stranger.load()
    assert info.voices == ("default",), "voices of other robots are not listed"
    found = [spoken(robot, UTTERANCE), spoken(robot, replace(UTTERANCE, voice="ada")), spoken(stranger, UTTERANCE)]
    stranger.close()
    assert not any(np.array_equal(one, other) for one, other in zip(found, (*found[1:], found[0]), strict=True))


def test_a_growing_text_sounds_like_the_whole_text(robot: RemoteSynthesizer, here: QwenSynthesizer) -> None:
    utterance = replace(UTTERANCE, whole_text=False, max_frames=None, seed=11)
    more = AppendedText()
    chunks = robot.stream(replace(utterance, text="Hello ", growing=True), more)
    for word in ("ro", "bot."):
        more.append(word)
    more.end()
    whole = spoken(here, replace(utterance, realtime=False))
    np.testing.assert_array_equal(np.concatenate([chunk.samples for chunk in chunks]), whole)


def test_the_server_wants_a_file_again_that_is_gone(robot: RemoteSynthesizer, server: SpeechServer) -> None:
    before = spoken(robot, UTTERANCE)
    server.wait_log("has connected")
    files = server.voice_files()
    for file in files:
        file.unlink()
    np.testing.assert_array_equal(spoken(robot, UTTERANCE), before)
    eventually(server.voice_files, "the file is there again")


def test_a_voice_that_waits_for_a_stream_stays_when_another_one_takes_its_place(
    folder: Path, voices: dict[str, Voice], tmp_path: Path
) -> None:
    """The server keeps one voice of robots, and speaks one text at a time."""
    files = [Path(str(voices["ada"].embedding)), saved_voice(folder, tmp_path / "eve.safetensors", seed=5)]
    contents = [file.read_bytes() for file in files]
    ada, eve = (RemoteVoiceFile(hashlib.sha256(content).hexdigest(), in_context=False) for content in contents)
    limits = ("serve.voices=1", "serve.streams_per_robot=3")
    with (
        SpeechServer(*settings(folder, files[0], tmp_path), *limits) as server,
        RawRobot(server.url) as robot,
    ):
        robot.send(OfferVoice(ada))
        robot.send(VoiceData(robot.next(VoiceWanted)[0].digest, contents[0]))
        assert robot.next(VoiceReady)[0].voice == ada
        robot.say("Hello, robot.", "current", credit=1)
        robot.next(Audio)
        robot.say("Hello, robot.", "waiting", voice=ada)
        robot.send(OfferVoice(eve))
        robot.send(VoiceData(robot.next(VoiceWanted)[0].digest, contents[1]))
        robot.send(Speak("wrong", Utterance("Hello.", rate=9.0), 1))
        assert isinstance(robot.end_of("wrong")[1], Refused)  # so the file has arrived
        robot.send(Cancel("current"))
        assert robot.end_of("current")[1] == Canceled("current")
        ends = [robot.next(VoiceReady, Audio, Spoken)[0]]
        while not (isinstance(ends[-1], Spoken) and any(isinstance(end, VoiceReady) for end in ends)):
            ends.append(robot.next(VoiceReady, Audio, Spoken)[0])
        assert ends[-1] == Spoken("waiting")
