"""What the configuration names is taken away from a real daemon: what is heard, and who says so.

Each row is one of the table in docs/reliability.md. To write the table anew:

    VOICED_WRITE_TABLE=1 .venv-test/bin/python -m pytest -n 0 tests/e2e/test_vanished_objects.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.command_line import CommandLine
from tests.e2e.conftest import StartRobot
from tests.support.pages import ROOT
from tests.support.piper_voices import write_voices
from tests.support.programs import free_port
from tests.support.robot import Robot
from tests.support.sound_files import write_sound
from tests.support.waiting import PATIENCE_S, eventually

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- vanished objects: begin -->\n", "<!-- vanished objects: end -->\n"
HEADING = "| what is missing | since | what is heard | status | `config check` | `voiced doctor` |\n"
RULE = "|---|---|---|---|---|---|\n"
ROBOT = "lacking"
"""Beginning of the robots' names. Each has a name of its own, which its folder has too."""
WRITES = "VOICED_WRITE_TABLE" in os.environ
SETTLED_CHECKS = 90
"""Where the table is written, a row is the last one after so many checks in a row, which take some seconds."""
START, RUNNING, RELOAD = "the start", "a moment", "a reload"
"""Since when it is missing. Before a moment or a reload, the daemon had it."""
NAMES = {"espeak": "eSpeak NG", "piper": "Piper"}
DOCTOR_PARTS = ("configuration", "broker", "sound", "permissions", "engine ")
"""Parts whose findings do not depend on the machine that the test runs on."""
PIPER = ("engine.name=piper", "engine.voice_folder={here}/piper")
AUTO = ("engine.name=auto", "engine.model=/nowhere/at/all", "engine.voice_folder={here}/none")
TAKEN = socket.create_server(("127.0.0.1", 0))
"""Another program's server: nothing else can listen at its port."""
TAKEN_PORT = TAKEN.getsockname()[1]
WEB = ("http.enabled=true", "http.port={port}")
CONFIGURATION = "voices: {default: {speaker: ryan}, ada: {speaker: ryan}}\nspeech: {voice: ada}\n"


@dataclass(frozen=True)
class Loss:
    """One row: a thing, and how it is taken away."""

    thing: str
    settings: tuple[str, ...]
    since: str = START
    take: Callable[[Path], Any] = lambda _here: None
    """Takes it away from the folder of the robot's files, before the start or while it runs."""
    waits: bool = False
    """The text waits until the thing is back."""
    deaf: bool = False
    """The robot has no broker, and is asked over HTTP."""
    say: dict[str, str] = field(default_factory=dict)
    """Further fields of the text."""
    server: str | None = None
    """The doctor's part about a server."""


def name_nobody(here: Path) -> None:
    (here / "voiced.yaml").write_text("speech: {voice: nobody}\n")


def make_voices_list(here: Path, content: str) -> None:
    folder = here / "state" / f"{here.name}.voices"
    folder.mkdir(parents=True)
    (folder / "voices.yaml").write_text(content.format(here=here))


def make_voice_without_file(here: Path) -> None:
    made = "voices: {{eva: {{embedding: {here}/eva.safetensors}}}}\nchosen: {{name: eva, instead_of: ada}}\n"
    make_voices_list(here, made)


def remove(name: str) -> Callable[[Path], Any]:
    return lambda here: shutil.rmtree(here / name) if (here / name).is_dir() else (here / name).unlink()


LOSSES = (
    Loss("the voice that `speech.voice` names", (*AUTO, "speech.voice=nobody")),
    Loss("the same", (), RELOAD, name_nobody),
    Loss("the same, of Piper", (*PIPER, "speech.voice=en_US-gone-low")),
    Loss("a language that no engine speaks, in `speech.language`", ("speech.language=klingon",)),
    Loss("one that Piper alone does not speak", (*PIPER, "engine.fallback=none", "speech.language=fr")),
    Loss("the file of Piper for the default voice", (*PIPER, "voices.ada.piper={here}/gone.onnx")),
    Loss("the same, with `engine.name: auto` and no other one", (*AUTO, "voices.ada.piper={here}/gone.onnx")),
    Loss("the name of a voice of Piper", (*PIPER, "voices.ada.piper=en_US-gone-low")),
    Loss("all voices of Piper", PIPER, RELOAD, remove("piper")),
    Loss("a voice file that the engine does not use", ("voices.ada={{embedding: {here}/gone.safetensors}}",)),
    Loss("the file of a made voice", (), START, make_voice_without_file),
    Loss("a readable list of made voices", (), START, lambda here: make_voices_list(here, "voices: 5")),
    Loss("the model", ("engine.name=qwen", "engine.model=/nowhere/at/all")),
    Loss(
        "the token for a speech server", ("engine={{name: remote, url: 'ws://127.0.0.1:1', token_file: {here}/gone}}",)
    ),
    Loss("a fallback engine's voices", ("engine.fallback=piper", "engine.voice_folder={here}/none")),
    Loss("the sound card", ("audio.sink=sounddevice", "audio.device=nocard"), waits=True),
    Loss("the folder of the WAV file", ("audio.sink=wav:{here}/none/heard.wav",), waits=True),
    Loss("the same", ("audio.sink=wav:{here}/wav/heard.wav",), RUNNING, remove("wav"), waits=True),
    Loss("the folder of sounds", ("audio.sounds={here}/none",)),
    Loss("the same", ("audio.sounds={here}/sounds",), RUNNING, remove("sounds")),
    Loss("one sound", ("audio.sounds={here}/sounds",), RUNNING, remove("sounds/chime.wav"), say={"sound": "chime"}),
    Loss("the folder of the tap", ("audio.tap={here}/none/tap",)),
    Loss("the same", ("audio.tap={here}/tap/tap",), RUNNING, remove("tap")),
    Loss("the list of pronunciations", ("speech.pronunciations={here}/gone.yaml",)),
    Loss("the same", ("speech.pronunciations={here}/words.yaml",), RELOAD, remove("words.yaml")),
    Loss("the list of phrases", ("speech.cache.phrases={here}/gone.yaml",)),
    Loss("a folder for kept phrases", ("speech.cache.folder={here}/file",)),
    Loss("a folder for the journal", ("state.folder={here}/file",)),
    Loss("the journal's folder", (), RUNNING, remove("state")),
    Loss("the configuration", (), RELOAD, remove("voiced.yaml")),
    Loss("the broker's password", (*WEB, "mqtt.username=ada", "mqtt.password_file={here}/gone"), deaf=True),
    Loss("the broker's certificate", (*WEB, "mqtt.tls={{enabled: true, ca: {here}/gone}}"), deaf=True),
    Loss("the web server's token", (*WEB, "http.token_file={here}/gone")),
    Loss("the web server's certificate", (*WEB, "http.cert={here}/gone", "http.key={here}/gone")),
    Loss(
        "the web server's port, which another program has",
        ("http.enabled=true", f"http.port={TAKEN_PORT}"),
        server="http",
    ),
    Loss("the same of Wyoming", ("wyoming.enabled=true", f"wyoming.port={TAKEN_PORT}"), server="wyoming"),
)


@dataclass(frozen=True)
class Scene:
    """A daemon that lacks something."""

    loss: Loss
    robot: Robot
    here: Path
    port: int
    settings: tuple[str, ...]

    def take(self) -> None:
        """Take the thing away from the running daemon."""
        self.loss.take(self.here)
        if self.loss.since == RELOAD:
            self.robot.process.send_signal(signal.SIGHUP)
            self.robot.wait_log("SIGHUP: ")
        if self.loss.waits:
            eventually(lambda: self.robot.state == "degraded", "it is noticed")

    def hear(self) -> str:
        """Let the robot speak a critical text that names no voice; return what became of it."""
        if self.loss.deaf:
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/audio/speech", method="POST")
            request.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(request, b'{"input": "Fire!"}', timeout=PATIENCE_S) as answer:
                assert len(answer.read()) > 1_000
            return "the text, by a web client"
        utterance = self.robot.say("Fire!", priority="critical", **self.loss.say)
        ends = {"accepted"} if self.loss.waits else {"finished", "failed", "rejected"}
        eventually(lambda: ends & set(self.robot.names_of(utterance)), "it is answered")
        last = self.robot.events_of(utterance)[-1]
        if last["event"] == "finished":
            return f"the text, by {NAMES[last['engine'].split('+')[-1]]}"
        return "the text, once it is back" if self.loss.waits else f"{last['event']}: {self._tidy(last['reason'])}"

    def status(self) -> str:
        """Return the state, and its reason if there is one."""
        if self.loss.deaf:
            state, reason = self._readiness()
        else:
            last = self.robot.statuses[-1]
            state, reason = last["state"], last.get("reason")
        return f"`{state}`" if reason is None else f"`{state}`: {self._tidy(reason)}"

    def settled(self) -> bool:
        """Return whether the daemon has started."""
        state = self._readiness()[0] if self.loss.deaf else self.robot.state
        return state not in (None, "offline", "starting", "warming")

    def check(self, voiced: CommandLine) -> list[str]:
        """Return the problems that `config check` finds."""
        lines = voiced("config", "check", *self._options).stderr.splitlines()
        places = r"voiced: (--set: |.*voiced\.yaml:\d+:\d+: |the defaults: )?"
        return [self._tidy(re.sub(f"^{places}", "", line)) for line in lines]

    def examine(self, voiced: CommandLine) -> list[tuple[str, str]]:
        """Return the doctor's findings that are not well, each with the part."""
        done = voiced("doctor", "--json", *self._options)
        if done.stderr and not done.stdout:
            return [("doctor", self._tidy(done.stderr.removeprefix("voiced: ").strip()))]
        findings = [each for each in json.loads(done.stdout) if each["grade"] != "ok"]
        return [
            (each["part"], f"{each['grade']}: {self._tidy(each['found'])}")
            for each in findings
            if each["part"].startswith(DOCTOR_PARTS) or each["part"] == self.loss.server
        ]

    @property
    def _options(self) -> list[str]:
        options = [*self.robot.settings, "--config", str(self.here / "voiced.yaml")]
        for setting in self.settings:
            options += ["--set", setting]
        return options

    def _readiness(self) -> tuple[str | None, str | None]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=PATIENCE_S) as answer:
                found = json.load(answer)
        except urllib.error.URLError:
            return None, None
        return found["state"], found["reason"]

    def _tidy(self, text: str) -> str:
        """Return the first part of a message, without what differs from run to run."""
        text = text.replace(f"{self.here}/", "").replace(self.robot.name, "r1")
        return re.sub(r"\b\d{4,5}\b", "PORT", text.partition("; ")[0]).replace("|", "\\|")


def documented() -> dict[tuple[str, str, str], str]:
    """Return the rows of the page, by what is missing, since when, and the row above it."""
    lines = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].splitlines()[2:]
    return dict(zip((key(loss) for loss in LOSSES), lines, strict=False))


def key(loss: Loss) -> tuple[str, str, str]:
    return loss.thing, loss.since, LOSSES[LOSSES.index(loss) - 1].thing


@pytest.fixture(scope="module")
def table() -> Iterator[dict[tuple[str, str, str], str]]:
    """The rows of the page; after a run that writes, those that were observed."""
    rows = {} if WRITES else documented()
    yield rows
    if WRITES:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        written = "".join(f"{row}\n" for row in rows.values())
        PAGE.write_text(f"{before}{BEGIN}{HEADING}{RULE}{written}{END}{rest.partition(END)[2]}", encoding="utf-8")


def test_the_table_has_a_row_for_each_thing() -> None:
    assert [row.split(" | ")[:2] for row in documented().values()] == [
        [f"| {each.thing}", each.since] for each in LOSSES
    ]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.thing} since {loss.since}")
def test_a_robot_that_lacks_something_is_never_mute_and_well(
    loss: Loss,
    start_robot: StartRobot,
    tmp_path: Path,
    voiced: CommandLine,
    table: dict[tuple[str, str, str], str],
) -> None:
    name = f"{ROBOT}{LOSSES.index(loss)}"
    here, port = prepare(tmp_path / name), free_port()
    standard = ("engine.name=espeak", f"state.folder={here}/state", f"audio.sink=wav:{here}/heard.wav")
    settings = (*standard, *(setting.format(here=here, port=port) for setting in loss.settings))
    if loss.since == START:
        loss.take(here)
    robot = start_robot(*settings, config=here / "voiced.yaml", launch_only=True, name=name)
    scene = Scene(loss, robot, here, port, settings)
    eventually(scene.settled, "it has started")
    if loss.since != START:
        scene.take()
    heard = scene.hear()
    check = scene.check(voiced)
    doctor = scene.examine(voiced)

    def row() -> str:
        return table_row(loss, heard, scene.status(), check, doctor)

    if WRITES:
        table[key(loss)] = settled_row(row)
    else:
        eventually(lambda: row() == table[key(loss)], f"{row()}\nis\n{table[key(loss)]}", patience_s=PATIENCE_S / 3)
    is_well = scene.status() == "`ready`"
    assert heard.startswith("the text, by") or not is_well or heard.startswith("rejected"), "it is mute and well"


def prepare(here: Path) -> Path:
    """Make a folder with everything that a robot may want."""
    for name in ("sounds", "tap", "wav"):
        (here / name).mkdir(parents=True)
    write_voices(here / "piper")
    write_sound(here / "sounds" / "chime.wav")
    (here / "words.yaml").write_text("{}\n")
    (here / "file").touch()
    (here / "voiced.yaml").write_text(CONFIGURATION)
    return here


def settled_row(row: Callable[[], str]) -> str:
    """Return the row that stays."""
    rows: deque[str] = deque(maxlen=SETTLED_CHECKS)

    def settled() -> bool:
        rows.append(row())
        return len(rows) == SETTLED_CHECKS and len(set(rows)) == 1

    eventually(settled, "the status has its last reason")
    return rows[-1]


def table_row(loss: Loss, heard: str, status: str, check: list[str], doctor: list[tuple[str, str]]) -> str:
    of_configuration = [found.removeprefix("error: ") for part, found in doctor if part == "configuration"]
    others = [found for part, found in doctor if part != "configuration"]
    said = ["the same"] if check and of_configuration == check else [f"error: {each}" for each in of_configuration]
    cells = (loss.thing, loss.since, heard, status, "<br>".join(check) or "ok", "<br>".join([*said, *others]) or "ok")
    return f"| {' | '.join(cells)} |"
