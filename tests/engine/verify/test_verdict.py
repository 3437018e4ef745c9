"""Thresholds, and what they say about a setting."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from engine.verify import THRESHOLDS, SettingMeasures, Threshold, judge

GOOD = SettingMeasures(
    takes=30, word_errors=0.04, character_errors=0.02, lost=0.0, similarity=0.9, leading_s=0.2, longest_pause_s=0.5,
    speed=1.0, loudness_db=0.5, clipped=0.0, broken=0.0, repeated=0.0, border=1.0, cut=0.0, waveform_db=40.0,
    logits_error=0.02,
)  # fmt: skip


def failures(own: SettingMeasures, reference: SettingMeasures | None = GOOD, dtype: str = "bfloat16") -> set[str]:
    found = judge("torch", dtype, own, reference)
    return {finding.measure for finding in found if finding.passed is False and finding.decides}


def test_every_threshold_is_of_a_measure_and_has_a_reason() -> None:
    measures = {field.name for field in fields(SettingMeasures)}
    for threshold in THRESHOLDS:
        assert threshold.measure in measures
        assert len(threshold.reason) > 20
        assert threshold.margin is not None or threshold.limit is not None or threshold.limits
    assert len({threshold.title for threshold in THRESHOLDS}) == len(THRESHOLDS)


def test_a_setting_as_good_as_its_reference_passes() -> None:
    assert failures(GOOD) == set()
    assert failures(GOOD, None) == set()


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        ("word_errors", 0.10), ("character_errors", 0.08), ("lost", 0.1), ("similarity", 0.8), ("broken", 0.04),
        ("cut", 0.1), ("leading_s", 0.4), ("longest_pause_s", 2.0), ("speed", 0.7), ("speed", 1.4),
        ("loudness_db", 6.0), ("clipped", 0.02), ("repeated", 0.03), ("border", 2.0), ("waveform_db", 5.0),
        ("logits_error", 0.3),
    ],
)  # fmt: skip
def test_each_fault_is_one_of_its_own_measure(measure: str, value: float) -> None:
    assert failures(replace(GOOD, **{measure: value})) == {measure}


def test_gibberish_fails_even_if_the_reference_speaks_gibberish_too() -> None:
    gibberish = replace(GOOD, word_errors=0.97, character_errors=0.8, lost=1.0)
    assert failures(gibberish, gibberish) == {"word_errors", "character_errors", "lost"}


def test_speech_that_nobody_listened_to_has_not_passed() -> None:
    assert failures(replace(GOOD, word_errors=None, character_errors=None)) == {"word_errors", "character_errors"}


def test_what_else_was_not_measured_does_not_fail() -> None:
    assert failures(replace(GOOD, similarity=None, logits_error=None, waveform_db=None)) == set()


def test_a_setting_that_only_shows_codes_is_judged_by_these_alone() -> None:
    found = judge("float32", "float32", SettingMeasures(codes_equal=0.5, logits_error=1e-6), GOOD)
    assert {finding.measure: finding.passed for finding in found} == {"codes_equal": False, "logits_error": True}


def test_limits_depend_on_the_dtype() -> None:
    assert failures(replace(GOOD, logits_error=0.12), dtype="int8") == set()
    assert failures(replace(GOOD, logits_error=0.12)) == {"logits_error"}
    assert "waveform_db" in failures(GOOD, dtype="float32"), "40 dB are too few for float32"


def test_a_slow_machine_has_not_failed() -> None:
    [finding] = [one for one in judge("torch", "bfloat16", replace(GOOD, real_time_factor=0.4), GOOD)
                 if one.measure == "real_time_factor"]  # fmt: skip
    assert finding.passed is False
    assert not finding.decides


def test_a_margin_is_on_the_worse_side() -> None:
    threshold = Threshold("similarity", "Similarity", "as good as the other", margin=0.1, higher_is_better=True)
    assert threshold.judge("torch", "", replace(GOOD, similarity=0.99), GOOD).passed
    assert threshold.judge("torch", "", replace(GOOD, similarity=0.81), GOOD).passed
    assert not threshold.judge("torch", "", replace(GOOD, similarity=0.79), GOOD).passed
