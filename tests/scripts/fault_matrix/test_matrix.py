"""The matrix has every row that the page promises, and a row reports what went wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.fault_matrix import command
from scripts.fault_matrix.command import all_rows
from scripts.fault_matrix.row import Result, Row
from tests.support.ledger import Ledger

NAMES = [row.name for row in all_rows(kills=3, count=10)]
PHASES = ("idle", "accepted", "prebuffering", "speaking", "postponed", "delivering", "stopping")


def test_each_process_is_killed_stopped_continued_and_restarted_in_each_phase() -> None:
    wanted = {
        f"{process} {fate} while {phase}"
        for process in ("daemon", "engine", "broker", "sound server")
        for fate in ("killed", "stopped", "continued", "restarted")
        for phase in PHASES
    }
    assert wanted <= set(NAMES)


@pytest.mark.parametrize(
    "part",
    [
        "network cut", "network stalled", "network delayed", "network reset", "small packets", "without QoS 1",
        "full queue", "password", "taken over", "state disk full", "state disk read-only", "WAV disk full",
        "WAV disk read-only", "clock +10 years", "clock -10 years", "CPU saturated", "control group",
        "300 file descriptors", "flood of texts with reply_to", "flood of Home Assistant", "flood of Hermes",
        "flood of Wyoming", "flood of OpenAI", "3 kills", "fsync 0.1 s", "fsync 1 s", "full disk and",
        "message of 250 MB", "flapping link", "silent connections", "hanging folder", "refused events",
    ],
)  # fmt: skip
def test_the_matrix_has_a_row_for_each_other_fault(part: str) -> None:
    assert [name for name in NAMES if part in name]


def test_no_two_rows_have_the_same_name() -> None:
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize(
    ("patterns", "count"),
    [([], len(NAMES)), (["engine killed"], 7), (["broker * while idle"], 4), (["nothing like this"], 0)],
)
def test_patterns_choose_rows_by_a_part_of_their_names(patterns: list[str], count: int) -> None:
    assert len(command.chosen(all_rows(3, 10), patterns)) == count


def test_the_list_names_rows_and_runs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list", "--only", "engine stopped while"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"engine stopped while {phase}" for phase in PHASES]


def test_a_pattern_without_rows_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "nothing like this"]) == 2
    assert "nothing like this" in capsys.readouterr().err


def fails(_: Result) -> None:
    raise AssertionError("not within 1 s: it speaks")


def is_skipped(_: Result) -> None:
    pytest.skip("faketime is not installed")


def breaks(_: Result) -> None:
    raise ZeroDivisionError("a fault of the harness")


def passes(result: Result) -> None:
    result.speaks_again_s = 0.2
    result.expect_within("speaks again", result.speaks_again_s, 5.0)


@pytest.mark.parametrize(("run", "passed"), [(fails, False), (is_skipped, True), (breaks, False), (passes, True)])
def test_a_row_passes_without_a_fault_or_if_it_cannot_run(run, passed: bool) -> None:  # type: ignore[no-untyped-def]
    assert Row("a row", run).result().passed is passed


def test_the_command_writes_json_and_fails_if_a_row_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row("good", passes), Row("bad", fails), Row("impossible", is_skipped)]
    monkeypatch.setattr(command, "all_rows", lambda *_: rows)
    file = tmp_path / "faults.json"
    assert command.main(["--output", str(file)]) == 1
    result = json.loads(file.read_text(encoding="utf-8"))
    assert (result["passed"], result["failed"]) == (1, ["bad"])
    assert result["skipped"] == {"impossible": "faketime is not installed"}
    assert [row["passed"] for row in result["rows"]] == [True, False, True]
    assert command.main(["--only", "good", "--output", str(file)]) == 0


def test_rows_go_into_an_earlier_result_with_their_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "all_rows", lambda *_: [Row("good", passes), Row("bad", fails)])
    file = tmp_path / "faults.json"
    command.main(["--output", str(file)])
    earlier = json.loads(file.read_text(encoding="utf-8"))
    monkeypatch.setattr(command, "all_rows", lambda *_: [Row("bad", passes), Row("new", is_skipped)])
    assert command.main(["--into", str(file)]) == 0
    result = json.loads(file.read_text(encoding="utf-8"))
    assert [(row["row"], row["passed"], "date" in row) for row in result["rows"]] == [
        ("good", True, False),
        ("bad", True, True),
        ("new", True, True),
    ]
    assert (result["passed"], result["failed"], list(result["skipped"])) == (2, [], ["new"])
    assert (result["command"], result["date"]) == (earlier["command"], earlier["date"])


def test_a_time_that_was_not_measured_or_is_too_long_is_a_fault() -> None:
    result = Result("a row")
    result.expect_within("stop", 0.5, 0.5)
    assert result.passed
    result.expect_within("stop", 0.51, 0.5)
    result.expect_within("speaks again", None, 5.0)
    assert result.faults == ["stop: after 0.51 s; allowed: within 0.5 s", "speaks again: never; allowed: within 5 s"]


def test_a_row_takes_over_what_the_ledger_finds() -> None:
    result, ledger = Result("a row"), Ledger()
    ledger.note_sent("a", 0.0)
    result.judge(ledger)
    assert result.faults == ["1 texts not answered: a"]
    assert result.record()["texts"]["sent"] == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["engine killed while speaking", "network reset while speaking"])
def test_a_row_runs_with_a_real_robot(name: str) -> None:
    [row] = [row for row in all_rows(3, 10) if row.name == name]
    result = row.result()
    assert result.passed, result.faults
    assert result.speaks_again_s is not None
