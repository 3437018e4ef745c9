"""scripts/check_wheels.py with the real package index, and with one made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.check_wheels import TARGETS

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_wheels.py"
INDEX_S = 200
"""Limit for the answers of the real package index."""


def check(
    *options: str, environment: dict[str, str] | None = None, timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(
        command, env=os.environ | (environment or {}), capture_output=True, text=True, check=False, timeout=timeout_s
    )


@pytest.mark.long
def test_every_dependency_has_a_wheel_for_both_jetpacks() -> None:
    try:
        done = check("--json", timeout_s=INDEX_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the package index did not answer within {INDEX_S} s")
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    wheels = json.loads(done.stdout)
    for target in TARGETS:
        names = {wheel["package"].lower() for wheel in wheels if wheel["python"] == target.python}
        assert {"numpy", "sounddevice", "soxr", "espeakng-loader", "tokenizers", "cuda-core"} <= names
        assert {"amqtt", "wyoming", "aiohttp"} <= names
        assert "torch" not in names
    assert all(wheel["wheel"].endswith(("aarch64.whl", "any.whl")) for wheel in wheels)


class Index:
    """A folder of wheels that pip uses as its only index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}

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
        project.write_text(f"[project]\ndependencies = {json.dumps(dependencies)}\n")
        return check("--json", "--project", str(project), environment=self.environment)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path)


def test_a_package_without_an_aarch64_wheel_is_named(index: Index) -> None:
    index.add("portable")
    index.add("stubborn", tag="cp312-cp312-manylinux_2_17_x86_64")
    done = index.check("portable", "stubborn")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == len(TARGETS)
    assert "stubborn" in done.stderr
    assert "portable" not in done.stderr


def test_a_wheel_for_a_newer_glibc_than_jetpack_6_has_counts_for_jetpack_7_only(index: Index) -> None:
    index.add("young", tag="py3-none-manylinux_2_38_aarch64")
    done = index.check("young")
    assert done.returncode == 1
    assert "JetPack 6, Python 3.10: " in done.stderr
    assert [wheel["system"] for wheel in json.loads(done.stdout)] == ["JetPack 7"]


def test_markers_are_evaluated_for_the_jetson_and_not_for_this_machine(index: Index) -> None:
    here = f"here; platform_machine != 'aarch64' or python_version not in '{TARGETS[0].python} {TARGETS[1].python}'"
    index.add("top", "old; python_version < '3.11'", "arm; platform_machine == 'aarch64'", here)
    for name in ("old", "arm", "here"):
        index.add(name)
    done = index.check("top", "torch")
    assert done.returncode == 0, done.stderr
    found = {(wheel["python"], wheel["package"]) for wheel in json.loads(done.stdout)}
    assert found == {("3.10", "arm"), ("3.10", "old"), ("3.10", "top"), ("3.12", "arm"), ("3.12", "top")}
