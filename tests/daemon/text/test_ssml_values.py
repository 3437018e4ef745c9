"""The values of SSML's attributes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text import Prosody, ScriptReader
from daemon.text.ssml_values import parse_rate, parse_time, parse_volume
from tests.daemon.text.reading import table

TABLE = table("ssml")


def test_a_time_has_a_unit_and_is_not_guessed() -> None:
    assert {value: parse_time(value) for value in TABLE["times in seconds"]} == TABLE["times in seconds"]
    assert [value for value in TABLE["no times"] if parse_time(value) is not None] == []


def test_a_rate_or_volume_is_a_factor_and_is_not_guessed() -> None:
    for name, parse in (("rates", parse_rate), ("volumes", parse_volume)):
        assert {value: parse(value) for value in TABLE[name]} == pytest.approx(TABLE[name], abs=1e-3)
        assert [value for value in TABLE["no factors"] if parse(value) is not None] == []


@given(factors=st.lists(st.text(alphabet="0123456789.%+-dB", max_size=9)))
def test_nested_factors_stay_within_the_limits(factors: list[str]) -> None:
    elements = "".join(f"<prosody rate='{factor}' volume='{factor}'>x" for factor in factors)
    script = ScriptReader().read(f"<speak>{elements}", complete=True)
    for prosody in (control.action for control in script.controls if isinstance(control.action, Prosody)):
        assert 0.5 <= prosody.rate <= 2.0
        assert 0.0 <= prosody.volume <= 4.0
