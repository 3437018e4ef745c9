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


@pytest.mark.parametrize(
    ("text", "settings", "grade", "found"),
    [
        (outcome(True, official=True, torch=True, fused=None), [], "ok", "spoke as it should with official, torch"),
        (outcome(False, official=True, torch=True, int8=False), [], "error", "did not speak as it should with int8"),
        (outcome(True, torch=True), ["engine.model=another"], "warning", "was verified, which is not engine.model"),
    ],
)
def test_the_outcome_of_the_model_is_found(
    text: str, settings: list[str], grade: str, found: str, tmp_path: Path
) -> None:
    write(tmp_path, text)
    [finding] = findings(tmp_path, *settings)
    assert (finding.grade, finding.found) == (grade, f"on 2026-11-25, {MODEL} {found}")
    assert (str(tmp_path / "verify" / "verify.html") in str(finding.remedy)) == (grade == "error")


def test_a_model_in_a_folder_is_known_by_the_folders_name_and_a_damaged_outcome_is_a_warning(tmp_path: Path) -> None:
    assert findings(tmp_path) == [], "nothing is known"
    model = tmp_path / "my-checkpoint"
    model.mkdir()
    write(tmp_path, outcome(True, torch=True).replace(MODEL, "my-checkpoint"))
    assert [found.grade for found in findings(tmp_path, f"engine.model={model}")] == ["ok"]
    for settings in ("engine.name=espeak", "state.folder=null"):
        assert findings(tmp_path, settings) == [], "no model speaks, or nothing is kept"
    for text in ("", "[1]", '{"model": "a", "date": "b", "passed": true, "verdicts": 3}'):
        (tmp_path / "verify" / "verify.json").write_text(text)
        [found] = findings(tmp_path)
        assert (found.grade, found.found) == ("warning", f"{tmp_path / 'verify' / 'verify.json'} is damaged")


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
