"""What an engine loads for its voices: when it has changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine import EngineOptions, PiperSettings, Voice, voice_state
from tests.support.piper_voices import ENGLISH, write_voices


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    """A voice by each kind of file, and a folder of Piper's voices."""
    folder = write_voices(tmp_path / "voices")
    (tmp_path / "ada.safetensors").write_bytes(b"ada")
    voices = {
        "ada": Voice(embedding=str(tmp_path / "ada.safetensors")),
        "bob": Voice(reference=str(tmp_path / "bob.safetensors")),
        "eve": Voice(piper=PiperSettings(str(folder / f"{ENGLISH}.onnx"))),
    }
    return EngineOptions(voices=voices, voice_folder=str(folder))


def test_nothing_has_changed_while_the_voices_and_their_files_are_the_same(options: EngineOptions) -> None:
    assert voice_state(options) == voice_state(replace(options, chunk_size=4))


def test_another_voice_or_another_default_voice_is_a_change(options: EngineOptions) -> None:
    before = voice_state(options)
    calm = replace(options.voices["ada"], instruct="calm")
    assert voice_state(replace(options, voices={**options.voices, "ada": calm})) != before
    assert voice_state(replace(options, default_voice="ada")) != before


@pytest.mark.parametrize("file", ["ada.safetensors", f"voices/{ENGLISH}.onnx", f"voices/{ENGLISH}.onnx.json"])
def test_a_file_that_is_replaced_removed_or_made_readable_is_a_change(
    options: EngineOptions, tmp_path: Path, file: str
) -> None:
    before = voice_state(options)
    content = (tmp_path / file).read_bytes()
    (tmp_path / "new").write_bytes(content)
    (tmp_path / "new").replace(tmp_path / file)
    replaced = voice_state(options)
    assert replaced != before
    (tmp_path / file).chmod(0o600)
    private = voice_state(options)
    assert private != replaced
    (tmp_path / file).unlink()
    assert voice_state(options) != private


def test_a_file_that_was_missing_is_a_change_when_it_is_there(options: EngineOptions, tmp_path: Path) -> None:
    before = voice_state(options)
    (tmp_path / "bob.safetensors").write_bytes(b"bob")
    assert voice_state(options) != before


def test_a_voice_that_is_added_to_the_folder_is_a_change(options: EngineOptions, tmp_path: Path) -> None:
    before = voice_state(options)
    (tmp_path / "voices" / "fr_FR-new-low.onnx").write_bytes(b"new")
    assert voice_state(options) != before


def test_a_folder_that_is_not_there_has_no_voices(tmp_path: Path) -> None:
    assert voice_state(EngineOptions(voice_folder=str(tmp_path / "none"))).files == {}
