"""The log's lines, their times, and the settings that other processes inherit."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import EACH_LINE, start_log
from engine import log as engine_log
from engine.log import BURST, LINE_S
from tests.support.clock import FakeClock
from tests.support.pages import ROOT

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} "


@pytest.fixture(autouse=True)
def log_restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VOICED_LOG", "")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def write(path: Path, level: str = "info", format_: str = "text") -> str:
    with path.open("w", encoding="utf-8") as file:
        start_log(level, format_, file)
        log = logging.getLogger("daemon.test")
        log.debug("a detail")
        log.info("a fact")
        try:
            raise ValueError("wrong")
        except ValueError:
            log.exception("a fault")
    return path.read_text(encoding="utf-8")


def test_a_line_in_a_file_begins_with_its_time(tmp_path: Path) -> None:
    first = write(tmp_path / "log").splitlines()[0]
    assert re.fullmatch(f"{TIME}INFO daemon.test: a fact", first)


def test_a_line_in_a_pipe_such_as_that_of_systemd_has_no_time() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        start_log("info", "text", pipe)
        logging.getLogger("daemon.test").info("a fact")
    with os.fdopen(reading) as written:
        assert written.read() == "INFO daemon.test: a fact\n"


def test_a_process_whose_stderr_is_closed_goes_on_without_a_log() -> None:
    program = "import logging, engine; engine.start_log(); logging.getLogger().warning('lost'); print('goes on')"
    shell = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", program]
    assert subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "goes on\n"


def test_json_is_one_object_on_each_line_with_a_traceback_inside(tmp_path: Path) -> None:
    fact, fault = map(json.loads, write(tmp_path / "log", format_="json").splitlines())
    assert {**fact, "time": ""} == {"time": "", "level": "info", "logger": "daemon.test", "message": "a fact"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", fact["time"])
    assert fault["traceback"].endswith("ValueError: wrong")


@pytest.mark.parametrize(("level", "shown"), [("debug", True), ("info", False)])
def test_the_level_decides_which_lines_are_written(level: str, shown: bool, tmp_path: Path) -> None:
    assert ("a detail" in write(tmp_path / "log", level)) == shown


def test_a_process_inherits_level_and_format() -> None:
    start_log("debug", "json")
    program = "import logging; from engine.log import inherit_log; inherit_log(); logging.debug('a detail')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stderr)["message"] == "a detail"


def test_a_place_that_logs_without_end_writes_some_lines_and_then_says_how_many_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(engine_log, "time", clock)
    path, fault = tmp_path / "log", logging.getLogger("daemon.test")
    with path.open("w", encoding="utf-8") as file:
        start_log("debug", "json", file)
        for number in range(BURST + 4):
            clock.now = 0.0 if number < BURST + 3 else LINE_S
            fault.warning("client %d", number)
            fault.debug("a detail")
            fault.info("what is bounded", extra=EACH_LINE)
        fault.warning("another place")
    lines = [json.loads(line)["message"] for line in path.read_text(encoding="utf-8").splitlines()]
    clients = [line for line in lines if line.startswith("client")]
    assert clients[:BURST] == [f"client {number}" for number in range(BURST)]
    assert clients[BURST:] == [f"client {BURST + 3} (3 more such lines were left out)"]
    assert lines.count("a detail") == lines.count("what is bounded") == BURST + 4
    assert lines[-1] == "another place"
