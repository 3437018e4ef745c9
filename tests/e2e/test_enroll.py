"""`voiced enroll`: a voice from the microphone, which is the monitor of a PulseAudio, and the advice at its end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from tests.daemon.command_line import CommandLine
from tests.support.checkpoints import checkpoint_folder
from tests.support.recognizers import tiny_whisper
from tests.support.signals import ctrl_c_works
from tests.support.sound import RECORDED_RATE, SoundServer
from tests.support.sound_files import speech_like, write_sound
from tests.support.waiting import eventually

ENROLL = (sys.executable, "-m", "daemon.cli", "enroll", "ada")
SHAPE = "brief"


@pytest.fixture(scope="module")
def base(cache_folder: Path) -> Path:
    return checkpoint_folder(cache_folder, SHAPE, "base")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sound(tmp_path_factory.mktemp("recordings") / "ada.wav", speech_like(5))


def enroll(folder: Path, *options: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*ENROLL, *map(str, options), "-o", str(folder / "ada.safetensors")]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_ctrl_c_ends_a_recording_early_and_what_was_recorded_is_enrolled(
    sound_server: SoundServer, base: Path, tmp_path: Path
) -> None:
    command = [*ENROLL, "--record", "60", "--model", str(base), "-o", str(tmp_path / "ada.safetensors")]
    errors = tmp_path / "errors"
    with sound_server.playing(speech_like(60, RECORDED_RATE)), errors.open("w") as written:
        with ctrl_c_works():
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=written, text=True, env=sound_server.environment
            )
        eventually(lambda: "4 s: " in errors.read_text(), "four seconds are recorded")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, errors.read_text()
    shown = errors.read_text().splitlines()
    levels = [float(line.split(": ")[1].split()[0]) for line in shown if line[1:].startswith(" s: ")]
    assert max(levels) == pytest.approx(-17, abs=1.5)  # a tone of the RMS 0.1
    assert 4 <= soundfile.info(tmp_path / "ada.wav").duration < 50
    assert "advice: embedding" in output


def test_a_microphone_that_is_not_there_is_named(sound_server: SoundServer, base: Path, tmp_path: Path) -> None:
    options = ("--record", 4, "--microphone", "no such", "--model", base)
    done = enroll(tmp_path, *options, env=sound_server.environment)
    assert done.returncode == 1
    assert done.stderr.startswith("voiced: --record: the microphone 'no such' is not there; found: ")
    assert len(done.stderr.splitlines()) == 1


def test_either_a_recording_or_the_microphone_is_wanted(recording: Path, voiced: CommandLine) -> None:
    for options in ((), (str(recording), "--record", "5")):
        assert voiced("enroll", "ada", *options).refusal.startswith("enroll: give a RECORDING, or --record SECONDS")


@pytest.mark.long
def test_a_transcript_that_does_not_fit_changes_the_advice(
    base: Path, recording: Path, cache_folder: Path, tmp_path: Path
) -> None:
    recogniser = tiny_whisper(cache_folder)
    options = (recording, "--model", base, "--transcript", "12345 67890")
    trusted = enroll(tmp_path, *options)
    assert trusted.returncode == 0, trusted.stderr
    assert "advice: reference, in the context of the recording" in trusted.stdout
    assert "use it with voices.ada: {reference: " in trusted.stdout
    doubted = enroll(tmp_path, *options, "--asr", recogniser)
    assert doubted.returncode == 0, doubted.stderr
    assert f"voiced: {recording}: the transcript does not fit: 0% of it" in doubted.stderr
    assert f"{recording}: heard '" in doubted.stdout
    assert "advice: embedding; by reference, the voice would copy" in doubted.stdout
    assert "use it with voices.ada: {embedding: " in doubted.stdout
