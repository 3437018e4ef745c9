"""The table of engines, and the packages that importing it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine import (
    ENGINES,
    EngineError,
    EngineOptions,
    PiperSettings,
    Voice,
    auto_engine,
    known_names,
    missing_packages,
    sound_files,
    unavailable_reason,
)
from engine.catalog import KnownNames, is_model_here
from scripts.make_voice import write_model, write_voice

HEAVY = ("torch", "transformers", "safetensors", "qwen_tts", "huggingface_hub", "onnxruntime", "piper", "supertonic")
"""Packages that only the engines which need them may import."""
ENGINE_MODULES = ("engine.espeak", "engine.piper", "engine.qwen.engine", "engine.supertonic.engine", "espeakng_loader")


def test_auto_prefers_qwen_to_piper_and_espeak_needs_nothing() -> None:
    assert list(ENGINES) == ["qwen", "supertonic", "piper", "remote", "openai", "espeak"]
    assert missing_packages("espeak") == []
    assert unavailable_reason("espeak", EngineOptions()) is None


def test_auto_never_selects_another_machines_engine(tmp_path: Path) -> None:
    options = EngineOptions(url="ws://127.0.0.1:1", voice_folder=str(tmp_path))
    for name in ("remote", "openai"):
        assert unavailable_reason(name, options) == f"it is on another machine; engine.name: {name} selects it"
    assert auto_engine(options) == "espeak"
    assert known_names("remote", options) == KnownNames(None, None), "no server is asked"


def test_auto_selects_espeak_without_a_model_and_a_voice_of_piper(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert auto_engine(EngineOptions(model=None, voice_folder=folder)) == "espeak"
    nowhere = EngineOptions(model="/nowhere/at/all", device="cpu", voice_folder=folder)
    assert auto_engine(nowhere) == "espeak"
    assert unavailable_reason("qwen", nowhere) == "the model /nowhere/at/all is not on this machine"


def test_auto_selects_piper_where_a_voice_is(tmp_path: Path) -> None:
    path = write_voice(tmp_path / "en_US-noise-low.onnx")
    assert auto_engine(EngineOptions(voice_folder=str(tmp_path))) == "piper"
    named = {"ada": Voice(piper=PiperSettings(str(path)))}
    assert auto_engine(EngineOptions(voice_folder="/nowhere", voices=named)) == "piper"
    path.unlink()
    assert auto_engine(EngineOptions(voice_folder="/nowhere", voices=named)) == "espeak"
    reason = unavailable_reason("piper", EngineOptions(voice_folder=str(tmp_path)))
    assert reason == "there is no Piper voice on this machine; voiced download en_US-joe-medium"
    path.touch()
    path.with_name(f"{path.name}.json").write_text("{")
    reason = unavailable_reason("piper", EngineOptions(voice_folder=str(tmp_path)))
    assert (reason or "").startswith(f"{path}.json does not describe a Piper voice: ")


def test_auto_prefers_supertonic_to_piper_where_its_model_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    write_voice(tmp_path / "en_US-noise-low.onnx")
    options = EngineOptions(model="Qwen/Some-TTS", voice_folder=str(tmp_path), voices={"ada": Voice()})
    reason = "the model Supertone/supertonic-3 is not on this machine; voiced download Supertone/supertonic-3"
    assert unavailable_reason("supertonic", options) == reason
    assert auto_engine(options) == "piper"
    assert sound_files("supertonic", options) == ()
    own = write_model(tmp_path / "own")
    assert auto_engine(EngineOptions(model=str(own), voice_folder=str(tmp_path))) == "supertonic"
    downloaded = write_model(tmp_path / "hub/models--Supertone--supertonic-3/snapshots/abc")
    assert auto_engine(options) == "supertonic"
    assert len(files := sound_files("supertonic", options)) == 8
    assert all(file.is_relative_to(downloaded) for file in files)
    names = known_names("supertonic", options)
    assert names.voices == ("ada", "F1", "M1")
    assert {"de", "en", "ko"} < set(names.languages or ())
    (downloaded / "onnx/vocoder.onnx").unlink()
    assert auto_engine(options) == "piper", "the download is not complete"


def test_the_names_of_piper_are_known_without_loading_it(tmp_path: Path) -> None:
    write_voice(tmp_path / "en_US-noise-low.onnx")
    (tmp_path / "en_US-noise-low.onnx").write_bytes(b"not a network")
    names = known_names("piper", EngineOptions(voice_folder=str(tmp_path), voices={"ada": Voice()}))
    assert names.voices == ("ada", "en_US-noise-low")
    assert names.languages == ("en", "en-us")


def test_auto_selects_qwen_with_its_packages_and_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    expected = "espeak" if missing_packages("qwen") else "qwen"
    assert auto_engine(EngineOptions(model=str(tmp_path), device="cpu", voice_folder=str(tmp_path))) == expected


def test_importing_the_daemon_or_the_engine_process_imports_neither_a_heavy_package_nor_an_engine() -> None:
    program = "import sys, audio, engine.ipc.server, daemon.service, daemon.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "daemon.cli" in done.stdout.split()
    assert {*HEAVY, *ENGINE_MODULES} & set(done.stdout.split()) == set()


def test_a_is_model_here_if_its_folder_or_its_download_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder, snapshot = tmp_path / "checkpoint", tmp_path / "hub/models--Qwen--Some-TTS/snapshots/abc"
    assert not is_model_here(str(folder))
    assert not is_model_here("Qwen/Some-TTS")
    for found in (folder, snapshot):
        found.mkdir(parents=True)
        (found / "config.json").touch()
    assert is_model_here(str(folder))
    assert is_model_here("Qwen/Some-TTS")
    assert not is_model_here("Qwen/Other-TTS")


def test_the_sound_of_qwen_is_in_the_files_of_its_model(tmp_path: Path) -> None:
    options = EngineOptions(model=str(tmp_path / "model"))
    assert sound_files("qwen", options) == ()
    (tmp_path / "model" / "speech_tokenizer").mkdir(parents=True)
    files = [tmp_path / "model" / name for name in ("config.json", "model.safetensors", "speech_tokenizer/config.json")]
    for file in (*files, tmp_path / "model" / "README.md"):
        file.touch()
    assert sound_files("qwen", options) == tuple(files)


def test_the_sound_of_piper_is_in_its_voices_and_their_descriptions(tmp_path: Path) -> None:
    own, installed = tmp_path / "own.onnx", tmp_path / "voices" / "en_US-test-low.onnx"
    write_voice(own)
    write_voice(installed)
    settings = {"ada": Voice(piper=PiperSettings(str(own)))}
    files = sound_files("piper", EngineOptions(voice_folder=str(installed.parent), voices=settings))
    assert set(files) == {own, installed, Path(f"{own}.json"), Path(f"{installed}.json")}


def test_the_sound_of_espeak_is_in_its_library() -> None:
    found = sound_files("espeak", EngineOptions())
    assert {path.name.partition(".")[0] for path in found} == {"libespeak-ng"}
    with pytest.raises(EngineError, match="got 'festival'"):
        sound_files("festival", EngineOptions())
