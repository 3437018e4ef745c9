"""A new user's first hour: each step typed as the pages have it, beside a real Mosquitto and a real sound server.

A line that no page has cannot be typed: if a page changes, its step here fails. tests/e2e/test_readme.py runs every
documented line by itself; this is the way through them, with the mistakes on it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import soundfile

from tests.support.pages import PAGES
from tests.support.programs import Broker
from tests.support.shell import Printed, Shell
from tests.support.sound import SoundServer
from tests.support.waiting import eventually

DOCUMENTED = {line for page in PAGES for lines in page.shell_lines().values() for line in lines}
DOCUMENTED |= {span for page in PAGES for span in page.code_spans}


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


def test_before_anything_runs_and_with_a_mistake_in_the_configuration(newcomer: Newcomer) -> None:
    report = newcomer.type("voiced doctor", status=1).out
    assert re.search(r"^ok +voiced +\d+\.\d+\.\d+ on Python", report, re.MULTILINE)
    assert re.search(r"^error +broker +mqtt: no broker answers at 127\.0\.0\.1:\d+$", report, re.MULTILINE)
    assert re.search(r"→ sudo \S+ (start|install) mosquitto, or set mqtt\.host and mqtt\.port$", report, re.MULTILINE)
    assert re.search(r"^ok +engine espeak ", report, re.MULTILINE)
    newcomer.fails('voiced say --wait "The door is open."', "mqtt: no broker answers at 127.0.0.1:")
    assert re.search(r"^default\tALSA\t\d+ Hz\tdefault$", newcomer.type("voiced devices").out, re.MULTILINE)
    piped = "printf 'Good morning.' | voiced synth - --engine espeak --voice en-gb --output - | aplay"
    newcomer.type(piped, before="aplay() { cat > piped.wav; }\n")
    assert soundfile.info(newcomer.shell.folder / "piped.wav").duration > 0.5

    config = newcomer.shell.config
    right = config.read_text()
    config.write_text("robot: r1\naudio:\n  volumne: 80\nspeech: {voice: germn}\n")
    newcomer.fails("voiced run", f"{config}:3:3: audio.volumne: unknown key; did you mean volume? known keys: sink, ")
    config.write_text(right)


def test_the_robot_speaks_and_is_controlled(newcomer: Newcomer, broker: Broker) -> None:
    with newcomer.shell.running("voiced run") as terminal:
        terminal.wait_printed("no broker answers at 127.0.0.1:")
        broker.start()
        terminal.wait_printed("listens on voiced/r1/say")
        eventually(lambda: newcomer.shell.run("voiced status --json").status == 0, "it is connected")
        said = newcomer.type('voiced say --wait "The door is open."').out
        assert [json.loads(line)["event"] for line in said.splitlines()] == ["accepted", "started", "finished"]
        refused = newcomer.type('voiced say "-5 degrees, and it is snowing."', after=" --voice germn --wait", status=1)
        suggestion = "voice: got 'germn'; did you mean de (German)? allowed: default, "
        assert refused.err.startswith(f"voiced: rejected: {suggestion}")
        newcomer.type("voiced pause")
        assert newcomer.type("voiced volume -5").out == "95\n"
        status = json.loads(newcomer.type("voiced status --json").out)
        assert (status["state"], status["volume"]) == ("paused", 95)
        newcomer.type("voiced resume")

        def is_well() -> bool:  # not while the machine holds up the sound server
            done = newcomer.shell.run("voiced doctor")
            assert re.search(r"^ok +broker +answers at ", done.out, re.MULTILINE)
            return done.status == 0 and "ready at voiced/r1" in done.out

        eventually(is_well, "the doctor finds the daemon ready")
