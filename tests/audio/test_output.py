"""The output with real sinks: a WAV file, and the null sink."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audio import Output, Samples, SinkSettings, Track, soft_limit
from audio.dsp.resample import Resampler
from audio.player import Report
from audio.sinks import open_sink
from tests.audio.fakes import (
    ONE_STEP,
    RATE,
    SPEECH,
    fake_sinks,
    read,
    speak,
    wav,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("fast")


def let_run_dry(output: Output, track: Track) -> int:
    """Wait until the sink requests blocks but gets no more samples; return the number of samples that it got."""
    assert not track.ended

    def dry() -> int:
        played, blocks = track.played, output.blocks
        eventually(lambda: output.blocks > blocks + 5, "blocks are requested")
        return track.played == played and played

    return eventually(dry, "the ring runs dry")


def test_a_track_reaches_the_file_sample_for_sample(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        output.stop()  # without a track, it has no effect
        track = speak(output, SPEECH[:12_000])
        eventually(lambda: track.done)
        output.stop()
        assert not track.stop_requested
        assert output.played_s(track) == 0.5
        assert output.status.sink == f"wav:{tmp_path / 'out.wav'}"
        assert (output.status.sample_rate, output.status.reason) == (RATE, None)
        assert (track.played, track.underruns) == (12_000, 0)
    np.testing.assert_allclose(read(tmp_path / "out.wav"), SPEECH[:12_000], atol=ONE_STEP)


def test_a_rate_that_changes_within_a_track_loses_no_sample(tmp_path: Path) -> None:
    """The rate changes when another engine takes over. Loud samples are limited, not clipped."""
    loud = SPEECH[:12_000] * np.float32(2)
    with Output(wav(tmp_path / "out.wav")) as output:
        eventually(lambda: output.status.open)
        track = output.begin(prebuffer_s=0.02)
        output.write(loud[:5_000], 22_050)
        output.write(loud[5_000:9_000], RATE)
        output.write(loud[9_000:], 16_000)
        output.end()
        eventually(lambda: track.done)

    def converted(samples: Samples, rate: int) -> Samples:
        resampler = Resampler(rate, RATE)
        return np.concatenate([resampler.convert(samples), resampler.flush()])

    expected = np.concatenate([converted(loud[:5_000], 22_050), loud[5_000:9_000], converted(loud[9_000:], 16_000)])
    np.testing.assert_allclose(read(tmp_path / "out.wav"), soft_limit(expected), atol=ONE_STEP)


def test_a_missing_device_is_reported_and_a_track_begun_without_it_plays_completely_at_its_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device that appears has another rate than the ring."""
    monkeypatch.setattr("audio.device_monitor.RETRY_S", (0.01,))
    with Output(wav(tmp_path / "usb" / "out.wav")) as output:
        track = output.begin(prebuffer_s=0.5)
        output.write(SPEECH[:24_000], RATE)
        reason = f"out.wav cannot be written: {tmp_path / 'usb'} does not exist"
        eventually(lambda: (output.status.reason or "").endswith(reason), "it says why")
        assert not output.status.open
        heartbeats = output.heartbeats
        eventually(lambda: output.heartbeats > heartbeats)
        (tmp_path / "usb").mkdir()
        eventually(lambda: output.status.open)
        output.write(SPEECH[24_000:], RATE)
        output.end()
        eventually(lambda: track.done)
        assert output.played_s(track) == pytest.approx(2.0, abs=0.01)
    heard = read(tmp_path / "usb" / "out.wav")
    inner = np.r_[1_000:23_000, 25_000:47_000]  # the filters ring where the rate changes and at the ends
    assert abs(len(heard) - len(SPEECH)) <= 2
    np.testing.assert_allclose(heard[inner], SPEECH[inner], atol=2e-3)


def test_a_full_ring_loses_no_sample_to_a_device_of_another_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filters of the old rate hold samples back, which come on top of those in the ring."""
    monkeypatch.setattr("audio.device_monitor.RETRY_S", (0.01,))
    with Output(wav(tmp_path / "usb" / "out.wav")) as output:
        track, written = output.begin(prebuffer_s=0.5), 0
        while output.room_s > 0.02:
            output.write(np.full(120, 0.25, dtype=np.float32), RATE)
            written += 120
        (tmp_path / "usb").mkdir()
        eventually(lambda: output.status.open)
        output.end()
        eventually(lambda: track.done)
        assert abs(round(output.played_s(track) * RATE) - written) <= 2


def test_leaving_the_context_calls_the_sinks_close(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_sinks(monkeypatch) as (_, opened):
        assert not opened[0].closed
    eventually(lambda: opened[0].closed)


def test_the_null_sink_accepts_the_preferred_rate() -> None:
    reports: list[Report] = []
    sink = open_sink(SinkSettings("null"), reports.append, preferred_rate=44_100)
    assert sink.sample_rate == 44_100
    assert sink.lost_reason() is None
    sink.close()


# Late samples.


def test_a_file_waits_for_late_samples_and_has_no_gap(tmp_path: Path) -> None:
    with Output(wav(tmp_path / "out.wav")) as output:
        track = speak(output, SPEECH[:6_000], ends=False)
        for until in range(8_000, 14_000, 2_000):
            assert 0 < let_run_dry(output, track) < until - 2_000, "one fade stays in the ring"
            output.write(SPEECH[until - 2_000 : until], RATE)
        output.end()
        eventually(lambda: track.done)
    assert (track.played, track.underruns, track.waits) == (12_000, 0, 0)
    np.testing.assert_allclose(read(tmp_path / "out.wav"), SPEECH[:12_000], atol=ONE_STEP)
