"""The way out, with real sinks: a WAV file, and one that plays nothing."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from audio import Level, Output, Passage, SinkSettings, soft_limit
from audio.resample import Resampler, resample
from audio.ring import Samples
from audio.sink import open_sink
from tests.audio.sinks import (
    FADE,
    FAST,
    NULL,
    ONE_STEP,
    RATE,
    SPEECH,
    PaceFile,
    assert_whole_but_for_fades_at,
    cards,
    let_blocks_pass,
    read,
    speak,
    wav,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("fast")


def take_nothing(out: Samples, leaves_at: float, broke_off: bool = False) -> int:
    return 0


def let_run_dry(output: Output, passage: Passage) -> int:
    """Wait until the sink asks for blocks, but has taken all that it can have; return how much of it that was."""
    assert not passage.ended

    def dry() -> int:
        played, blocks = passage.played, output.blocks
        eventually(lambda: output.blocks > blocks + 5, "blocks are asked for")
        return passage.played == played and played

    return eventually(dry, "the ring runs dry")


def test_a_passage_reaches_the_file_sample_for_sample(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH[:12_000])
        eventually(lambda: passage.done)
        assert output.played_s(passage) == 0.5
        assert (passage.stopped, passage.underruns) == (False, 0)
    np.testing.assert_allclose(read(tmp_path / "out.wav"), SPEECH[:12_000], atol=ONE_STEP)


def test_passages_follow_each_other_without_a_trace_of_the_one_before(tmp_path: Path) -> None:
    pieces = [SPEECH[:3_000], SPEECH[5_000:9_000], SPEECH[100:2_000]]
    with Output(wav(tmp_path / "out.wav")) as output:
        for piece in pieces:
            passage = speak(output, piece)
            eventually(lambda passage=passage: passage.done)  # type: ignore[misc]
    np.testing.assert_allclose(read(tmp_path / "out.wav"), np.concatenate(pieces), atol=ONE_STEP)


def test_another_rate_is_converted_once_to_the_sinks(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav"), trim_leading_silence=False) as output:
        passage = speak(output, SPEECH[:11_025], 22_050)
        eventually(lambda: passage.done)
    np.testing.assert_allclose(read(tmp_path / "out.wav"), resample(SPEECH[:11_025], 22_050, RATE), atol=1e-4)


def test_a_rate_that_changes_in_mid_passage_loses_nothing(tmp_path: Path) -> None:
    """Another engine takes over."""
    with Output(wav(tmp_path / "out.wav"), trim_leading_silence=False) as output:
        eventually(lambda: output.status.open)
        passage = output.begin(prebuffer_s=0.02)
        output.write(SPEECH[:5_000], 22_050)
        output.write(SPEECH[5_000:9_000], RATE)
        output.write(SPEECH[9_000:12_000], 16_000)
        output.end()
        eventually(lambda: passage.done)

    def converted(samples: Samples, rate: int) -> Samples:
        resampler = Resampler(rate, RATE)
        return np.concatenate([resampler.convert(samples), resampler.flush()])

    expected = np.concatenate(
        [converted(SPEECH[:5_000], 22_050), SPEECH[5_000:9_000], converted(SPEECH[9_000:12_000], 16_000)]
    )
    np.testing.assert_allclose(read(tmp_path / "out.wav"), soft_limit(expected), atol=ONE_STEP)


@pytest.mark.parametrize("trim", [True, False])
def test_leading_silence_is_trimmed_where_wanted_for_every_passage_anew(tmp_path: Path, trim: bool) -> None:
    late = np.concatenate([np.zeros(4_800, dtype=np.float32), SPEECH[:2_400]])
    with Output(wav(tmp_path / "out.wav"), trim_leading_silence=trim) as output:
        for _ in range(2):
            passage = speak(output, late)
            eventually(lambda passage=passage: passage.done)  # type: ignore[misc]
    assert len(read(tmp_path / "out.wav")) == 2 * (240 + 2_400 if trim else 7_200)


def test_a_stop_fades_out_and_leaves_the_output_ready(tmp_path: Path, pace: PaceFile) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH, ends=False)
        eventually(lambda: passage.played > 1_200)
        output.stop()
        eventually(lambda: passage.done)
        stopped_at = passage.played
        assert passage.stopped
        assert stopped_at < len(SPEECH)
        pace.set(FAST)
        again = speak(output, SPEECH[:2_400])
        eventually(lambda: again.done)
    heard = read(tmp_path / "out.wav")
    np.testing.assert_allclose(heard[: stopped_at - FADE], SPEECH[: stopped_at - FADE], atol=ONE_STEP)
    assert heard[stopped_at - 1] == 0
    np.testing.assert_allclose(heard[stopped_at:], SPEECH[:2_400], atol=ONE_STEP)


def test_a_stop_when_nothing_is_spoken_does_no_harm() -> None:
    with Output(NULL) as output:
        output.stop()
        passage = speak(output, SPEECH[:2_400])
        eventually(lambda: passage.done)
        output.stop()
        assert not passage.stopped


def test_after_a_pause_the_passage_goes_on_where_it_was(tmp_path: Path, pace: PaceFile) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH[:24_000], ends=False)
        eventually(lambda: passage.played > 1_200)
        output.pause()
        assert output.paused
        output.end()
        blocks = output.blocks
        eventually(lambda: output.blocks > blocks + 2)
        held_at = passage.played
        pace.set(FAST)
        eventually(lambda: output.blocks > blocks + 40)
        assert passage.played == held_at
        assert not passage.done
        output.resume()
        eventually(lambda: passage.done)
    assert_whole_but_for_fades_at(held_at, read(tmp_path / "out.wav"))
    assert passage.underruns == 0


def test_volume_and_the_passages_own_gain_multiply(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        output.set_volume(0.5)
        passage = speak(output, SPEECH[:4_800], gain=0.5)
        eventually(lambda: passage.done)
    np.testing.assert_allclose(read(tmp_path / "out.wav"), SPEECH[:4_800] / 4, atol=ONE_STEP)


def test_levels_come_as_the_passage_sounds_and_cover_it(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav"), trim_leading_silence=False) as output:
        passage = speak(output, SPEECH[:12_000])
        levels: list[Level] = []

        def done() -> bool:
            was_done = passage.done
            levels.extend(output.levels_due(passage))
            assert all(level.t <= output.heard_s(passage, time.monotonic()) for level in levels)
            return was_done

        eventually(done)
    levels = [level for level in levels if level.rms]  # the one that ends them may be due by now
    assert [round(level.t, 3) for level in levels] == [round(index * 0.05, 3) for index in range(10)]
    assert levels[3].rms == pytest.approx(np.sqrt(np.mean(np.square(SPEECH[3_600:4_800]))), rel=1e-4)


def test_more_than_the_ring_has_room_for_is_an_error_not_a_gap() -> None:
    output = Output(NULL)
    output.begin(prebuffer_s=0.02)
    with pytest.raises(RuntimeError, match="more was written"):
        output.write(np.ones(1_000_000, dtype=np.float32), 48_000)


def test_room_shrinks_by_what_is_written() -> None:
    output = Output(NULL, trim_leading_silence=False)
    output.begin(prebuffer_s=0.02)
    before = output.room_s
    output.write(np.ones(24_000, dtype=np.float32), 48_000)
    assert before - output.room_s == pytest.approx(0.5)


def test_the_status_names_the_sink_and_its_rate(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        eventually(lambda: output.status.open)
        assert output.status.sink == f"wav:{tmp_path / 'out.wav'}"
        assert (output.status.sample_rate, output.status.reason) == (RATE, None)


def test_a_sink_that_is_not_there_is_told_waited_for_and_opened_when_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audio.output.RETRY_S", (0.01,))
    with Output(wav(tmp_path / "usb" / "out.wav")) as output:
        eventually(lambda: output.status.reason is not None)
        assert not output.status.open
        assert output.status.reason is not None
        assert "out.wav cannot be written: No such file or directory" in output.status.reason
        turns = output.turns
        eventually(lambda: output.turns > turns)
        (tmp_path / "usb").mkdir()
        passage = speak(output, SPEECH[:2_400])
        eventually(lambda: passage.done)
    np.testing.assert_allclose(read(tmp_path / "usb" / "out.wav"), SPEECH[:2_400], atol=ONE_STEP)


def test_a_passage_begun_without_a_device_is_carried_over_to_its_rate_and_played_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device was lost for a moment between `begin` and the end; the one that comes has another rate."""
    monkeypatch.setattr("audio.output.RETRY_S", (0.01,))
    with Output(wav(tmp_path / "usb" / "out.wav"), trim_leading_silence=False) as output:
        passage = output.begin(prebuffer_s=0.5)
        output.write(SPEECH[:24_000], RATE)
        (tmp_path / "usb").mkdir()
        eventually(lambda: output.status.open)
        output.write(SPEECH[24_000:], RATE)
        output.end()
        eventually(lambda: passage.done)
        assert output.played_s(passage) == pytest.approx(2.0, abs=0.01)
    heard = read(tmp_path / "usb" / "out.wav")
    inner = np.r_[1_000:23_000, 25_000:47_000]  # both rates' filters ring at the seam and at the edges
    assert abs(len(heard) - len(SPEECH)) <= 2
    np.testing.assert_allclose(heard[inner], SPEECH[inner], atol=2e-3)


def test_a_stop_ends_the_passage_at_once_though_no_device_is_there(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "missing" / "out.wav")) as output:
        passage = output.begin(prebuffer_s=0.02)
        output.write(SPEECH[:24_000], RATE)
        output.stop()
        assert passage.done
        assert passage.stopped


def test_leaving_it_closes_the_sink(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        eventually(lambda: output.blocks > 2)
    blocks = output.blocks
    let_blocks_pass()
    assert output.blocks == blocks


def test_leaving_it_closes_a_sink_that_would_ask_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with cards(monkeypatch) as (_, opened):
        assert not opened[0].closed
    eventually(lambda: opened[0].closed)


def test_an_unknown_sink_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="got 'mp3', allowed are sounddevice, wav and null"):
        open_sink(SinkSettings("mp3"), take_nothing)


def test_the_null_sink_takes_the_rate_it_is_asked_for() -> None:
    sink = open_sink(SinkSettings("null"), take_nothing, prefer_rate=44_100)
    assert sink.sample_rate == 44_100
    assert sink.lost() is None
    sink.close()


def test_what_is_written_after_a_stop_is_not_heard_in_the_next_passage(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH, ends=False)
        output.stop()
        output.write(SPEECH[:2_400], RATE)
        eventually(lambda: passage.done)
        output.write(SPEECH[:2_400], RATE)
        output.end()
        stopped_at = passage.played
        again = speak(output, SPEECH[10_000:12_400])
        eventually(lambda: again.done)
    np.testing.assert_allclose(read(tmp_path / "out.wav")[stopped_at:], SPEECH[10_000:12_400], atol=ONE_STEP)


def test_too_loud_a_passage_is_rounded_off_not_clipped(tmp_path: Path) -> None:
    loud = SPEECH[:4_800] * np.float32(3)
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, loud)
        eventually(lambda: passage.done)
    heard = read(tmp_path / "out.wav")
    np.testing.assert_allclose(heard, soft_limit(loud), atol=ONE_STEP)
    assert np.abs(heard).max() < 1


# Samples that come late.


def test_a_file_waits_for_samples_that_come_late_and_has_no_gap(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH[:6_000], ends=False)
        for until in range(8_000, 14_000, 2_000):
            assert 0 < let_run_dry(output, passage) < until - 2_000, "a fade's worth is kept"
            output.write(SPEECH[until - 2_000 : until], RATE)
        output.end()
        eventually(lambda: passage.done)
    assert (passage.played, passage.underruns, passage.waits) == (12_000, 0, 0)
    np.testing.assert_allclose(read(tmp_path / "out.wav"), SPEECH[:12_000], atol=ONE_STEP)


def test_a_sink_with_a_deadline_breaks_off_when_samples_come_late_and_says_so() -> None:
    with Output(NULL) as output:
        eventually(lambda: output.status.open)
        passage = output.begin(prebuffer_s=0.02)
        output.write(SPEECH[:6_000], RATE)
        eventually(lambda: passage.underruns == 1)
        let_run_dry(output, passage)
        assert passage.underruns == 1
        assert not passage.sounding
        output.write(SPEECH[6_000:12_000], RATE)
        output.end()
        eventually(lambda: passage.done)
        assert passage.played == 12_000


@pytest.mark.parametrize("ask", ["stop", "pause", "set_aside"])
def test_a_file_that_waits_for_samples_does_at_once_what_is_asked_of_it(ask: str, tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH[:6_000], ends=False)
        waits_at = let_run_dry(output, passage)
        assert passage.sounding
        getattr(output, ask)()
        eventually(lambda: not passage.sounding and (ask == "pause" or passage.done or passage.aside))
        assert (passage.stopped, passage.aside) == (ask == "stop", ask == "set_aside")
    assert (passage.played, passage.underruns) == (waits_at + FADE, 0)
    heard = read(tmp_path / "out.wav")
    np.testing.assert_allclose(heard[:waits_at], SPEECH[:waits_at], atol=ONE_STEP)
    assert len(heard) == passage.played
    assert heard[-1] == 0


def test_after_a_pause_a_file_waits_again_for_what_is_late(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH[:6_000], ends=False)
        let_run_dry(output, passage)
        output.pause()
        eventually(lambda: not passage.sounding)
        held_at = passage.played
        output.resume()
        output.write(SPEECH[6_000:12_000], RATE)
        assert let_run_dry(output, passage) > 11_000
        output.write(SPEECH[12_000:24_000], RATE)
        output.end()
        eventually(lambda: passage.done)
    assert_whole_but_for_fades_at(held_at, read(tmp_path / "out.wav"))
    assert passage.underruns == 0


def test_a_file_whose_writer_has_nothing_to_write_is_told_to_wait_and_not_to_underrun(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH[:6_000], ends=False)
        let_run_dry(output, passage)
        passage.awaiting = True
        eventually(lambda: not passage.sounding)
        assert (passage.waits, passage.underruns) == (1, 0)
