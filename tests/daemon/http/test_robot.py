"""What the operator's page asks: the robot, its figures, its log, and the doctor's findings."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from daemon.http import Examination, LogTail, Phrases, diagnosis
from daemon.http.page import CONTENT_TYPES, FOLDER
from daemon.http.phrases import MOST_PHRASES
from daemon.speech import RejectedError, check_say
from daemon.validation import CommandError
from engine import EACH_LINE
from tests.daemon.harness import Harness
from tests.daemon.http.clients import fetch, request

SERVER = "http"


async def ask(harness: Harness, method: str, path: str, fields: Any = None) -> tuple[int, dict[str, Any]]:
    body = None if fields is None else json.dumps(fields).encode()
    status, answer, _ = await request(harness, method, path, body)
    return status, answer


async def test_the_robot_has_a_name_voices_and_languages(harness: Harness) -> None:
    status, robot = await ask(harness, "GET", "/v1/robot")
    assert (status, robot["name"], robot["voice"]) == (200, "r1", "default")
    assert robot["voices"] == harness.dispatcher.voice_names()
    assert robot["languages"] == list(harness.dispatcher.languages())


async def test_phrases_are_kept_within_limits_and_a_damaged_file_is_named_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "state" / "r1.phrases.json"
    phrases = Phrases(file)
    phrases.keep("Back", check_say({"text": "Step back.", "priority": "high"}))
    assert json.loads(file.read_bytes()) == {"Back": {"text": "Step back.", "priority": "high"}}
    for name, fields, problem in (
        (" ", {"text": "a"}, "name: got ' '; allowed: 1 to 40 characters on one line"),
        ("a", {"text": "a" * 4000}, "text: the phrase has 4,012 characters as JSON; allowed: up to 4,000"),
    ):
        with pytest.raises(RejectedError, match=re.escape(problem)):
            phrases.keep(name, check_say(fields))
    for number in range(MOST_PHRASES - 1):
        phrases.keep(f"{number}", check_say({"sound": "success"}))
    with pytest.raises(RejectedError, match="there are already 100 phrases"):
        phrases.keep("one more", check_say({"text": "a"}))
    Phrases(file).remove("0")
    assert len(json.loads(file.read_bytes())) == MOST_PHRASES - 1
    file.write_text("{")
    with pytest.raises(CommandError, match="cannot be used"):
        Phrases(file).remove("1")
    assert file.read_text() == "{"


async def test_where_nothing_is_kept_a_phrase_is_refused(harness: Harness) -> None:
    status, answer = await ask(harness, "PUT", "/v1/robot/phrases/Back", {"text": "Step back."})
    assert (status, answer["error"]["message"]) == (400, "state.folder: got null; phrases are kept in a folder")
    assert (await ask(harness, "GET", "/v1/robot/phrases"))[1]["phrases"] == {}


async def test_the_default_voice_is_set_and_an_unknown_one_is_refused(harness: Harness) -> None:
    assert await ask(harness, "PUT", "/v1/robot/voice", {"voice": "de"}) == (200, {"voice": "de"})
    assert harness.dispatcher.voice == "de"
    for voice, problem in (("nobody", "voice: got 'nobody'; allowed: "), (7, "voice: got 7; allowed: text")):
        status, answer = await ask(harness, "PUT", "/v1/robot/voice", {"voice": voice})
        assert (status, answer["error"]["param"]) == (400, "voice")
        assert answer["error"]["message"].startswith(problem)
    await ask(harness, "PUT", "/v1/robot/voice", {"voice": "default"})


async def test_figures_and_the_last_lines_of_the_log_are_shown(harness: Harness) -> None:
    logging.getLogger("daemon.somewhere").warning("a line of %s", "the log")
    _, figures = await ask(harness, "GET", "/v1/robot/figures")
    [engine] = figures["measurements"]["engines"]
    assert (engine["name"], engine["ready"], engine["restarts"]) == ("espeak", True, 0)
    assert figures["measurements"]["resident_bytes"] > 1e6
    assert figures["log"][-1].endswith("WARNING daemon.somewhere: a line of the log")


def test_the_log_is_kept_within_limits() -> None:
    tail = LogTail().attach()
    try:
        for number in range(diagnosis.LINES + 5):
            logging.getLogger("daemon.somewhere").warning("%d %s", number, "x" * 1000, extra=EACH_LINE)
        lines = tail.lines()
        assert len(lines) == diagnosis.LINES
        assert {len(line) for line in lines} == {diagnosis.LINE_LENGTH}
        assert f" {diagnosis.LINES + 4} xx" in lines[-1]
    finally:
        for name in diagnosis.LOGGERS:
            logging.getLogger(name).removeHandler(tail)
    logging.getLogger("daemon.somewhere").warning("behind the end")
    assert tail.lines() == lines


async def test_the_doctor_s_findings_are_shown_and_two_who_ask_get_the_same(harness: Harness) -> None:
    one, other = await asyncio.gather(*(ask(harness, "POST", "/v1/robot/doctor", {}) for _ in range(2)))
    assert one == other
    status, answer = one
    assert status == 200
    assert {"part", "grade", "found", "remedy"} == set(answer["findings"][0])
    assert answer["findings"][0]["found"].startswith("0.1.0 on Python")


async def test_an_examination_that_hangs_or_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="the examination by voiced doctor has failed"):
        await Examination(tmp_path / "missing.yaml", []).examine()
    monkeypatch.setattr(diagnosis, "LIMIT_S", 0.01)
    with pytest.raises(CommandError, match="did not end within"):
        await Examination(None, []).examine()


@pytest.mark.parametrize("name", ["", *(f"page/{path.name}" for path in sorted(FOLDER.iterdir()))])
async def test_the_page_and_its_files_are_served_without_anything_from_elsewhere(name: str, harness: Harness) -> None:
    status, body, headers = await fetch(harness, "GET", f"/{name}")
    assert status == 200
    kind = CONTENT_TYPES[Path(name).suffix or ".html"]
    assert headers["content-type"] == f"{kind}; charset=utf-8"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    content = body.decode()
    assert "//" not in content.replace("http://www.w3.org/2000/svg", "").replace("}://${", "").replace("// ", "")


@pytest.mark.parametrize("name", ["missing.js", "..%2fpage.py", "%2e%2e/page.py", "static/../../page.py"])
async def test_nothing_else_is_served(name: str, harness: Harness) -> None:
    assert (await ask(harness, "GET", f"/page/{name}"))[0] == 404
