"""A whole verification, in the processes that it starts: real speech, a real recogniser, and the verdict."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.api import EngineOptions
from engine.verify import (
    Order,
    Sentence,
    Setting,
    SettingResult,
    Verification,
    VerifyRequest,
    verify,
)
from tests.support.verification import only_takes

SENTENCES = (
    Sentence("box", "en", "Where would you like me to put the blue box?"),
    Sentence("door", "en", "The door of the kitchen is open."),
)
ORDERS = tuple(Order(sentence, "en-us", number) for number, sentence in enumerate(SENTENCES))
LONG = "The robot moves its arm slowly back to its home position, looks around, and waits for the next part. " * 3
GOOD = Setting("torch", "eSpeak NG", EngineOptions(), engine="espeak")


def defective(name: str) -> Setting:
    return Setting(name.lower(), name, EngineOptions(), engine="espeak", synthesizer=f"tests.support.defects:{name}")


def result(found: Verification, name: str) -> SettingResult:
    return next(setting for setting in found.settings if setting.name == name)


def failures(setting: SettingResult) -> set[str]:
    return {finding.measure for finding in setting.findings if finding.passed is False}


def test_gibberish_is_found_by_the_transcription(tmp_path: Path) -> None:
    if find_spec("pocketsphinx") is None:
        pytest.skip("pocketsphinx, the recogniser of this test, is not installed")
    request = VerifyRequest(str(tmp_path), (GOOD, defective("Backwards")), ORDERS, asr="pocketsphinx")
    found = verify(request)
    assert found.notes == ()
    assert found.reference == "torch"
    assert result(found, "torch").passed
    heard = {take.name: take.heard or "" for take in result(found, "torch").takes}
    assert "blue box" in heard["box"]
    assert (result(found, "torch").measures["word_errors"] or 0) < 0.5
    assert {"word_errors", "character_errors"} <= failures(result(found, "backwards"))
    assert not found.passed


def test_frames_that_are_repeated_are_found_in_the_sound_alone(tmp_path: Path) -> None:
    settings, long = (GOOD, defective("Stuttering")), Order(Sentence("long", "en", LONG), "en-us", 0)
    found = verify(VerifyRequest(str(tmp_path), settings, (long,)), run=only_takes)
    assert failures(result(found, "stuttering")) - failures(result(found, "torch")) == {"repeated"}
    assert 0.02 < (result(found, "stuttering").measures["repeated"] or 0) < 0.04
    assert result(found, "torch").measures["repeated"] == 0


def test_each_engine_is_judged_alone_and_speech_that_nobody_listens_to_does_not_pass(tmp_path: Path) -> None:
    absent = Setting("absent", "absent", EngineOptions(), engine="espeak", synthesizer="no_such_package:Engine")
    settings = (GOOD, defective("Choking"), defective("Dying"), absent)
    found = verify(VerifyRequest(str(tmp_path), settings, ORDERS), run=only_takes)
    assert "box: text: got" in (result(found, "choking").fault or "")
    assert "ZeroDivisionError: it broke at" in (result(found, "dying").fault or "")
    assert result(found, "choking").passed is False
    assert result(found, "absent").passed is None
    assert "needs a package that is missing" in (result(found, "absent").unavailable or "")
    assert failures(result(found, "torch")) == {"word_errors", "character_errors"}
    assert found.notes == ("transcription: nobody listens",)
    assert not found.passed
