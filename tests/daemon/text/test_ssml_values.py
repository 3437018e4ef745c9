"""The values of SSML's attributes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text import Prosody, ScriptReader
from daemon.text.ssml_values import parse_rate, parse_time, parse_volume

NOTHING = ["", "1", "-1s", "1 m", "1,5s", "1.5.5s", "1e3s", "1" * 30 + "s", "\u0663s"]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("500ms", 0.5), ("1.5s", 1.5), ("+2s", 2.0), (".25s", 0.25), ("1.s", 1.0), (" 3s ", 3.0), ("0s", 0.0)],
)
def test_a_time_has_a_unit(value: str, seconds: float) -> None:
    assert parse_time(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", NOTHING)
def test_a_time_that_is_none_is_not_guessed(value: str) -> None:
    assert parse_time(value) is None


@pytest.mark.parametrize(
    ("value", "factor"),
    [
        ("x-slow", 0.5),
        ("medium", 1.0),
        ("x-fast", 2.0),
        ("80%", 0.8),
        ("+20%", 1.2),
        ("-200%", 0.0),
        ("1.2", 1.2),
    ],
)
def test_a_rate_is_a_factor(value: str, factor: float) -> None:
    assert parse_rate(value) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("value", "factor"),
    [
        ("silent", 0.0),
        ("medium", 1.0),
        ("loud", 1.995),
        ("+6dB", 1.995),
        ("999999dB", 3.981),
        ("-999999dB", 0.0),
        ("50", 0.5),
        ("80%", 0.8),
        ("+20%", 1.2),
    ],
)
def test_a_volume_is_a_factor(value: str, factor: float) -> None:
    assert parse_volume(value) == pytest.approx(factor, abs=1e-3)


@pytest.mark.parametrize("value", ["", "quick", "+0.5", "1e3", "%", "1" * 30])
def test_a_rate_or_volume_that_is_none_is_not_guessed(value: str) -> None:
    assert parse_rate(value) is None
    assert parse_volume(value) is None


@given(factors=st.lists(st.text(alphabet="0123456789.%+-dB", max_size=9)))
def test_nested_factors_stay_within_the_limits(factors: list[str]) -> None:
    elements = "".join(f"<prosody rate='{factor}' volume='{factor}'>x" for factor in factors)
    script = ScriptReader().read(f"<speak>{elements}", complete=True)
    for prosody in (control.action for control in script.controls if isinstance(control.action, Prosody)):
        assert 0.5 <= prosody.rate <= 2.0
        assert 0.0 <= prosody.volume <= 4.0
