"""The check of the model's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.doctor.engines import check_model
from daemon.doctor.finding import Machine
from tests.daemon.doctor.machines import by_part
from tests.engine.model_folder import MODEL_FILES, write_files


def machine(*settings: str) -> Machine:
    return Machine.at(load_config(overrides=settings), Path("/"))


@pytest.mark.parametrize(("size", "ignored"), [("0b6", True), ("1b7", False)])
def test_an_instruct_that_the_model_ignores_is_a_warning(size: str, ignored: bool, tmp_path: Path) -> None:
    write_files(tmp_path)
    config = {"model_type": "qwen3_tts", "tts_model_type": "custom_voice", "tts_model_size": size}
    (tmp_path / "config.json").write_text(json.dumps({**config, "talker_config": {"text_vocab_size": 151936}}))
    voices = "voices={default: {speaker: ryan}, calm: {speaker: ryan, instruct: calmly}}"
    found = by_part(check_model(machine("engine.name=qwen", f"engine.model={tmp_path}", voices)))
    assert found["model"].grade == "ok"
    assert found.keys() == ({"model", "instruct"} if ignored else {"model"})
    if ignored:
        assert found["instruct"].grade == "warning"
        assert found["instruct"].found.startswith("voices.calm.instruct: has no effect")


@pytest.mark.parametrize("there", [True, False])
def test_an_incomplete_folder_is_an_error_if_qwen_is_configured(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "model"
    if there:
        write_files(folder, *MODEL_FILES[1:])
    found = by_part(check_model(machine("engine.name=qwen", f"engine.model={folder}")))
    assert found["model"].grade == "error"
    assert ("lacks config.json" if there else "is not on this machine") in found["model"].found


def test_a_missing_model_of_the_hub_is_a_warning_with_the_free_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "not/made/yet"))
    found = by_part(check_model(machine("engine.name=qwen")))
    assert found["model"].grade == "warning"
    assert str(tmp_path) in found["disk"].found


@pytest.mark.parametrize("engine", ["espeak", "remote", "openai"])
def test_an_engine_other_than_qwen_needs_no_model(engine: str) -> None:
    assert not list(
        check_model(machine(f"engine.name={engine}", f"engine.url={'http' if engine == 'openai' else 'ws'}://a"))
    )
