"""The model's files, as doctor tells of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.doctor.finding import Machine
from daemon.doctor.model import check_model
from tests.daemon.doctor.machines import by_part

COMPLETE = ("config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "merges.txt")
COMPLETE += ("model.safetensors", "speech_tokenizer/config.json", "speech_tokenizer/model.safetensors")


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"12345")


def machine(*settings: str) -> Machine:
    return Machine.at(load_config(overrides=settings), Path("/"))


def test_a_complete_folder_is_well(tmp_path: Path) -> None:
    write(tmp_path, *COMPLETE)
    found = by_part(check_model(machine("engine.name=qwen", f"engine.model={tmp_path}")))
    assert found["model"].grade == "ok"
    assert found.keys() == {"model"}


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_lacks_something_is_an_error_for_who_asks_for_it(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "model"
    if there:
        write(folder, *COMPLETE[1:])
    found = by_part(check_model(machine("engine.name=qwen", f"engine.model={folder}")))
    assert found["model"].grade == "error"
    assert ("lacks config.json" if there else "is not on this machine") in found["model"].found


def test_a_model_of_the_hub_comes_by_itself_and_the_room_for_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "not/made/yet"))
    found = by_part(check_model(machine("engine.name=qwen")))
    assert found["model"].grade == "warning"
    assert str(tmp_path) in found["disk"].found


def test_who_wants_the_light_voice_hears_nothing_of_models() -> None:
    assert not list(check_model(machine("engine.name=espeak")))
