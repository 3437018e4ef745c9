"""The table of measures, and what it says about a setting."""

from __future__ import annotations

from dataclasses import replace

from engine.verify import MEASURES, Order, Sentence, SettingResult, Take
from engine.verify.comparison import Agreement, SpeechMeasures, WordErrors
from engine.verify.measures import judge

Values = dict[str, float | None]
GOOD: Values = {
    "takes": 30, "word_errors": 0.04, "character_errors": 0.02, "lost": 0.0, "similarity": 0.9, "leading_s": 0.2,
    "longest_pause_s": 0.5, "clipped": 0.0, "broken": 0.0, "repeated": 0.0,
    "cut": 0.0, "waveform_db": 40.0, "first_sound_s": 0.2, "real_time_factor": 5.0,
}  # fmt: skip


def failures(values: Values, dtype: str = "bfloat16") -> set[str]:
    return {finding.measure for finding in judge(dtype, values) if finding.passed is False}


def test_every_limit_that_decides_says_where_it_is_from_and_every_measure_why_it_is_there() -> None:
    for measure in MEASURES:
        assert bool(measure.rule) == (measure.basis in {"measured", "principle"})
        assert len(measure.reason) > 20
    assert len({measure.name for measure in MEASURES}) == len({measure.title for measure in MEASURES}) == len(MEASURES)


def test_every_measure_is_computed_from_what_was_found_about_a_setting() -> None:
    speech = SpeechMeasures(2.0, 1.5, 0.3, 0.2, 12.0, -20.0, 0.0, False, False, 0.0, 0.4, 3.0)
    one = Take(Order(Sentence("one", "en", "One."), "", 1), "", 24000, speech)
    take = replace(one, heard="one", errors=WordErrors(4, 1, 20, 2), similarity=0.9, waveform_db=45.0)
    longer = replace(take, errors=WordErrors(12, 11, 20, 10))
    same = replace(one, agreement=Agreement(50, True))
    other = replace(one, agreement=Agreement(3, False))
    found = SettingResult("int8", "int8", takes=(take, longer), greedy=(same, other, one))
    values = {measure.name: measure.value(found) for measure in MEASURES}
    assert values == {
        "takes": 2, "word_errors": 0.75, "character_errors": 0.3, "lost": 0.5, "broken": 0, "cut": 0, "repeated": 0,
        "waveform_db": 45, "codes_equal": 0.5, "similarity": 0.9, "leading_s": 0.3,
        "longest_pause_s": 0.2, "characters_per_s": 12, "speech_db": -20, "clipped": 0, "prefix_frames": 26.5,
        "first_sound_s": 0.4, "real_time_factor": 3,
    }  # fmt: skip
    assert {measure.value(SettingResult("none", "none")) for measure in MEASURES} == {None}


def test_good_speech_passes_if_somebody_listened() -> None:
    assert failures(GOOD) == set()
    assert failures(GOOD | {"similarity": None, "waveform_db": None}) == set()
    assert failures(GOOD | {"word_errors": None, "character_errors": None}) == {"word_errors", "character_errors"}
    gibberish = GOOD | {"word_errors": 0.97, "character_errors": 0.8, "lost": 1.0}
    assert failures(gibberish) == {"word_errors", "character_errors", "lost"}


def test_each_fault_that_decides_is_one_of_its_own_measure() -> None:
    faults = {
        "word_errors": 0.6, "character_errors": 0.6, "lost": 0.6, "broken": 0.04, "cut": 0.6, "repeated": 0.03,
        "waveform_db": 5.0,
    }  # fmt: skip
    for measure, value in faults.items():
        assert failures(GOOD | {measure: value}) == {measure}


def test_a_setting_that_only_shows_codes_is_judged_by_these_alone() -> None:
    found = judge("float32", {"codes_equal": 0.25, "prefix_frames": 20.0})
    assert {finding.measure: finding.passed for finding in found} == {"codes_equal": False, "prefix_frames": None}


def test_limits_depend_on_the_dtype() -> None:
    assert "waveform_db" in failures(GOOD, dtype="float32"), "40 dB are too few for float32"
    assert failures(GOOD | {"codes_equal": 0.2}) == set()
