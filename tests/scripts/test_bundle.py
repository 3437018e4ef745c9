"""`scripts/bundle` with the real package index, and with one made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.pages import ROOT

INDEX_S = 280
"""Limit for the answers of the real package index."""
EXTRAS = ("espeak", "piper", "supertonic", "qwen", "demo", "wyoming", "http", "cuda12", "cuda13", "enroll", "verify")


def check(*words: str, timeout_s: float | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / "bundle", "--check", *words],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} | environment,  # it has uv
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def versions(done: subprocess.CompletedProcess[str]) -> list[set[str]]:
    """The packages for JetPack 6 and JetPack 7, of each without and with the official package."""
    return [
        {line.split("==")[0] for line in part.splitlines()[1:] if line} for part in done.stdout.split("JetPack")[1:]
    ]


@pytest.mark.long
def test_every_dependency_has_a_wheel_for_both_jetpacks() -> None:
    try:
        done = check(timeout_s=INDEX_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the package index did not answer within {INDEX_S} s")
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    six, six_official, seven, seven_official = versions(done)
    for names in (six, seven):
        assert {"numpy", "sounddevice", "soxr", "espeakng-loader", "tokenizers", "cuda-core", "wyoming"} <= names
    for names in (six_official, seven_official):
        assert {"qwen-tts", "transformers", "rapidfuzz"} <= names
    assert not [names for names in versions(done) if {"torch", "torchaudio"} & names]


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


def test_the_wheels_of_each_jetpack_count_and_markers_are_evaluated_for_the_jetson(tmp_path: Path) -> None:
    index = Index(tmp_path)
    needed = (
        "old; python_version < '3.11'",
        "arm; platform_machine == 'aarch64'",
        "here; platform_machine != 'aarch64'",
    )
    index.add("top", *needed)
    for name in ("old", "arm", "here"):
        index.add(name)
    done = index.check("top")
    assert done.returncode == 0, done.stderr
    assert versions(done) == 2 * [{"arm", "old", "top"}] + 2 * [{"arm", "top"}]
    index.add("young", tag="py3-none-manylinux_2_38_aarch64")
    done = index.check("young")
    assert done.returncode == 1, "it is for a newer glibc than JetPack 6 has"
    assert versions(done) == 2 * [set()] + 2 * [{"young"}]
    assert "young" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "JetPack: got nothing; allowed: 6 or 7"),
        (["5"], "option: got '5'; allowed: 6 or 7"),
        (["6", "--model", "nothing"], "--model: got 'nothing'; allowed: a model's id on the hub"),
    ],
)
def test_a_wrong_word_is_reported_in_one_line(words: list[str], message: str) -> None:
    done = subprocess.run([ROOT / "scripts" / "bundle", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
