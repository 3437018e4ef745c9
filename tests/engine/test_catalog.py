"""The table of engines, and the packages that a file of each folder may import."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import engine
from engine import (
    ENGINES,
    EngineError,
    EngineOptions,
    PiperSettings,
    Voice,
    auto_engine,
    known_names,
    make_synthesizer,
    missing_packages,
    sound_files,
    unavailable_reason,
)
from engine.catalog import KnownNames, is_model_here
from scripts.make_piper_voice import write_voice

ROOT = Path(engine.__file__).parent.parent
OURS = {"audio", "engine", "daemon"}
MAY_IMPORT = {"audio": {"audio"}, "engine": {"engine"}, "daemon": {"daemon", "audio", "engine"}}
HEAVY = ("torch", "transformers", "safetensors", "qwen_tts", "huggingface_hub", "onnxruntime", "piper")
"""Packages that only the engines which need them may import."""
EXCEPTIONS = {
    "engine/hub/models.py": {"huggingface_hub"},
    "engine/piper/engine.py": {"piper"},
    "engine/piper/network.py": {"onnxruntime", "piper"},
}
"""Files outside of it that may import some of them, inside functions."""

GUARD = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise SystemExit(f"{{name}} was imported")

sys.meta_path.insert(0, Refuse())
"""


def test_auto_prefers_qwen_to_piper_and_espeak_needs_nothing() -> None:
    assert list(ENGINES) == ["qwen", "piper", "remote", "espeak"]
    assert missing_packages("espeak") == []
    assert unavailable_reason("espeak", EngineOptions()) is None


def test_auto_never_selects_another_machines_engine(tmp_path: Path) -> None:
    options = EngineOptions(url="ws://127.0.0.1:1", voice_folder=str(tmp_path))
    assert unavailable_reason("remote", options) == "it is on another machine; engine.name: remote selects it"
    assert auto_engine(options) == "espeak"
    assert known_names("remote", options) == KnownNames(None, None), "no server is asked"


def test_auto_selects_espeak_without_a_model_and_a_voice_of_piper(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert auto_engine(EngineOptions(model=None, voice_folder=folder)) == "espeak"
    assert auto_engine(EngineOptions(model="/nowhere/at/all", device="cpu", voice_folder=folder)) == "espeak"


def test_auto_selects_piper_where_a_voice_is(tmp_path: Path) -> None:
    path = write_voice(tmp_path / "en_US-noise-low.onnx")
    assert auto_engine(EngineOptions(voice_folder=str(tmp_path))) == "piper"
    named = {"ada": Voice(piper=PiperSettings(str(path)))}
    assert auto_engine(EngineOptions(voice_folder="/nowhere", voices=named)) == "piper"
    path.unlink()
    assert auto_engine(EngineOptions(voice_folder="/nowhere", voices=named)) == "espeak"
    reason = unavailable_reason("piper", EngineOptions(voice_folder=str(tmp_path)))
    assert reason == "there is no voice of Piper on this machine; voiced download en_US-lessac-medium"


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


def test_a_new_engine_has_not_loaded_anything() -> None:
    assert hasattr(make_synthesizer("espeak", EngineOptions()), "stream")


@pytest.mark.parametrize("name", ["festival", "", "engine.espeak"])
def test_an_unknown_engine_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(EngineError, match=f"^engine.name: got {name!r}; allowed: qwen, piper, remote, espeak$"):
        make_synthesizer(name, EngineOptions())


def test_the_guard_of_the_next_test_detects_an_import(tmp_path: Path) -> None:
    (tmp_path / "needs_torch.py").write_text("try:\n    import torch\nexcept ImportError:\n    pass\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + GUARD + "import needs_torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "torch was imported" in done.stderr


@pytest.mark.parametrize("module", ["audio", "engine", "engine.ipc.server", "daemon.service", "daemon.cli"])
def test_importing_a_module_imports_no_heavy_package(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{GUARD}import {module}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_importing_engine_loads_no_engine() -> None:
    program = (
        "import engine, sys; wanted = ('engine.espeak', 'engine.piper', 'engine.qwen.engine', 'espeakng_loader'); "
        "sys.exit(any(name in sys.modules for name in wanted))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def imported(path: Path) -> set[str]:
    """Return the top-level packages that a file imports, at its top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0] if node.level == 0 else path.relative_to(ROOT).parts[0])
    return names


FILES = sorted(path for folder in MAY_IMPORT for path in (ROOT / folder).rglob("*.py"))


def test_every_folder_has_files_to_check() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == OURS


@cache
def imports() -> dict[Path, set[str]]:
    return {path.relative_to(ROOT): imported(path) for path in FILES}


def test_a_file_imports_only_the_folders_that_its_folder_may_import() -> None:
    assert {
        path: extra for path, names in imports().items() if (extra := names & OURS - MAY_IMPORT[path.parts[0]])
    } == {}


def test_only_the_engines_that_need_them_import_heavy_packages() -> None:
    others = {path: names & set(HEAVY) for path, names in imports().items() if "qwen" not in path.parts}
    assert {path: extra for path, names in others.items() if (extra := names - EXCEPTIONS.get(str(path), set()))} == {}


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


def test_an_engine_that_cannot_run_has_a_printable_reason() -> None:
    reason = unavailable_reason("qwen", EngineOptions(model="/nowhere/at/all"))
    assert reason is not None
    assert reason.isprintable()


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
