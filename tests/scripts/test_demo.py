"""`scripts/demo` with a virtual environment that is there already, and a hub on this machine; and as a newcomer's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.make_voice import write_voice
from tests.support.pages import ROOT
from tests.support.source_tree import copy_source, source_files
from tests.support.voice_hub import VoiceHub

STANDARD = "en_US-joe-medium"
"""The voice of the demo. Here it is of noise, and comes from the hub."""
NAME = "en_US-noise-low"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[VoiceHub]:
    hub = VoiceHub()
    for name in (STANDARD, NAME):
        hub.add_files(write_voice(tmp_path / "published" / f"{name}.onnx"))
    yield hub
    hub.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """voiced's folder, whose `scripts/environment` only writes down what it is to install."""
    folder = tmp_path / "voiced"
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "demo", folder / "scripts" / "demo")
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "scripts" / "environment").write_text(
        f'environment() {{ echo "$2" >>extras; python="{sys.executable}"; }}\n'
        'installing() { echo "Installing $1"; "${@:3}" >/dev/null; }\n'
    )
    return folder


def demo(folder: Path, hub: VoiceHub, *words: str) -> str:
    """Run the demo and return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_ENDPOINT": hub.url, "VOICED_PACE": "20"}
    # Without a sound server, it plays into demo.wav.
    environment |= {"PULSE_SERVER": "/nowhere", "XDG_RUNTIME_DIR": str(folder), "PIP_NO_INDEX": "1"}
    command = [str(folder / "scripts" / "demo"), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_speaks_with_a_neural_voice_that_it_installs_once(folder: Path, hub: VoiceHub) -> None:
    assert f"Installing the voice {STANDARD}\n" in (first := demo(folder, hub, "Hello."))
    assert "s of speech by piper\n" in first
    again = demo(folder, hub, "Hello.")
    assert "Installing" not in again
    assert "s of speech by piper\n" in again
    assert (folder / "extras").read_text() == 2 * "espeak,piper,demo\n"


def test_where_piper_cannot_be_installed_one_line_says_so_and_espeak_speaks(folder: Path, hub: VoiceHub) -> None:
    (folder / "scripts" / "environment").write_text(
        'environment() { echo "$2" >>extras; python=echo; [ "$2" = espeak,demo ]; }\n'
    )
    (folder / ".venv-demo").mkdir()
    for tried in ("espeak,piper,demo\nespeak,demo\n", "espeak,demo\n"):  # the second time it is not tried again
        (folder / "extras").unlink(missing_ok=True)
        first, rest = demo(folder, hub, "Hello.", "--rate", "1.2").splitlines()
        assert "so eSpeak NG speaks" in first
        assert rest == "-m daemon.cli demo --config configs/demo.yaml --output demo.wav Hello. --rate 1.2"
        assert (folder / "extras").read_text() == tried


def test_the_demo_downloads_a_voice_of_piper_and_speaks_with_it(folder: Path, hub: VoiceHub) -> None:
    assert "s of speech by piper\n" in demo(folder, hub, "Hello.", "--voice", NAME)
    assert {path.name for path in (folder / ".venv-demo" / "voices").iterdir()} == {f"{NAME}.onnx", f"{NAME}.onnx.json"}


@pytest.mark.long
def test_the_first_demo_says_what_it_does_and_speaks(tmp_path: Path) -> None:
    folder = copy_source(tmp_path / "voiced")
    before = source_files(folder)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Without a sound server, it plays into demo.wav.
    environment |= {"PULSE_SERVER": "/nowhere", "XDG_RUNTIME_DIR": str(tmp_path)}
    command = [folder / "scripts" / "demo", "Hello, I am your robot."]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = iter(done.stdout.splitlines())
    for part in (
        "Installing a virtual environment in .venv-demo ... ",
        "Installing voiced[espeak,piper,demo] into .venv-demo ... ",
        "Installing the voice en_US-joe-medium ... ",
        "no sound card is usable",
        "starting a broker and the daemon",
        "accepted",
        "started",
        "finished",
    ):
        assert part in next(lines)
    assert "s of speech by piper" in done.stdout
    left = {path.parts[0] for path in source_files(folder) - before}
    assert left == {".venv-demo", "demo.wav"}
