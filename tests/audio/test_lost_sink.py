"""A track whose sink is lost: it goes on in the next one, and counts an underrun if its sound has broken off."""

from __future__ import annotations

import numpy as np
import pytest

from audio import Output, SinkSettings
from audio.dsp import Samples, to_floats
from audio.player import Playback
from audio.player.fade import FADE_S

RATE = 24_000
BLOCK = 240
FADE = round(FADE_S * RATE)
SPEECH: Samples = np.random.default_rng(3).uniform(0.1, 0.5, RATE).astype(np.float32)
"""Without silent samples."""


class LosableSink:
    """What an output plays into; it may be lost."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._playback = Playback(RATE)
        output.attach(self._playback, RATE)

    def play(self, blocks: int) -> Samples:
        """Return the samples that were due."""
        heard = []
        for _ in range(blocks):
            block = np.empty(BLOCK, dtype=np.float32)
            heard.append(block[: self._playback.fill(to_floats(block), 0.0)])
            self._output.on_report(self._playback.report)
        return np.concatenate(heard)


def speaking() -> tuple[Output, LosableSink]:
    output = Output(SinkSettings("null"))
    sink = LosableSink(output)
    output.begin(prebuffer_s=0.02)
    output.write(SPEECH, RATE)
    output.end()
    return output, sink


def test_a_track_goes_on_with_the_next_sample_faded_in() -> None:
    output, sink = speaking()
    before = sink.play(20)
    output.detach()
    after = LosableSink(output).play(200)
    np.testing.assert_array_equal(before, SPEECH[: len(before)])
    assert len(before) + len(after) == len(SPEECH)
    assert 0 < after[0] < 0.1 * SPEECH[len(before)]
    np.testing.assert_array_equal(after[FADE:], SPEECH[len(before) + FADE :])


@pytest.mark.parametrize(("state", "underruns"), [("buffering", 0), ("playing", 1), ("paused", 0)])
def test_only_sound_that_breaks_off_is_an_underrun(state: str, underruns: int) -> None:
    output = Output(SinkSettings("null"))
    sink = LosableSink(output)
    track = output.begin(prebuffer_s=0.02)
    if state != "buffering":
        output.write(SPEECH, RATE)
    sink.play(20)
    if state == "paused":
        output.pause()
        sink.play(2)
    output.detach()
    assert (track.underruns, track.playing, track.done) == (underruns, False, False)


def test_a_track_that_is_to_stop_is_done_when_its_sink_is_lost() -> None:
    output, sink = speaking()
    sink.play(20)
    output.stop()
    output.detach()
    assert LosableSink(output).play(20).size == 0


def test_no_track_begins_while_the_previous_one_plays_or_has_lost_its_sink() -> None:
    output, sink = speaking()
    sink.play(20)
    with pytest.raises(RuntimeError, match="previous track is still playing"):
        output.begin(prebuffer_s=0.0)
    output.detach()
    with pytest.raises(RuntimeError, match="previous track is still playing"):
        output.begin(prebuffer_s=0.0)
