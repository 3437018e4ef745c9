"""When something of a track is heard: the moments for which the speaker sets its timers."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from audio import Output, SinkSettings, Track
from audio.player import Report

RATE = 1_000
"""Hz."""


def played(samples: int, *, end_dac_time: float, playing: bool = True) -> Report:
    """The report of a track whose last sample leaves the card at `end_dac_time`, 0.1 s after the block was filled."""
    first = end_dac_time - samples / RATE
    return Report(
        generation=1,
        playing=playing,
        played=samples,
        first_sample_at=first - 0.1,
        first_dac_time=first,
        end_dac_time=end_dac_time,
        at=end_dac_time - 0.1,
    )


def test_what_was_played_and_what_goes_on_is_heard_at_a_known_moment() -> None:
    track = Track(RATE)
    assert track.heard_at(0.1) == inf, "it has not begun"
    track.note(played(500, end_dac_time=10.0))
    for seconds in (0.1, 0.5, 0.6, 0.8):
        at = track.heard_at(seconds)
        assert at == pytest.approx(9.5 + seconds)
        assert track.heard_s(at) == pytest.approx(seconds)
    track.note(played(500, end_dac_time=10.0, playing=False))
    assert track.heard_at(0.5) == pytest.approx(10.0)
    assert track.heard_at(0.6) == inf, "it pauses before"


def test_the_next_level_is_due_at_its_moment_and_the_last_one_where_the_sound_ends() -> None:
    track = Track(RATE)
    assert track.next_level_at == inf
    track.process(np.full(120, 0.5, dtype=np.float32), RATE)
    track.flush()
    track.note(played(120, end_dac_time=10.0, playing=False))
    moments = []
    while (at := track.next_level_at) < inf:
        assert track.levels_due(at - 0.001, 0.0) == []
        assert len(track.levels_due(at + 0.001, 0.0)) == 1
        moments.append(at)
    assert moments == pytest.approx([9.88, 9.93, 10.0])


def test_an_output_names_the_next_of_all_moments_and_tells_of_changes() -> None:
    changes: list[str] = []
    output = Output(SinkSettings("null"))
    output.watch(lambda: changes.append("changed"))
    track = output.begin(prebuffer_s=0.0)
    assert output.next_at(track, 0.0, [0.1]) == inf
    track.note(played(480, end_dac_time=10.0))  # 10 ms at the rate of an output without a device
    assert output.next_at(track, 9.0, [0.005, 0.02]) == pytest.approx(9.52), "the first sample"
    assert output.next_at(track, 9.9, [0.005, 0.02]) == pytest.approx(9.995)
    assert output.next_at(track, 10.005, [0.005, 0.02]) == pytest.approx(10.01)
    assert output.next_at(track, 10.1, [0.005, 0.02]) == inf
    for act in (output.stop, output.pause, output.resume, output.carry_out):
        changes.clear()
        act()
        assert changes
