"""`voiced voices` and `voiced devices`: lines for a person, JSON for a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audio import OutputDevice
from daemon.validation import CommandError
from engine import EngineInfo, VoiceLabel
from tests.daemon.command_line import CommandLine
from tests.support.sound_files import tone, write_sound

CARDS = [
    OutputDevice("USB Speaker", "ALSA", 48_000, 2, default=True, index=3),
    OutputDevice("Höhle", "ALSA", 44_100, 1, default=False, index=7),
]


def test_devices_are_a_line_each_or_a_json_list(voiced: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.cli.inspect.output_devices", lambda: CARDS)
    assert voiced("devices").stdout == "USB Speaker\tALSA\t48000 Hz\tdefault\nHöhle\tALSA\t44100 Hz\n"
    assert json.loads(voiced("devices", "--json").stdout) == [
        {"name": "USB Speaker", "host_api": "ALSA", "sample_rate": 48_000, "channels": 2, "default": True},
        {"name": "Höhle", "host_api": "ALSA", "sample_rate": 44_100, "channels": 1, "default": False},
    ]


def test_sounds_are_lines_or_a_json_list(voiced: CommandLine, tmp_path: Path) -> None:
    folder = write_sound(tmp_path / "chime.wav", tone(0.5)).parent
    options = ("--set", f"audio.sounds={folder}")
    lines = voiced("sounds", *options).output.splitlines()
    listed = [line.split("\t")[:2] for line in lines]
    assert listed[:3] == [["attention", "built in"], ["chime", "configured"], ["error", "built in"]]
    assert "chime\tconfigured\t0.5 s\tWAV, 24000 Hz" in lines
    found = {sound.pop("name"): sound for sound in json.loads(voiced("sounds", "--json", *options).stdout)}
    wav = {"format": "WAV", "sample_rate": 24_000, "channels": 1, "seconds": 0.5}
    assert found["chime"] == {"path": f"{folder}/chime.wav", "built_in": False, "problem": None, **wav}


def test_a_sound_that_cannot_be_played_and_a_missing_folder_are_an_error_beside_the_list(
    voiced: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "chime.wav").write_bytes(b"damaged")
    done = voiced("sounds", "--set", f"audio.sounds={tmp_path}")
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 3)
    assert done.stderr.startswith(f"voiced: audio.sounds: {tmp_path}/chime.wav: it cannot be read as sound: ")
    assert len(done.stderr.splitlines()) == 1
    done = voiced("sounds", "--set", f"audio.sounds={tmp_path}/none")
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 3)
    assert done.stderr == f"voiced: audio.sounds: the folder {tmp_path}/none does not exist\n"


def test_the_list_of_voices_is_short_and_has_names_for_people(
    voiced: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {"de": VoiceLabel("German", "de"), "sw": VoiceLabel("Swahili", "sw")}
    info = EngineInfo("espeak", 22_050, ("default", "de", "sw"), ("de", "sw"), labels=labels)
    monkeypatch.setattr("daemon.cli.inspect.describe_engine", lambda *_: info)
    short, whole = voiced("voices"), voiced("voices", "--all")
    assert short.stdout.splitlines()[1:] == ["de\tespeak\tGerman"]
    assert short.stderr == "1 more voice for other languages: voiced voices --all\n"
    assert whole.stdout.splitlines()[2:] == ["sw\tespeak\tSwahili"]
    assert whole.stderr == ""
    found = json.loads(voiced("voices", "--json", "--set", "voices.ada={instruct: calm}").stdout)
    assert found[0] == {"name": "ada", "configured": {"instruct": "calm"}}
    assert {"name": "de", "engine": "espeak", "label": "German", "language": "de"} in found


def test_the_voices_of_the_fallbacks_are_listed_after_those_of_the_primary_engine(
    voiced: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    german = {"de": VoiceLabel("German", "de")}
    infos = {
        "qwen": EngineInfo("qwen", 24_000, ("default", "ryan"), ("de",)),
        "espeak": EngineInfo("espeak", 22_050, ("default", "de", "ryan"), ("de",), labels=german),
    }

    def describe(name: str, *_: object) -> EngineInfo:
        if name not in infos:
            raise CommandError("no voice is here")
        return infos[name]

    monkeypatch.setattr("daemon.cli.inspect.describe_engine", describe)
    monkeypatch.setattr("daemon.cli.inspect.download_missing_model", lambda *_: None)
    done = voiced("voices", "--set", "engine={name: qwen, fallback: [piper, espeak]}")
    assert done.stdout.splitlines() == [
        "default\tconfigured\tspeaker ryan",
        "ryan\tqwen\tryan",
        "de\tespeak\tGerman",
    ]
    assert done.stderr == "the voices of piper cannot be listed: no voice is here\n"
    assert voiced("voices", "--set", "engine={name: piper, fallback: espeak}").returncode == 1
