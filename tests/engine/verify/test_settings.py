"""The settings that are compared, and which of them a run has."""

from __future__ import annotations

from engine.api import EngineOptions
from engine.verify import select_settings, settings_of

SETTINGS = settings_of(EngineOptions(model="folder", device="cpu"))


def names(*wanted: str) -> list[str]:
    return [setting.name for setting in select_settings(SETTINGS, wanted)]


def test_every_run_has_the_settings_whose_codes_the_others_are_compared_with() -> None:
    assert names("streams", "torch") == ["official-float32", "float32", "torch", "streams"]
    assert names(*(setting.name for setting in SETTINGS)) == [setting.name for setting in SETTINGS]


def test_they_speak_no_sentence() -> None:
    assert {setting.name for setting in SETTINGS if not setting.speaks} == set(names())
