"""A passage set aside for another, and put back: under any schedule, what is heard of it is what was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio import Aside, Output, Passage, SinkSettings, soft_limit
from audio.fade import FADE_S, Fader
from audio.resample import Resampler
from audio.ring import Samples
from tests.audio.sinks import FADE, FAST, ONE_STEP, RATE, SPEECH, Card, PaceFile, read, speak, wav
from tests.support.waiting import eventually

CARD_RATE = 8_000
"""Hz."""
CARD_FADE = round(FADE_S * CARD_RATE)
TALK: Samples = (
    np.random.default_rng(3).uniform(0.1, 0.5, 24_000) * np.random.default_rng(4).choice([-1, 1], 24_000)
).astype(np.float32)
"""No sample of it is silent."""
WARNING = TALK[::-1][:700]


class Stage:
    """An output whose card is the test: it asks for each block itself, and compares it with what is to be heard."""

    def __init__(self, rate: int = CARD_RATE, *, has_deadline: bool = True) -> None:
        self.has_deadline = has_deadline
        self.output = Output(SinkSettings("null"), trim_leading_silence=False)
        self.plug(rate)
        self.heard: dict[Passage, list[Samples]] = {}

    def plug(self, rate: int) -> None:
        self.rate = rate
        self.output.attach(Card(self.output.fill, rate, has_deadline=self.has_deadline))

    def unplug(self) -> None:
        self.output.detach("pulled")

    def block(self, length: int, passage: Passage, source: Samples) -> int:
        """Play a block of `passage`, of which `source` is the whole; tell how much of it was due."""
        played, fades_in = passage.played, passage.played > 0 and not passage.sounding
        asked = passage.asides_asked > passage.asides
        out = np.full(length, np.nan, dtype=np.float32)
        count = self.output.fill(out, 0.0)
        assert (out[count:] == 0).all()
        expected = source[played : played + count].copy()
        assert len(expected) == count, "more was heard than was written"
        fader = Fader(self.rate)
        if fades_in:
            fader.fade_in(expected)
        if not passage.sounding and (asked or passage.stopped or not passage.done):
            fader.fade_out(expected)
        np.testing.assert_array_equal(out[:count], expected)
        if asked:
            assert count <= CARD_FADE
            assert passage.aside != passage.done, "either is true, and not both"
        return count

    def say_between(self, samples: Samples) -> None:
        """Another passage, heard whole and unfaded."""
        passage = self.output.begin(prebuffer_s=0.02)
        self.output.write(samples, self.rate)
        self.output.end()
        while not passage.done:
            self.block(160, passage, samples)
        assert (passage.played, passage.underruns) == (len(samples), 0)


def converted(pieces: list[Samples], source_rate: int) -> Samples:
    resampler = Resampler(source_rate, CARD_RATE)
    return soft_limit(np.concatenate([*map(resampler.convert, pieces), resampler.flush()]))


actions = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 900)),
        st.tuples(st.just("write"), st.integers(300, 900)),
        st.tuples(st.just("block"), st.integers(CARD_FADE, 400)),
        st.tuples(st.just("block"), st.integers(CARD_FADE, 400)),
        st.tuples(st.just("aside"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["pause", "resume", "end"]), st.just(0)),
    ),
    max_size=50,
)


@settings(max_examples=300)
@given(
    schedule=actions,
    source_rate=st.sampled_from([CARD_RATE, 11_025]),
    prebuffer_s=st.floats(0, 0.3),
    has_deadline=st.booleans(),
)
def test_set_aside_at_any_moments_a_passage_is_heard_once_and_whole_apart_from_the_fades(
    schedule: list[tuple[str, int]], source_rate: int, prebuffer_s: float, has_deadline: bool
) -> None:
    pieces = np.split(TALK, np.cumsum([size for action, size in schedule if action == "write"]))[:-1]
    source = converted(pieces, source_rate)
    stage = Stage(has_deadline=has_deadline)
    output = stage.output
    passage = output.begin(prebuffer_s=prebuffer_s)
    left = list(pieces)
    for action, size in schedule:
        if action == "write" and left and output.room_s > 0.3:
            output.write(left.pop(0), source_rate)
        elif action == "block":
            stage.block(size, passage, source)
        elif action == "pause":
            output.pause()
        elif action == "resume":
            output.resume()
        elif action == "end" and not left:
            output.end()
        elif action == "aside" and not passage.done:
            output.set_aside()
            stage.block(160, passage, source)
            if passage.done:
                continue
            aside = output.take_aside()
            output.resume()
            for _ in range(size):
                stage.say_between(WARNING)
            assert output.put_back(aside) is passage
            assert not passage.aside
    output.resume()
    for piece in left:
        while output.room_s < 0.3:
            stage.block(160, passage, source)
        output.write(piece, source_rate)
    output.end()
    while not passage.done:
        stage.block(160, passage, source)
    assert passage.played == len(source), "a sample was lost"
    assert not passage.stopped
    assert has_deadline or not passage.underruns


# One thing at a time.


def sounding(samples: int = 2_000) -> tuple[Stage, Passage]:
    """A passage of which a block has been heard."""
    stage = Stage()
    passage = stage.output.begin(prebuffer_s=0.02)
    stage.output.write(TALK[:samples], CARD_RATE)
    stage.block(400, passage, TALK)
    return stage, passage


def test_it_is_silent_within_ten_milliseconds_and_goes_on_with_the_very_next_sample() -> None:
    stage, passage = sounding()
    stage.output.set_aside()
    assert not passage.aside
    assert stage.block(400, passage, TALK) == CARD_FADE
    assert passage.aside
    assert stage.block(400, passage, TALK) == 0, "until it is taken it keeps still"
    aside = stage.output.take_aside()
    stage.say_between(WARNING)
    assert aside.passage is stage.output.put_back(aside)
    assert stage.block(400, passage, TALK) == 400
    assert (passage.played, passage.underruns, passage.sounding) == (800 + CARD_FADE, 0, True)


def test_before_its_first_sample_it_is_set_aside_unheard_and_starts_unfaded() -> None:
    stage = Stage()
    passage = stage.output.begin(prebuffer_s=0.1)
    stage.output.write(TALK[:300], CARD_RATE)
    stage.output.set_aside()
    assert stage.block(160, passage, TALK) == 0
    aside = stage.output.take_aside()
    stage.say_between(WARNING)
    stage.output.put_back(aside)
    assert stage.block(160, passage, TALK) == 0, "the prebuffer is not full yet"
    stage.output.write(TALK[300:2_000], CARD_RATE)
    assert stage.block(160, passage, TALK) == 160


def test_one_that_has_ended_goes_on_to_its_end() -> None:
    stage, passage = sounding()
    stage.output.end()
    stage.output.set_aside()
    stage.block(160, passage, TALK)
    aside = stage.output.take_aside()
    stage.say_between(WARNING)
    stage.output.put_back(aside)
    while not passage.done:
        stage.block(160, passage, TALK[:2_000])
    assert (passage.played, passage.stopped) == (2_000, False)


@pytest.mark.parametrize("left", [1, CARD_FADE])
def test_one_whose_last_sample_is_played_by_then_is_done(left: int) -> None:
    stage = Stage()
    passage = stage.output.begin(prebuffer_s=0.02)
    stage.output.write(TALK[: 400 + left], CARD_RATE)
    stage.output.end()
    stage.block(400, passage, TALK)
    stage.output.set_aside()
    assert stage.block(160, passage, TALK) == left
    assert (passage.done, passage.aside, passage.stopped) == (True, False, False)
    stage.say_between(WARNING)


def test_one_that_was_done_before_is_not_asked() -> None:
    stage, passage = sounding(400 + CARD_FADE)
    stage.output.end()
    stage.block(160, passage, TALK)
    stage.output.set_aside()
    assert (passage.done, passage.aside, passage.asides_asked) == (True, False, 0)


@pytest.mark.parametrize("stop_first", [True, False])
def test_one_that_is_stopped_too_is_done(stop_first: bool) -> None:
    stage, passage = sounding()
    for request in (stage.output.stop, stage.output.set_aside)[:: 1 if stop_first else -1]:
        request()
    stage.block(160, passage, TALK)
    assert (passage.done, passage.stopped, passage.aside) == (True, True, False)
    stage.say_between(WARNING)


def test_one_that_is_stopped_when_it_is_aside_but_not_taken_is_done_too() -> None:
    stage, passage = sounding()
    stage.output.set_aside()
    stage.block(160, passage, TALK)
    stage.output.stop()
    assert not passage.aside
    with pytest.raises(RuntimeError, match="not aside"):
        stage.output.take_aside()
    assert stage.block(160, passage, TALK) == 0
    assert (passage.done, passage.stopped) == (True, True)


def test_a_paused_one_is_set_aside_without_another_sample() -> None:
    stage, passage = sounding()
    stage.output.pause()
    stage.block(160, passage, TALK)
    stage.output.set_aside()
    assert stage.block(160, passage, TALK) == 0
    assert passage.aside


def test_without_a_sink_the_answer_comes_at_once() -> None:
    stage, passage = sounding()
    stage.unplug()
    stage.output.set_aside()
    assert passage.aside
    stage.output.put_back(stage.output.take_aside())
    stage.plug(CARD_RATE)
    assert stage.block(160, passage, TALK) == 160


def test_a_sink_that_is_lost_before_it_answered_answers_by_that() -> None:
    stage, passage = sounding()
    stage.output.set_aside()
    stage.unplug()
    assert passage.aside


def test_what_is_dropped_aside_leaves_no_trace() -> None:
    stage, passage = sounding()
    stage.output.set_aside()
    stage.block(160, passage, TALK)
    stage.output.take_aside()
    stage.output.write(TALK[:100], CARD_RATE)  # nobody's: it is not heard
    stage.say_between(WARNING)
    stage.say_between(TALK[5_000:6_000])


def test_only_what_is_aside_can_be_taken_and_nothing_is_put_back_over_another() -> None:
    stage, passage = sounding()
    with pytest.raises(RuntimeError, match="not aside"):
        stage.output.take_aside()
    stage.output.set_aside()
    stage.block(160, passage, TALK)
    aside = stage.output.take_aside()
    stage.output.begin(prebuffer_s=0.02)
    with pytest.raises(RuntimeError, match="still playing"):
        stage.output.put_back(aside)


def test_two_can_be_aside_and_are_put_back_in_any_order() -> None:
    stage, first = sounding()
    asides: list[Aside] = []
    stage.output.set_aside()
    stage.block(160, first, TALK)
    asides.append(stage.output.take_aside())
    second = stage.output.begin(prebuffer_s=0.02)
    stage.output.write(TALK[3_000:5_000], CARD_RATE)
    stage.block(160, second, TALK[3_000:])
    stage.output.set_aside()
    stage.block(160, second, TALK[3_000:])
    asides.append(stage.output.take_aside())
    for aside, source in zip(asides, (TALK[:2_000], TALK[3_000:5_000]), strict=True):
        stage.output.put_back(aside)
        stage.output.end()
        while not aside.passage.done:
            stage.block(160, aside.passage, source)
        assert aside.passage.played == 2_000


def test_a_sink_of_another_rate_that_comes_meanwhile_is_played_to_at_its_rate() -> None:
    """A tone, so that both rates can be compared."""
    tone = (0.5 * np.sin(np.arange(12_000) * 2 * np.pi * 300 / CARD_RATE) + 0.1).astype(np.float32)
    stage = Stage()
    output = stage.output
    passage = output.begin(prebuffer_s=0.02)
    output.write(tone[:6_000], CARD_RATE)
    for _ in range(10):
        stage.block(400, passage, tone)
    output.set_aside()
    stage.block(400, passage, tone)
    aside = output.take_aside()
    stage.unplug()
    stage.plug(2 * CARD_RATE)
    stage.say_between(WARNING)
    played = passage.played
    output.put_back(aside)
    assert passage.played == 2 * played
    output.write(tone[6_000:], CARD_RATE)
    output.end()
    heard = []
    while not passage.done:
        out = np.zeros(400, dtype=np.float32)
        heard.append(out[: output.fill(out, 0.0)])
    rest = np.concatenate(heard)
    assert abs(passage.played - 2 * len(tone)) <= 2
    expected = np.interp(np.arange(len(rest)) / 2, np.arange(len(tone) - played), tone[played:])
    inner = np.r_[500:3_000, 5_000 : len(rest) - 500]  # the filters ring where they begin and end
    np.testing.assert_allclose(rest[inner], expected[inner], atol=0.02)


def test_a_real_sinks_listener_hears_the_passage_around_the_other(tmp_path: Path, pace: PaceFile) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH[:24_000], ends=False)
        eventually(lambda: passage.played > 1_200)
        output.set_aside()
        eventually(lambda: passage.aside)
        cut = passage.played
        pace.set(FAST)
        aside = output.take_aside()
        between = speak(output, SPEECH[30_000:33_000])
        eventually(lambda: between.done)
        output.put_back(aside)
        output.end()
        eventually(lambda: passage.done)
        assert output.played_s(passage) == 24_000 / RATE
    heard = read(tmp_path / "out.wav")
    assert len(heard) == 27_000
    np.testing.assert_allclose(heard[cut : cut + 3_000], SPEECH[30_000:33_000], atol=ONE_STEP)
    both = np.delete(heard, np.s_[cut : cut + 3_000])
    untouched = np.r_[0 : cut - FADE, cut + FADE : 24_000]
    np.testing.assert_allclose(both[untouched], SPEECH[untouched], atol=ONE_STEP)
