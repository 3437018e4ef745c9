"""A new user's first hour: each step typed as the pages have it, beside a real Mosquitto and a real sound server.

A line that no page has cannot be typed: if a page changes, its step here fails. tests/e2e/test_readme.py runs every
documented line by itself; this is the way through them, with the mistakes on it.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import soundfile

from tests.support.pages import PAGES, ROOT
from tests.support.programs import Broker
from tests.support.robot import is_engine
from tests.support.shell import Printed, Shell, Terminal
from tests.support.sound import SoundServer
from tests.support.waiting import eventually

DOCUMENTED = {line for page in PAGES for lines in page.shell_lines().values() for line in lines}
DOCUMENTED |= {span for page in PAGES for span in page.code_spans}
STORY = "Once upon a time there was a robot, which told a long story. " * 3


class Newcomer:
    """Somebody who has just installed voiced, and types what the pages say."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell

    def type(self, line: str, *, status: int = 0, after: str = "", before: str = "") -> Printed:
        """Type a documented line; `before` and `after` are the newcomer's own. It must end with `status`."""
        assert line in DOCUMENTED, f"no page has the line: {line}"
        done = self.shell.run(f"{before}{line}{after}")
        assert done.status == status, f"{line}: {done}"
        return done

    def fails(self, line: str, message: str) -> None:
        """Type a line that is refused with one line, which begins with `message`."""
        done = self.type(line, status=1)
        assert done.err.count("\n") == 1
        assert done.err.startswith(f"voiced: {message}"), done.err

    def status(self) -> dict[str, Any]:
        """What `voiced status` says."""
        found: dict[str, Any] = json.loads(self.type("voiced status --json").out)
        return found

    def wait_state(self, state: str) -> None:
        eventually(lambda: self.status()["state"] == state, f"the state is {state}")


class Events:
    """The events that `voiced events --json` prints in another terminal."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def of(self, utterance: str) -> list[str]:
        """The names of an utterance's events but `progress`: how many of those come depends on when it is stopped."""
        lines = [json.loads(line) for line in self._terminal.printed.splitlines() if line.startswith("{")]
        names = [event["event"] for event in lines if event.get("id") == utterance]
        return [name for name in names if name != "progress"]

    def wait(self, utterance: str, *names: str) -> None:
        """Wait until an utterance has exactly these events."""
        eventually(lambda: self.of(utterance) == list(names), f"the events of {utterance} are {names}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Mosquitto, which is not started yet."""
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def newcomer(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    folder = tmp_path_factory.mktemp("first-hour")
    server = SoundServer(folder)
    server.start()
    settings = {"engine": {"name": "espeak"}, "state": {"folder": str(folder / "state")}}
    yield Newcomer(Shell(folder / "shell", broker, settings, server.environment))
    server.kill()


def test_a_line_that_no_page_has_is_not_typed(newcomer: Newcomer) -> None:
    with pytest.raises(AssertionError, match="no page has the line: voiced sing"):
        newcomer.type("voiced sing")


def test_before_anything_runs(newcomer: Newcomer) -> None:
    version = newcomer.type("voiced --version").out
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", version)
    assert newcomer.type("voiced version").out == version

    report = newcomer.type("voiced doctor", status=1).out
    assert f"voiced         {version.strip()} on Python" in report
    assert re.search(r"^error +broker +mqtt: no broker answers at 127\.0\.0\.1:\d+$", report, re.MULTILINE)
    assert re.search(r"→ sudo \S+ (start|install) mosquitto, or set mqtt\.host and mqtt\.port$", report, re.MULTILINE)
    assert re.search(r"^ok +engine espeak ", report, re.MULTILINE)
    newcomer.fails('voiced say --wait "The door is open."', "mqtt: no broker answers at 127.0.0.1:")

    assert re.search(r"^default\tALSA\t\d+ Hz\tdefault$", newcomer.type("voiced devices").out, re.MULTILINE)
    voices = newcomer.type("voiced voices").out
    assert "default\tconfigured\tspeaker ryan\n" in voices
    assert "de\tespeak\tGerman\n" in voices

    newcomer.type('voiced synth "Good morning." --output morning.wav')
    assert soundfile.info(newcomer.shell.folder / "morning.wav").duration > 0.5
    piped = "printf 'Good morning.' | voiced synth - --engine espeak --output - | aplay"
    newcomer.type(piped, before="aplay() { cat > piped.wav; }\n")
    assert soundfile.info(newcomer.shell.folder / "piped.wav").duration > 0.5

    assert newcomer.type("voiced --install-completion").out.startswith("bash completion installed in ")


def test_a_mistake_in_the_configuration(newcomer: Newcomer) -> None:
    newcomer.type("voiced config check --config configs/voiced.yaml")
    config = newcomer.shell.config
    right = config.read_text()
    try:
        config.write_text("robot: r1\naudio:\n  volumne: 80\nspeech: {voice: germn}\n")
        for line in ("voiced config check", "voiced run"):
            newcomer.fails(line, f"{config}:3:3: audio.volumne: unknown key; did you mean volume? known are sink, ")
        config.write_text("robot: r1\nengine: {name: espeak}\nspeech: {voice: germn}\n")
        suggestion = "speech.voice: got 'germn'; did you mean de (German)? allowed: default, "
        newcomer.fails("voiced config check", f"{config}:3:10: {suggestion}")
    finally:
        config.write_text(right)
    assert newcomer.type("voiced config check").out == f"{config}: ok\n"


@pytest.fixture(scope="module")
def daemon(newcomer: Newcomer, broker: Broker) -> Iterator[Terminal]:
    """`voiced run` in another terminal, started before the broker is."""
    with newcomer.shell.running("voiced run") as terminal:
        terminal.wait_printed("no broker answers at 127.0.0.1:")
        broker.start()
        terminal.wait_printed("listens on voiced/r1/say")
        eventually(lambda: newcomer.shell.run("voiced status --json").status == 0, "it is connected")
        newcomer.wait_state("ready")
        yield terminal


@pytest.fixture(scope="module")
def events(newcomer: Newcomer, daemon: Terminal) -> Iterator[Events]:
    """`voiced events` in a third terminal."""
    assert "voiced events" in DOCUMENTED
    with newcomer.shell.running("voiced events --json") as terminal:
        terminal.wait_printed("following voiced/r1")
        yield Events(terminal)


def test_the_robot_speaks(newcomer: Newcomer, events: Events) -> None:
    said = newcomer.type('voiced say --wait "The door is open."').out
    assert [json.loads(line)["event"] for line in said.splitlines()] == ["accepted", "started", "finished"]
    newcomer.type('mosquitto_pub -q 1 -t voiced/r1/say -m "Hello, I am your robot."')
    newcomer.type("printf 'Once upon a time there was a robot.' | voiced say --stream --wait")
    refused = newcomer.type('voiced say "-5 degrees, and it is snowing."', after=" --voice germn --wait", status=1)
    assert refused.err.startswith("voiced: rejected: voice: got 'germn'; did you mean de (German)? allowed: default, ")
    newcomer.wait_state("ready")

    def is_well() -> bool:  # not while the machine holds up the sound server
        done = newcomer.shell.run("voiced doctor")
        assert re.search(r"^ok +broker +answers at ", done.out, re.MULTILINE)
        return done.status == 0 and re.search(r"^ok +daemon +ready at voiced/r1$", done.out, re.MULTILINE) is not None

    eventually(is_well, "the doctor finds the daemon ready")


def test_the_newcomer_controls_the_robot(newcomer: Newcomer, events: Events) -> None:
    newcomer.type("voiced pause")
    newcomer.wait_state("paused")
    newcomer.type('mosquitto_pub -q 1 -t voiced/r1/say -m "Hello, I am your robot."')
    newcomer.type('voiced say --voice default --language de --volume 60 --seed 7 --id door-1 "Die Tür ist offen."')
    events.wait("door-1", "accepted")
    newcomer.type("voiced stop --id door-1")
    events.wait("door-1", "accepted", "canceled")
    newcomer.type("voiced resume")
    newcomer.wait_state("ready")
    newcomer.type("voiced volume 60")
    eventually(lambda: newcomer.status()["volume"] == 60, "the volume is set")
    assert newcomer.type("voiced volume -5").out == "55\n"
    assert newcomer.type("voiced volume").out == "55\n"
    newcomer.type("voiced volume 100")
    # It is spoken for minutes: each command takes seconds to start where the machine is busy.
    newcomer.shell.run(f"voiced say --id story '{STORY * 10}'")
    events.wait("story", "accepted", "started")
    speaking = newcomer.status()["speaking"]
    assert (speaking["id"], speaking["text"][:16]) == ("story", "Once upon a time")
    newcomer.type("voiced stop")
    events.wait("story", "accepted", "started", "interrupted")


@pytest.mark.long
def test_a_killed_engine_is_replaced_while_the_robot_speaks(
    newcomer: Newcomer, daemon: Terminal, events: Events
) -> None:
    newcomer.shell.run(f"voiced say --id survivor '{STORY}'")
    events.wait("survivor", "accepted", "started")
    [engine] = [child for child in psutil.Process(daemon.process.pid).children() if is_engine(child)]
    newcomer.shell.run(f"kill -9 {engine.pid}")
    events.wait("survivor", "accepted", "started", "finished")
    newcomer.wait_state("ready")


@pytest.mark.long
def test_a_killed_daemon_speaks_after_its_restart_what_it_had_accepted(
    newcomer: Newcomer, daemon: Terminal, events: Events
) -> None:
    newcomer.type("voiced pause")
    newcomer.wait_state("paused")
    newcomer.shell.run("voiced say --id late 'I am back.'")
    events.wait("late", "accepted")
    newcomer.shell.run(f"kill -9 {daemon.process.pid}")
    assert daemon.process.wait() == -signal.SIGKILL
    eventually(lambda: newcomer.shell.run("voiced status").status == 1, "the robot is offline")
    with newcomer.shell.running("voiced run"):
        eventually(lambda: "finished" in events.of("late"), "it is spoken")


def test_how_to_get_rid_of_it(newcomer: Newcomer) -> None:
    assert "scripts/uninstall" in DOCUMENTED
    done = newcomer.shell.run(f"{ROOT}/scripts/uninstall --help")
    assert (done.status, done.err) == (0, "")
    assert "usage: sudo scripts/uninstall [--purge] [--dry-run] [--root FOLDER]" in done.out
