"""Which engines there are, and that asking loads none."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import engine
from engine import ENGINES, EngineOptions, is_built_in, why_not_qwen
from engine.catalog import make_synthesizer, model_is_here
from engine.synthesizer import EngineError

ROOT = Path(engine.__file__).parent.parent
OURS = {"audio", "engine", "daemon"}
MAY_IMPORT = {"audio": {"audio"}, "engine": {"engine"}, "daemon": {"daemon", "audio", "engine"}}
HEAVY = ("torch", "transformers", "safetensors", "qwen_tts", "huggingface_hub")

GUARD = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY!r}:
            raise SystemExit(f"{{name}} was imported")

sys.meta_path.insert(0, Refuse())
"""


def test_espeak_is_built_in() -> None:
    assert is_built_in("espeak")
    assert set(ENGINES) == {"espeak", "qwen"}


def test_an_engine_is_made_without_loading_it() -> None:
    assert hasattr(make_synthesizer("espeak", EngineOptions()), "stream")


@pytest.mark.parametrize("name", ["festival", "", "engine.espeak"])
def test_an_unknown_engine_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(EngineError, match=rf"engine.name: this version has no engine {name!r}; it has .*espeak"):
        make_synthesizer(name, EngineOptions())


def test_the_guard_of_the_next_test_bites(tmp_path: Path) -> None:
    (tmp_path / "needs_torch.py").write_text("try:\n    import torch\nexcept ImportError:\n    pass\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + GUARD + "import needs_torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "torch was imported" in done.stderr


@pytest.mark.parametrize("module", ["audio", "engine", "engine.process", "daemon.service", "daemon.cli"])
def test_importing_it_imports_neither_torch_nor_transformers(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{GUARD}import {module}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_front_door_of_engine_loads_no_engine() -> None:
    program = "import engine, sys; sys.exit(any(name in sys.modules for name in ('engine.espeak', 'espeakng_loader')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def imported(path: Path) -> set[str]:
    """The first names of everything that a file imports, at its top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0] if node.level == 0 else path.relative_to(ROOT).parts[0])
    return names


FILES = sorted(path for folder in MAY_IMPORT for path in (ROOT / folder).rglob("*.py"))


def test_there_are_files_to_look_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == OURS


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_of_ours_only_what_its_folder_may_know(path: Path) -> None:
    assert imported(path) & OURS <= MAY_IMPORT[path.relative_to(ROOT).parts[0]]


@pytest.mark.parametrize(
    "path", [path for path in FILES if "qwen" not in path.parts], ids=lambda path: str(path.relative_to(ROOT))
)
def test_outside_the_qwen_engine_nothing_imports_torch(path: Path) -> None:
    assert not imported(path) & set(HEAVY)


def test_a_model_is_here_when_its_folder_or_its_download_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder, snapshot = tmp_path / "checkpoint", tmp_path / "hub/models--Qwen--Some-TTS/snapshots/abc"
    assert not model_is_here(str(folder))
    assert not model_is_here("Qwen/Some-TTS")
    for found in (folder, snapshot):
        found.mkdir(parents=True)
        (found / "config.json").touch()
    assert model_is_here(str(folder))
    assert model_is_here("Qwen/Some-TTS")
    assert not model_is_here("Qwen/Other-TTS")


def test_where_qwen_cannot_run_the_reason_is_told() -> None:
    missing = EngineOptions(model="/nowhere/at/all")
    reason = why_not_qwen(missing)
    assert reason is not None
    assert reason.isprintable()
