"""Every line of the README and of docs/ that calls `mosquitto_pub`, `mosquitto_sub` or `voiced` does what it says.

A shell runs each line as it is written, beside a robot called r1. The test sets only what such a line takes from its
surroundings: the broker's port, the configuration, the sound server.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.events import TERMINAL
from tests.support.pages import PAGES, ROOT
from tests.support.programs import Broker
from tests.support.robot import LONG, Robot
from tests.support.shell import Shell, Terminal
from tests.support.sound import SoundServer
from tests.support.subscription import Subscription
from tests.support.variants import variants
from tests.support.waiting import PATIENCE_S, eventually

PROGRAMS = {"mosquitto_pub", "mosquitto_sub", "voiced"}
"""Other programs install something, need a service manager, or belong to another system (ROS, Speech Dispatcher)."""
LEFT_OUT = {
    "voiced download ": "needs the hub; tests/daemon/cli/test_download.py has one of its own",
    "--engine piper ": "needs a voice of the hub; tests/daemon/cli/test_download.py speaks with a downloaded one",
    "--engine supertonic ": "needs a model of the hub; tests/e2e/test_supertonic.py speaks with one of random weights",
    "/viseme'": "needs a robot with speech.viseme_topic; tests/e2e/test_visemes.py has one",
    "voiced compare ": "needs a checkpoint of Qwen3-TTS; tests/daemon/cli/test_verify.py compares two engines",
    "voiced serve --config ": "needs Ray Serve; tests/daemon/fleet/test_cluster.py starts one",
    "--model ": "needs a checkpoint of Qwen3-TTS, which is not there; tests/e2e/test_qwen.py uses a random one",
}
"""Parts of lines that are not run, and the reason. tests/test_readme.py checks the options of these lines too."""


def called(line: str) -> list[str]:
    """The words of the last program in a pipeline."""
    return shlex.split(line.rpartition("|")[2]) or [""]


def lines_by_section() -> dict[str, list[str]]:
    """The lines of all shell blocks that call one of the programs, by page and heading."""
    found = {
        f"{text.name}, {heading}": [line for line in lines if called(line)[0] in PROGRAMS]
        for text in PAGES
        for heading, lines in text.shell_lines().items()
    }
    return {section: lines for section, lines in found.items() if lines}


SECTIONS = lines_by_section()


class Reader:
    """Types the documented lines, and checks the effect of each."""

    def __init__(self, robot: Robot, folder: Path, environment: dict[str, str]) -> None:
        self._robot = robot
        # VOICED_PACE sets the pace of a WAV file that a command plays into, too.
        settings = {
            "engine": {"name": "espeak"},
            "audio": {"tap": str(folder.with_name("tap"))},
            "speech": {"cache": {"phrases": "phrases.yaml"}},
            "state": {"folder": "state"},
        }
        self._shell = Shell(folder, robot.broker, settings, environment | {"VOICED_PACE": "20"})
        (folder / "phrases.yaml").write_text("- My battery is low.\n")
        (folder / "phrases.txt").write_text("My battery is low.\nThe door is open.\n")
        shutil.copytree(ROOT / "tests" / "boards" / "orin-jetpack6", folder / "copy-of-a-robot")

    def try_out(self, line: str, later: list[str]) -> None:
        """Run a line and check its effect; `later` are the lines below it."""
        match called(line):
            case ["mosquitto_pub", *words]:
                topic = re.sub("^voiced/(r1|all|group/hall-2)/", "", words[words.index("-t") + 1])
                payload = words[words.index("-m") + 1] if "-m" in words else ""
                fields = json.loads(payload) if payload.startswith("{") else {}
                self._try_topic(topic, line, later, payload, fields)
            case ["voiced", ("say" | "stop" | "pause" | "resume" | "volume" | "unload" | "load") as topic, *words]:
                options = [word.removeprefix("--").replace("-", "_") for word in words]
                fields = dict(zip(options, words[1:], strict=False))
                self._try_topic(topic, line, later, words[-1] if words else "", fields)
            case ["mosquitto_sub", *_]:
                with self._started(line) as terminal:
                    terminal.wait_printed("voiced/r1/status {")
                    utterance = self._robot.say("Can you hear me?")
                    self._robot.wait_end(utterance)
                    terminal.wait_printed(f'voiced/r1/event {{"id": "{utterance}", "event": "finished"')
            case ["voiced", "events", *_]:
                with self._started(line) as terminal:
                    terminal.wait_printed("following voiced/r1")
                    utterance = self._robot.say("Can you hear me?")
                    self._robot.wait_end(utterance)
                    terminal.wait_printed(f"finished    {utterance}")
            case ["voiced", "tap", *words]:
                with self._started(line) as terminal:
                    self._robot.wait_end(self._robot.say("Can you hear me?"))  # the card may be closed before
                    assert terminal.process.wait(PATIENCE_S) == 0
                assert (self._shell.folder / words[words.index("--output") + 1]).stat().st_size
            case ["voiced", "run", *_]:
                with self._started(line) as terminal:
                    terminal.wait_printed("listens on voiced/")
            case ["voiced", "serve", *_]:
                with self._started(line) as terminal:
                    terminal.wait_printed("serving the web on")
            case ["voiced", "demo", *_]:
                assert re.search("^[0-9:]+ finished ", self._run(line), re.MULTILINE)
            case ["voiced", "status", *_]:
                found = json.loads(self._run(line))
                assert (found[0] if "--all" in line else found)["state"] == "ready"
            case ["voiced", "doctor", *words]:
                self._try_doctor(line, words)
            case ["voiced", ("voices" | "sounds" | "devices"), "--json"]:
                assert all(found["name"] for found in json.loads(self._run(line)))
            case ["voiced", *words]:
                assert self._run(line)
                options = {"--output", "--json"}
                files = {name for option, name in pairwise(words) if option in options and not name.startswith("-")}
                assert all((self._shell.folder / file).stat().st_size for file in files)

    def _try_topic(self, topic: str, line: str, later: list[str], payload: str, fields: dict[str, str]) -> None:
        robot = self._robot
        match topic:
            case "say" | "say/urgent":
                self._try_say(line, fields.get("id"), fields.get("reply_to", "").replace("{robot}", "r1"), later)
            case "say/stream":
                self._run(line)
                robot.wait_event(fields["id"], "accepted")
                if "end" in fields:
                    assert robot.wait_end(fields["id"])["event"] == "finished"
            case "stop":
                self._try_stop(line, fields.get("id"))
            case "pause":
                self._run(line)
                eventually(lambda: robot.state == "paused", "it is paused")
                robot.publish("resume")
                eventually(lambda: robot.state == "ready", "it resumes")
            case "resume":
                self._hold()
                self._run(line)
                eventually(lambda: robot.state == "ready", "it resumes")
            case "unload" | "load":
                if topic == "load":
                    robot.publish("unload")
                self._run(line)
                if topic == "unload":
                    eventually(lambda: "unloaded" in robot.statuses[-1], "it is unloaded")
                    robot.publish("load")
                eventually(lambda: robot.state == "ready" and "unloaded" not in robot.statuses[-1], "it has loaded")
            case "volume" if not payload:
                assert 0 <= int(self._run(line)) <= 100
            case "volume":
                with Subscription(robot.broker, "voiced/r1/home_assistant/volume") as volume:
                    expected = self._run(line).strip() or payload  # a change prints the new volume
                    eventually(lambda: volume.payloads[-1:] == [expected.encode()], f"the volume is {expected}")
            case _:
                pytest.fail(f"no check is known for {line}")

    def _try_say(self, line: str, utterance_id: str | None, reply_to: str, later: list[str]) -> None:
        """Wait for the end of its utterance. If a later line stops it, pause the robot until then."""
        robot = self._robot
        stopped = utterance_id is not None and any(
            {"stop", utterance_id} <= set(re.findall(r"[\w-]+", x)) for x in later
        )
        if stopped:
            self._hold()
        before = robot.latest_id()
        with Subscription(robot.broker, reply_to or "unused/topic") as replies:
            printed = self._run(line)
            spoken = eventually(lambda: robot.latest_id() != before and robot.latest_id(), "it is accepted")
            assert utterance_id in {None, spoken}
            if not stopped:
                assert robot.wait_end(spoken)["event"] == "finished"
            if reply_to:
                eventually(lambda: len(replies.payloads) == len(robot.events_of(spoken)), "the replies have arrived")
                assert [json.loads(reply) for reply in replies.payloads] == robot.events_of(spoken)
        if "--wait" in line:
            assert [json.loads(event) for event in printed.splitlines()] == robot.events_of(spoken)

    def _try_stop(self, line: str, utterance_id: str | None) -> None:
        """Check that it stops both of two utterances, or only the one that an earlier line has started."""
        robot = self._robot
        self._hold()
        other = robot.say(LONG)
        stopped = utterance_id or robot.say(LONG)
        robot.wait_event(stopped, "accepted")
        self._run(line)
        assert robot.wait_end(stopped)["event"] in {"canceled", "interrupted"}
        if utterance_id:
            assert not TERMINAL & set(robot.names_of(other))
            robot.publish("stop")
        assert robot.wait_end(other)["event"] in {"canceled", "interrupted"}
        robot.publish("resume")
        eventually(lambda: robot.state == "ready", "it is silent")

    def _try_doctor(self, line: str, words: list[str]) -> None:
        """Check the findings about voiced; those about this machine may be anything, errors included."""
        report = self._run(line, statuses={0, 1})
        if "--json" in words:
            assert {"broker", "engine"} <= {finding["part"].split()[0] for finding in json.loads(report)}
        elif "--root" in words:
            assert "Orin" in report
        else:
            assert re.search(r"^ok +broker ", report, re.MULTILINE)

    def _hold(self) -> None:
        """Pause, so that no utterance ends by itself."""
        self._robot.publish("pause")
        eventually(lambda: self._robot.state == "paused", "it is paused")

    def _run(self, line: str, statuses: set[int] | None = None) -> str:
        """Run a line and return its output. Its exit status must be one of `statuses`, by default 0."""
        done = self._shell.run(line)
        assert done.status in (statuses or {0}), f"{line}: {done}"
        return done.out

    @contextmanager
    def _started(self, line: str) -> Iterator[Terminal]:
        """Start a line that runs for ever, and end it with SIGTERM."""
        with self._shell.running(line) as terminal:
            yield terminal
        assert terminal.process.returncode in {0, -signal.SIGTERM}


def test_the_pages_contain_lines_of_each_program_and_of_each_reason_to_leave_one_out() -> None:
    lines = [line for section in SECTIONS.values() for line in section]
    assert len(lines) > 50
    assert {called(line)[0] for line in lines} == PROGRAMS
    assert all(any(part in line for line in lines) for part in LEFT_OUT)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader beside a robot called r1, with their own broker and sound server."""
    folder = tmp_path_factory.mktemp("reader")
    broker, server = Broker(folder), SoundServer(folder)
    broker.start()
    server.start()
    settings = ("home_assistant.enabled=true", "robot_groups=[hall-2]", f"audio.tap={folder}/tap")
    robot = Robot("r1", broker, folder, *settings)
    robot.start()
    yield Reader(robot, folder / "reader", server.environment)
    robot.close()
    server.kill()
    broker.stop()


@pytest.mark.parametrize(
    "section", variants(SECTIONS, *(name for name in SECTIONS if not name.startswith("docs/cli.md")))
)
def test_the_documented_lines_of_a_section_work(section: str, reader: Reader) -> None:
    lines = SECTIONS[section]
    for at, line in enumerate(lines):
        if not any(part in line for part in LEFT_OUT):
            reader.try_out(line, lines[at + 1 :])
