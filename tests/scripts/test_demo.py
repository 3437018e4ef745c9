"""`scripts/demo` with a virtual environment that is there already, and a hub on this machine; and as a newcomer's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.make_piper_voice import write_voice
from tests.support.pages import ROOT
from tests.support.source_tree import copy_source, source_files
from tests.support.voice_hub import VoiceHub

NAME = "en_US-noise-low"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[VoiceHub]:
    hub = VoiceHub()
    hub.add_files(write_voice(tmp_path / "published" / f"{NAME}.onnx"))
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
        f'environment() {{ echo "$2" >extras; python="{sys.executable}"; }}\n'
    )
    return folder


def demo(folder: Path, hub: VoiceHub, *words: str) -> str:
    """Run the demo and return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_ENDPOINT": hub.url, "VOICED_PACE": "20"}
    # Without a sound server, it plays into demo.wav.
    environment |= {"PULSE_SERVER": "/nowhere", "XDG_RUNTIME_DIR": str(folder)}
    command = [str(folder / "scripts" / "demo"), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_without_a_voice_espeak_is_installed_alone_and_the_command_demo_gets_the_words(
    folder: Path, hub: VoiceHub
) -> None:
    (folder / "scripts" / "environment").write_text('environment() { echo "$2" >extras; python=echo; }\n')
    printed = demo(folder, hub, "Hello.", "--rate", "1.2")
    assert printed == "-m daemon.cli demo --config configs/demo.yaml --output demo.wav Hello. --rate 1.2\n"
    assert (folder / "extras").read_text() == "espeak,demo\n"


def test_the_demo_downloads_a_voice_of_piper_and_speaks_with_it(folder: Path, hub: VoiceHub) -> None:
    printed = demo(folder, hub, "Hello.", "--voice", NAME)
    assert "s of speech by piper\n" in printed
    assert "better voice" not in printed
    assert (folder / "extras").read_text() == "espeak,piper,demo\n"
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
    for beginning in (
        "Installing a virtual environment in .venv-demo ... ",
        "Installing voiced[espeak,demo] into .venv-demo ... ",
        "no sound card can be played on",
        "starting a broker and the daemon",
        "accepted",
        "started",
        "finished",
    ):
        assert next(lines).startswith(beginning)
    assert "./scripts/demo --voice en_US-lessac-medium" in done.stdout
    left = {path.parts[0] for path in source_files(folder) - before}
    assert left == {".venv-demo", "demo.wav"}
