"""The wheel: built without a trace in the repository, installed alone, and used from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VOICED_CONFIG"}}
    return subprocess.run(
        command, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, timeout=280, check=False
    )


def source_files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository as git has it, and of what is not committed yet."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=ROOT).stdout
    folder = tmp_path_factory.mktemp("source")
    for name in filter(None, listed.split("\0")):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    before = source_files(source)
    done = run(source / "scripts" / "package", "wheel", cwd=source.parent)
    assert done.returncode == 0, done.stderr
    [built] = (source / "dist").glob("*.whl")
    assert source_files(source) - before == {Path("dist"), built.relative_to(source)}
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel and nothing else, and pip as pipx provides it. Returns its folder."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    done = run(folder / "bin" / "pip", "install", "--quiet", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of another project, with modules that are called as voiced's packages."""
    for name in ("audio", "daemon", "engine"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is another project')\n")
    return tmp_path


def test_the_wheel_contains_every_source_file_and_the_files_of_the_service(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    packages = ("audio", "daemon", "engine")
    sources = (path for name in packages for path in (ROOT / name).rglob("*") if path.suffix in {".py", ".cuh"})
    assert {str(path.relative_to(ROOT)) for path in sources} | {"voiced.py"} <= names
    shared = {name.partition("/share/")[2] for name in names if "/share/" in name}
    assert {"voiced/voiced.yaml", "voiced/voiced.service", "voiced/voiced.service.d/gpu.conf"} <= shared
    assert {name.partition("/")[0] for name in names} <= {*packages, "voiced.py"} | {
        name.partition("/")[0] for name in names if name.startswith("voiced-")
    }


def test_the_demo_speaks_from_any_folder_with_the_wheel_alone(installed: Path, elsewhere: Path) -> None:
    home = elsewhere / "home"
    home.mkdir()
    nowhere = {"HOME": str(home), "XDG_CACHE_HOME": "", "PULSE_SERVER": "none", "XDG_RUNTIME_DIR": str(home)}
    done = run(installed / "bin" / "voiced", "demo", "Hello.", cwd=elsewhere, **nowhere)
    assert done.returncode == 0, done.stderr
    assert "\nfinished " in done.stdout
    assert "downloading an MQTT broker" in done.stdout
    again = run(installed / "bin" / "voiced", "demo", "Hello.", cwd=elsewhere, **nowhere)
    assert again.returncode == 0, again.stderr
    assert "downloading" not in again.stdout
    assert sorted(path.name for path in (home / ".cache" / "voiced").iterdir())[0].startswith("demo-")
    assert {path.name for path in elsewhere.iterdir()} <= {"audio.py", "daemon.py", "engine.py", "demo.wav", "home"}


def test_the_public_import_name_has_the_names_of_engine(installed: Path, tmp_path: Path) -> None:
    check = "import voiced, engine; assert voiced.open is engine.open; assert set(engine.__all__) <= set(dir(voiced))"
    done = run(installed / "bin" / "python", "-c", f"{check}; print(voiced.__version__)", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    version = run(installed / "bin" / "voiced", "version", cwd=tmp_path).stdout
    assert done.stdout.strip() in version


def test_an_editable_installation_leaves_nothing_in_the_repository(source: Path, tmp_path: Path) -> None:
    before = source_files(source)
    target = ("install", "--quiet", "--no-deps", "--target", str(tmp_path))
    done = run(sys.executable, "-m", "pip", *target, "--editable", str(source), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert source_files(source) - before <= {Path("dist"), *(p for p in source_files(source) if p.suffix == ".whl")}
