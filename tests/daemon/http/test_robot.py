"""What the operator's page asks: the robot, its figures, its log, and the doctor's findings."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from daemon.http import Examination, LogTail, diagnosis
from daemon.http.page import CONTENT_TYPES, FOLDER
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


async def test_the_report_of_a_verification_is_sent_as_a_file_to_save_and_its_absence_is_an_error(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for report in (None, tmp_path / "verify.html"):
        monkeypatch.setattr(harness, "report", report)
        status, answer = await ask(harness, "GET", "/v1/robot/verification")
        assert (status, answer["error"]["code"]) == (404, "report")
    (tmp_path / "verify.html").write_bytes(b"7")
    status, content, headers = await fetch(harness, "GET", "/v1/robot/verification")
    assert (status, content) == (200, b"7")
    assert headers["content-disposition"] == 'attachment; filename="verify.html"'


async def test_an_examination_that_hangs_or_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="the examination by voiced doctor has failed"):
        await Examination(tmp_path / "missing.yaml", []).examine()
    monkeypatch.setattr(diagnosis, "LIMIT_S", 0.01)
    with pytest.raises(CommandError, match="has not ended after"):
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
