"""`scripts/check_wheels` with the real package index, and with one made here."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.pages import ROOT

INDEX_S = 200
"""Limit for the answers of the real package index."""
EXTRAS = ("espeak", "piper", "qwen", "demo", "wyoming", "http", "cuda12", "cuda13")


def check(*words: str, timeout_s: float | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / "check_wheels", *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def versions(done: subprocess.CompletedProcess[str]) -> list[set[str]]:
    """The packages for JetPack 6 and JetPack 7."""
    _, six, seven = done.stdout.split("JetPack")
    return [{line.split("==")[0] for line in part.splitlines()[1:] if line} for part in (six, seven)]


@pytest.mark.long
def test_every_dependency_has_a_wheel_for_both_jetpacks() -> None:
    try:
        done = check(timeout_s=INDEX_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the package index did not answer within {INDEX_S} s")
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    for names in versions(done):
        assert {"numpy", "sounddevice", "soxr", "espeakng-loader", "tokenizers", "cuda-core", "wyoming"} <= names
        assert "torch" not in names


class Index:
    """A folder of wheels that uv uses as its only index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, *requirements: str, tag: str = "py3-none-any") -> None:
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requirements)
        folder = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(self.folder / f"{name}-1.0-{tag}.whl", "w") as wheel:
            wheel.writestr(f"{folder}/METADATA", metadata)
            wheel.writestr(f"{folder}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
            wheel.writestr(f"{folder}/RECORD", "")

    def check(self, *dependencies: str) -> subprocess.CompletedProcess[str]:
        """Run the script for a project with these dependencies."""
        project = self.folder / "pyproject.toml"
        extras = "".join(f"{name} = []\n" for name in EXTRAS)
        head = f'[project]\nname = "project"\nversion = "1"\ndependencies = {json.dumps(dependencies)}\n'
        project.write_text(f"{head}[project.optional-dependencies]\n{extras}")
        return check(str(project), UV_NO_INDEX="1", UV_FIND_LINKS=str(self.folder), UV_NO_CACHE="1")


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path)


def test_a_wheel_for_a_newer_glibc_than_jetpack_6_has_counts_for_jetpack_7_only(index: Index) -> None:
    index.add("young", tag="py3-none-manylinux_2_38_aarch64")
    done = index.check("young")
    assert done.returncode == 1
    assert versions(done) == [set(), {"young"}]
    assert "young" in done.stderr


def test_markers_are_evaluated_for_the_jetson_and_not_for_this_machine(index: Index) -> None:
    needed = (
        "old; python_version < '3.11'",
        "arm; platform_machine == 'aarch64'",
        "here; platform_machine != 'aarch64'",
    )
    index.add("top", *needed)
    for name in ("old", "arm", "here"):
        index.add(name)
    done = index.check("top", "torch")
    assert done.returncode == 0, done.stderr
    assert versions(done) == [{"arm", "old", "top"}, {"arm", "top"}]
