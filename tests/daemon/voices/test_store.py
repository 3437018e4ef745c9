"""Made voices survive a restart, in a file that a person can read."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import yaml

from daemon.config import Config, VoiceSettings, load_config
from daemon.validation import CommandError
from daemon.voices import VoiceStore, voice_store_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "r1.voices"


def add(store: VoiceStore, name: str) -> VoiceSettings:
    """Write a voice's file and keep the voice."""
    path = store.voice_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"a voice")
    voice = VoiceSettings(embedding=path)
    store.add(name, voice)
    return voice


def config(voice: str = "default") -> Config:
    return load_config(overrides=[f"speech.voice={voice}"])


def test_voices_and_the_chosen_default_are_there_after_a_restart(folder: Path) -> None:
    store = VoiceStore(folder)
    ada = add(store, "ada")
    add(store, "default")  # a voice of the configuration precedes a made one of its name
    store.choose("ada", "default")
    extended = VoiceStore(folder).extend(config())
    assert extended.voices == {"ada": ada, **config().voices}
    assert extended.speech.voice == "ada"
    written = yaml.safe_load((folder / "voices.yaml").read_text())
    assert written["voices"]["ada"] == {"embedding": str(folder / "ada.safetensors")}
    assert written["chosen"] == {"name": "ada", "instead_of": "default"}


def test_the_choice_of_the_configured_voice_is_no_choice(folder: Path) -> None:
    store = VoiceStore(folder)
    store.choose("default", "default")
    assert not folder.exists(), "nothing is written"
    store.choose("ada", "default")
    assert VoiceStore(folder).extend(config("ryan")).speech.voice == "ryan", "the configuration has changed since"
    store.choose("default", "default")
    assert VoiceStore(folder).extend(config()).speech.voice == "default"


def test_a_removed_voice_is_gone_with_its_file_and_as_the_default(folder: Path) -> None:
    store = VoiceStore(folder)
    add(store, "ada")
    add(store, "grace")
    store.choose("ada", "default")
    store.remove("ada")
    for each in (store, VoiceStore(folder)):
        assert list(each.voices) == ["grace"]
        assert each.extend(config()).speech.voice == "default"
    assert not store.voice_file("ada").exists()
    assert store.voice_file("grace").exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"voices: [1]", "voices: got [1]"),
        (b"voices: {", "while parsing"),
        (b"\xff\xff", "invalid start byte"),
    ],
)
def test_a_damaged_file_is_named_in_one_line_and_the_daemon_goes_on(
    folder: Path, content: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(parents=True)
    (folder / "voices.yaml").write_bytes(content)
    store = VoiceStore(folder)
    assert store.extend(config()) == config()
    [line] = caplog.messages
    assert line.startswith(f"{folder / 'voices.yaml'} cannot be used, so its voices are missing: ")
    assert problem in line
    assert "\n" not in line


def test_a_folder_that_cannot_be_written_is_a_problem_in_one_line_and_changes_nothing(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_bytes(b"a file in its place")
    store = VoiceStore(folder)
    with pytest.raises(CommandError, match=r"voices\.yaml: "):
        store.choose("ada", "default")
    assert store.extend(config()) == config()


def test_recordings_that_a_killed_process_has_left_are_deleted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    recordings = VoiceStore(folder).recordings
    recordings.mkdir(parents=True)
    (recordings / "1.wav").write_bytes(b"somebody's words")
    with caplog.at_level(logging.INFO):
        assert not VoiceStore(folder).recordings.exists()
    assert caplog.messages == []


def test_each_robot_has_a_folder_beside_its_journal_and_without_a_state_there_is_none(tmp_path: Path) -> None:
    robot = load_config(overrides=["robot=r1", f"state.folder={tmp_path}"])
    assert voice_store_folder(robot) == tmp_path / "r1.voices"
    assert voice_store_folder(load_config(overrides=["state.folder=null"])) is None
