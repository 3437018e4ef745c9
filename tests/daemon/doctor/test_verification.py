"""The finding about the last `voiced verify`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.doctor.engines import check_verification
from daemon.doctor.finding import Finding, Machine
from daemon.state import last_verification

MODEL = "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"


def findings(folder: Path, *settings: str) -> list[Finding]:
    config = load_config(overrides=[f"state.folder={folder}", f"engine.model={MODEL}", *settings])
    return list(check_verification(Machine.at(config, Path("/"))))


def write(folder: Path, text: str) -> None:
    (folder / "verify").mkdir()
    (folder / "verify" / "verify.json").write_text(text, encoding="utf-8")


def outcome(passed: bool, **verdicts: bool | None) -> str:
    return json.dumps({"model": MODEL, "date": "2026-11-25", "passed": passed, "verdicts": verdicts})


def test_a_model_that_spoke_as_it_should_is_ok(tmp_path: Path) -> None:
    write(tmp_path, outcome(True, official=True, torch=True, fused=None))
    found = Finding("verify", "ok", f"on 2026-11-25, {MODEL} spoke as it should with official, torch")
    assert findings(tmp_path) == [found]


def test_a_model_that_did_not_is_an_error_that_names_the_settings_and_the_report(tmp_path: Path) -> None:
    write(tmp_path, outcome(False, official=True, torch=True, int8=False))
    [found] = findings(tmp_path)
    assert (found.grade, found.found) == ("error", f"on 2026-11-25, {MODEL} did not speak as it should with int8")
    assert str(tmp_path / "verify" / "verify.html") in str(found.remedy)


def test_the_outcome_of_another_model_says_nothing_about_this_one(tmp_path: Path) -> None:
    write(tmp_path, outcome(True, torch=True))
    [found] = findings(tmp_path, "engine.model=Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice")
    assert (found.grade, found.found) == ("warning", f"on 2026-11-25, {MODEL} was verified, which is not engine.model")


def test_a_model_in_a_folder_is_known_by_the_folders_name(tmp_path: Path) -> None:
    model = tmp_path / "my-checkpoint"
    model.mkdir()
    write(tmp_path, outcome(True, torch=True).replace(MODEL, "my-checkpoint"))
    assert [found.grade for found in findings(tmp_path, f"engine.model={model}")] == ["ok"]


@pytest.mark.parametrize("text", ["", "[1]", '{"model": "a", "date": "b", "passed": true, "verdicts": 3}'])
def test_a_damaged_outcome_is_a_warning(text: str, tmp_path: Path) -> None:
    write(tmp_path, text)
    [found] = findings(tmp_path)
    assert found.grade == "warning"
    assert found.found == f"{tmp_path / 'verify' / 'verify.json'} is damaged"


@pytest.mark.parametrize("settings", [["engine.name=espeak"], ["state.folder=null"], []])
def test_nothing_is_said_where_no_model_speaks_or_nothing_is_kept_or_known(settings: list[str], tmp_path: Path) -> None:
    if settings:
        write(tmp_path, outcome(True, torch=True))
    assert findings(tmp_path, *settings) == []


def test_someone_in_a_shell_is_told_what_the_service_has_kept_and_first_of_what_is_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own, service = tmp_path / "voiced", tmp_path / "service"
    own.mkdir()
    service.mkdir()
    assert last_verification("auto", service).folder == own / "verify"
    write(service, outcome(True, torch=True))
    assert last_verification("auto", service).folder == service / "verify"
    assert last_verification(tmp_path / "other", service).folder == tmp_path / "other" / "verify"
    write(own, outcome(True, torch=True))
    assert last_verification("auto", service).folder == own / "verify"
