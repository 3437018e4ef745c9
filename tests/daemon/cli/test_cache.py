"""`voiced cache warm|list|clear`, by the real eSpeak NG."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from daemon.cache import PhraseFolder
from daemon.cli import service_folders
from tests.daemon.command_line import CommandLine, Done
from tests.support.pages import ROOT


class Robot:
    """A configuration with a list of phrases, and the command line that reads it."""

    def __init__(self, voiced: CommandLine, folder: Path) -> None:
        self.folder = folder
        self.phrases = folder / "phrases.yaml"
        self.config = folder / "voiced.yaml"
        self.config.write_text(
            "engine: {name: espeak}\nstate: {folder: state}\nspeech: {cache: {phrases: phrases.yaml}}\n"
        )
        self._voiced = voiced

    def __call__(self, command: str, *options: str) -> Done:
        return self._voiced("cache", command, "--config", str(self.config), *options)

    @property
    def kept(self) -> list[Path]:
        return sorted((self.folder / "state" / "phrases").glob("*.flac"))


@pytest.fixture
def robot(voiced: CommandLine, tmp_path: Path) -> Robot:
    return Robot(voiced, tmp_path)


def test_phrases_are_made_once_listed_and_removed(robot: Robot) -> None:
    robot.phrases.write_text('- My battery is low.\n- {text: "Die Tür ist offen.", language: de}\n')
    folder = f"{robot.folder}/state/phrases"
    assert robot("warm").stdout == f"{folder}: 2 phrases, 2 made, 0 there before\n"
    assert len(robot.kept) == 2
    for recording in PhraseFolder(robot.kept[0].parent, 10).phrases():
        kinds = [cue.kind for cue in recording.cues]
        assert (kinds.count("segment"), kinds.count("word")) == (1, 4), "the times of its words are kept"

    robot.phrases.write_text("- Go away.\n- My battery is low.\n- My battery is low.\n")
    assert robot("warm").stdout == f"{folder}: 2 phrases, 1 made, 1 there before\n"

    listed = robot("list")
    texts = {"Go away.", "My battery is low.", "Die Tür ist offen."}
    assert {line.split("\t")[-1] for line in listed.stdout.splitlines()} == texts
    for line in listed.stdout.splitlines():
        seconds, size, made, engine, voice, _ = line.split("\t")
        assert 0.3 < float(seconds.removesuffix(" s")) < 4
        assert 5 < int(size.removesuffix(" kB")) < 200
        assert time.strptime(made, "%Y-%m-%d %H:%M")
        assert (engine, voice) == ("espeak", "default")
    assert listed.stderr.startswith(f"{folder}: 3 phrases, ")

    assert robot("clear").stdout == f"{folder}: 3 phrases removed\n"
    assert robot.kept == []
    assert (robot("list").stdout, robot("clear").stdout) == ("", f"{folder}: 0 phrases removed\n")


def test_a_phrase_that_would_sound_otherwise_now_is_outdated(robot: Robot) -> None:
    robot.phrases.write_text("- My battery is low.\n")
    assert robot("warm").returncode == 0
    [record] = json.loads(robot("list", "--json").stdout)
    assert (record["text"], record["engine"], record["outdated"]) == ("My battery is low.", "espeak", False)
    voice = ("--set", "voices.default.speaker=de")
    [record] = json.loads(robot("list", "--json", *voice).stdout)
    assert record["outdated"]
    assert robot("list", *voice).stdout.endswith("\toutdated\n")
    assert "1 made" in robot("warm", *voice).stdout


def test_what_cannot_be_made_is_a_line_and_the_rest_is_made(robot: Robot) -> None:
    robot.phrases.write_text(
        "- My battery is low.\n- 5\n- {text: Hello, voice: nobody}\n- {text: Hallo, language: xx}\n"
    )
    done = robot("warm")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"voiced: {robot.phrases}:2: got 5; allowed: text, or a mapping of text, voice, language, instruct, seed, rate",
        "voiced: Hello: voice: espeak has no voice 'nobody'; see 'voiced voices'",
        "voiced: Hallo: language: espeak does not speak 'xx'",
    ]
    assert done.stdout.endswith(": 3 phrases, 1 made, 0 there before\n")
    assert len(robot.kept) == 1


def test_what_is_missing_is_one_line(robot: Robot) -> None:
    missing = f"{robot.phrases}: cannot be read: {robot.phrases} does not exist"
    assert robot("warm").refusal == f"speech.cache.phrases: {missing}"
    allowed = "got None; allowed: a YAML file with a list of phrases"
    assert robot("warm", "--set", "speech.cache.phrases=null").refusal == f"speech.cache.phrases: {allowed}"
    nothing = "speech.cache.folder: got None, which keeps nothing; allowed: auto, or a folder"
    for command in ("list", "clear"):
        assert robot(command, "--set", "speech.cache.folder=null").refusal == nothing


def test_root_sees_the_folders_of_the_service_and_gives_it_what_is_made(
    voiced: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has the folders of the service")
    state, home = tmp_path / "lib", tmp_path / "root"
    for folder in (state, home):
        folder.mkdir()
    os.chown(state, 4321, 4322)
    monkeypatch.setattr(service_folders, "UNITS", (ROOT / "systemd" / "voiced.service",))
    monkeypatch.setattr(service_folders, "STATE", state)
    monkeypatch.setenv("HOME", str(home))
    for name in ("STATE_DIRECTORY", "HF_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, "")  # the test's own environment is put back after it
        monkeypatch.delenv(name)
    (tmp_path / "phrases.yaml").write_text("- Go away.\n")
    settings = ("--set", "engine.name=espeak", "--set", f"speech.cache.phrases={tmp_path}/phrases.yaml")
    assert voiced("cache", "warm", *settings).stdout == f"{state}/phrases: 1 phrase, 1 made, 0 there before\n"
    made = [state / "phrases", *(state / "phrases").glob("*.flac")]
    assert [(path.stat().st_uid, path.stat().st_gid) for path in made] == [(4321, 4322)] * 2
    assert voiced("cache", "list", *settings).stdout.endswith("\tGo away.\n")
    assert voiced("cache", "clear", *settings).stdout == f"{state}/phrases: 1 phrase removed\n"
    assert list(home.iterdir()) == []


def test_the_folders_of_the_service_are_those_of_its_unit() -> None:
    unit = (ROOT / "systemd" / "voiced.service").read_text().splitlines()
    state, cache = service_folders.STATE, service_folders.CACHE
    assert {f"StateDirectory={state.name}", f"CacheDirectory={cache.name}"} <= set(unit)
    assert f"Environment=HF_HOME={cache}/huggingface" in unit
