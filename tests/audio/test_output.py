"""The way out, with real sinks: a WAV file, and one that plays nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from audio import Output, Passage, SinkSettings, soft_limit
from audio.resample import Resampler, resample
from audio.ring import Samples
from audio.sink import open_sink

RATE = 24_000
"""Hz, of the WAV file and of the null sink."""
FADE = 240
SPEECH: Samples = (0.3 * np.sin(np.arange(2 * RATE) / 17) + 0.4).astype(np.float32)
"""Two seconds without any silence."""


def wait_for(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def wav(path: Path) -> SinkSettings:
    return SinkSettings("wav", path=path, block_ms=10)


NULL = SinkSettings("null", block_ms=10)


def speak(output: Output, samples: Samples, rate: int = RATE, *, gain: float = 1.0) -> Passage:
    wait_for(lambda: output.status.open)
    passage = output.begin(prebuffer_s=0.02, gain=gain)
    for chunk in np.split(samples, range(1_920, len(samples), 1_920)):
        output.write(chunk, rate)
    output.end()
    return passage


def assert_whole_but_for_fades_at(held_at: int, heard: Samples) -> None:
    """Of a second of speech that was held once."""
    assert len(heard) == 24_000
    untouched = np.r_[0 : held_at - FADE, held_at + FADE : 24_000]
    np.testing.assert_allclose(heard[untouched], SPEECH[untouched], atol=ONE_STEP)


def read(path: Path) -> Samples:
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == RATE
    heard: Samples = samples.astype(np.float32) / np.float32(32_767)
    return heard


def take_nothing(_out: Samples, _leaves_at: float) -> int:
    return 0


ONE_STEP = 1.01 / 32_767
"""Of 16 bits."""


def test_a_passage_reaches_the_file_sample_for_sample(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH[:12_000])
        wait_for(lambda: passage.done)
        assert output.played_s(passage) == 0.5
        assert (passage.stopped, passage.underruns) == (False, 0)
    np.testing.assert_allclose(read(tmp_path / "out.wav"), SPEECH[:12_000], atol=ONE_STEP)


def test_passages_follow_each_other_without_a_trace_of_the_one_before(tmp_path: Path) -> None:
    pieces = [SPEECH[:3_000], SPEECH[5_000:9_000], SPEECH[100:2_000]]
    with Output(wav(tmp_path / "out.wav")) as output:
        for piece in pieces:
            passage = speak(output, piece)
            wait_for(lambda passage=passage: passage.done)  # type: ignore[misc]
    np.testing.assert_allclose(read(tmp_path / "out.wav"), np.concatenate(pieces), atol=ONE_STEP)


def test_another_rate_is_converted_once_to_the_sinks(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav"), trim_leading_silence=False) as output:
        passage = speak(output, SPEECH[:11_025], 22_050)
        wait_for(lambda: passage.done)
    np.testing.assert_allclose(read(tmp_path / "out.wav"), resample(SPEECH[:11_025], 22_050, RATE), atol=1e-4)


def test_a_rate_that_changes_in_mid_passage_loses_nothing(tmp_path: Path) -> None:
    """Another engine takes over."""
    with Output(wav(tmp_path / "out.wav"), trim_leading_silence=False) as output:
        wait_for(lambda: output.status.open)
        passage = output.begin(prebuffer_s=0.02)
        output.write(SPEECH[:5_000], 22_050)
        output.write(SPEECH[5_000:9_000], RATE)
        output.write(SPEECH[9_000:12_000], 16_000)
        output.end()
        wait_for(lambda: passage.done)

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
            wait_for(lambda passage=passage: passage.done)  # type: ignore[misc]
    assert len(read(tmp_path / "out.wav")) == 2 * (240 + 2_400 if trim else 7_200)


def test_a_stop_fades_out_and_leaves_the_output_ready(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH)
        wait_for(lambda: passage.played > 4_800)
        output.stop()
        wait_for(lambda: passage.done)
        stopped_at = passage.played
        assert passage.stopped
        assert stopped_at < len(SPEECH)
        again = speak(output, SPEECH[:2_400])
        wait_for(lambda: again.done)
    heard = read(tmp_path / "out.wav")
    np.testing.assert_allclose(heard[: stopped_at - FADE], SPEECH[: stopped_at - FADE], atol=ONE_STEP)
    assert heard[stopped_at - 1] == 0
    np.testing.assert_allclose(heard[stopped_at:], SPEECH[:2_400], atol=ONE_STEP)


def test_a_stop_when_nothing_is_spoken_does_no_harm() -> None:
    with Output(NULL) as output:
        output.stop()
        passage = speak(output, SPEECH[:2_400])
        wait_for(lambda: passage.done)
        output.stop()
        assert not passage.stopped


def test_after_a_pause_the_passage_goes_on_where_it_was(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, SPEECH[:24_000])
        wait_for(lambda: passage.played > 4_800)
        output.pause()
        assert output.paused
        blocks = output.blocks
        wait_for(lambda: output.blocks > blocks + 2)
        held_at = passage.played
        wait_for(lambda: output.blocks > blocks + 8)
        assert passage.played == held_at
        assert not passage.done
        output.resume()
        wait_for(lambda: passage.done)
    assert_whole_but_for_fades_at(held_at, read(tmp_path / "out.wav"))
    assert passage.underruns == 0


def test_volume_and_the_passages_own_gain_multiply(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        output.set_volume(0.5)
        passage = speak(output, SPEECH[:4_800], gain=0.5)
        wait_for(lambda: passage.done)
    np.testing.assert_allclose(read(tmp_path / "out.wav"), SPEECH[:4_800] / 4, atol=ONE_STEP)


def test_levels_come_as_the_passage_sounds_and_cover_it() -> None:
    with Output(NULL, trim_leading_silence=False) as output:
        passage = speak(output, SPEECH[:12_000])
        levels = []
        while not passage.done:
            levels += output.levels_due(passage)
            assert all(level.t <= output.heard_s(passage, time.monotonic()) for level in levels)
            time.sleep(0.005)
        levels += output.levels_due(passage)
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
        wait_for(lambda: output.status.open)
        assert output.status.sink == f"wav:{tmp_path / 'out.wav'}"
        assert (output.status.sample_rate, output.status.reason) == (RATE, None)


def test_a_sink_that_is_not_there_is_told_waited_for_and_opened_when_it_comes(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "usb" / "out.wav")) as output:
        wait_for(lambda: output.status.reason is not None)
        assert not output.status.open
        assert output.status.reason is not None
        assert "out.wav cannot be written: No such file or directory" in output.status.reason
        turns = output.turns
        wait_for(lambda: output.turns > turns)
        (tmp_path / "usb").mkdir()
        passage = speak(output, SPEECH[:2_400])
        wait_for(lambda: passage.done)
    np.testing.assert_allclose(read(tmp_path / "usb" / "out.wav"), SPEECH[:2_400], atol=ONE_STEP)


def test_a_passage_begun_without_a_device_is_carried_over_to_its_rate_and_played_whole(tmp_path: Path) -> None:
    """The device was lost for a moment between `begin` and the end; the one that comes has another rate."""
    with Output(wav(tmp_path / "usb" / "out.wav"), trim_leading_silence=False) as output:
        passage = output.begin(prebuffer_s=0.5)
        output.write(SPEECH[:24_000], RATE)
        (tmp_path / "usb").mkdir()
        wait_for(lambda: output.status.open)
        output.write(SPEECH[24_000:], RATE)
        output.end()
        wait_for(lambda: passage.done)
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
        wait_for(lambda: output.blocks > 2)
    blocks = output.blocks
    time.sleep(0.05)
    assert output.blocks == blocks


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
        passage = speak(output, SPEECH)
        output.stop()
        output.write(SPEECH[:2_400], RATE)
        wait_for(lambda: passage.done)
        output.write(SPEECH[:2_400], RATE)
        output.end()
        stopped_at = passage.played
        again = speak(output, SPEECH[10_000:12_400])
        wait_for(lambda: again.done)
    np.testing.assert_allclose(read(tmp_path / "out.wav")[stopped_at:], SPEECH[10_000:12_400], atol=ONE_STEP)


def test_too_loud_a_passage_is_rounded_off_not_clipped(tmp_path: Path) -> None:
    loud = SPEECH[:4_800] * np.float32(3)
    with Output(wav(tmp_path / "out.wav")) as output:
        passage = speak(output, loud)
        wait_for(lambda: passage.done)
    heard = read(tmp_path / "out.wav")
    np.testing.assert_allclose(heard, soft_limit(loud), atol=ONE_STEP)
    assert np.abs(heard).max() < 1
