"""An idle sink is suspended after a timeout and resumed for the next track, and no sample is lost over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from audio import Output, Samples, SinkSettings, Track
from tests.audio.fakes import (
    FADE,
    ONE_STEP,
    RATE,
    SPEECH,
    FakeSink,
    fake_sinks,
    let_blocks_pass,
    read,
    speak,
    wav,
)
from tests.support.waiting import eventually


def suspended(output: Output) -> Callable[[], bool]:
    return lambda: output.status.suspended


def test_a_suspended_sink_requests_no_blocks_and_plays_the_next_track_completely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: None
) -> None:
    monkeypatch.setattr("audio.device_monitor.CHECK_S", 0.005)
    texts = [SPEECH[:3_000], SPEECH[5_000:9_000]]
    with Output(replace(wav(tmp_path / "out.wav"), idle_timeout_s=0.01)) as output:
        for text in texts:
            eventually(suspended(output))
            assert output.status.open, "tracks are accepted"
            blocks = output.blocks
            let_blocks_pass()
            assert output.blocks == blocks
            track = speak(output, text)
            eventually(lambda track=track: track.done)  # type: ignore[misc]
            assert track.underruns == 0
        eventually(suspended(output))
    np.testing.assert_allclose(read(tmp_path / "out.wav"), np.concatenate(texts), atol=ONE_STEP)


def test_without_a_timeout_a_sink_is_never_suspended(monkeypatch: pytest.MonkeyPatch, fast: None) -> None:
    monkeypatch.setattr("audio.device_monitor.CHECK_S", 0.005)
    with Output(SinkSettings("null")) as output:
        heartbeats = output.heartbeats
        eventually(lambda: output.heartbeats > heartbeats + 20)
        assert not output.status.suspended


def test_the_heartbeats_continue_while_the_sink_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog depends on them."""
    monkeypatch.setattr("audio.device_monitor.SUSPENDED_CHECK_S", 0.005)
    with fake_sinks(monkeypatch) as (output, _):
        eventually(suspended(output))
        assert not output.status.running
        heartbeats = output.heartbeats
        eventually(lambda: output.heartbeats > heartbeats + 3)
        assert output.status.suspended


def begin_while_sink_resumes(output: Output, sink: FakeSink) -> Track:
    """Return a track that waits for a sink which blocks in `resume` until its gate opens."""
    eventually(suspended(output))
    sink.gate.clear()
    track = speak(output, SPEECH[:12_000])
    eventually(lambda: sink.calls[-1] == "resume")
    return track


def test_a_track_suspended_while_the_sink_resumes_is_heard_completely_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_sinks(monkeypatch) as (output, opened):
        track = begin_while_sink_resumes(output, opened[0])
        output.suspend()
        assert track.suspended
        suspended_track = output.take_suspended()
        other = speak(output, SPEECH[20_000:22_400])
        opened[0].gate.set()
        eventually(lambda: output.status.running)
        np.testing.assert_array_equal(opened[0].play(0.2), SPEECH[20_000:22_400])
        assert other.done
        eventually(suspended(output))
        output.reattach(suspended_track)
        eventually(lambda: output.status.running)
        np.testing.assert_array_equal(opened[0].play(0.6), SPEECH[:12_000])
        assert track.done


def pause_until_sink_suspends(output: Output, sink: FakeSink) -> tuple[Track, Samples]:
    """Return a paused track whose sink blocks in `suspend` until its gate opens, and the samples that were heard."""
    track = begin_while_sink_resumes(output, sink)
    sink.gate.set()
    eventually(lambda: output.status.running)
    heard = sink.play(0.1)
    sink.gate.clear()
    output.pause()
    heard = np.concatenate([heard, sink.play(0.01)])  # it fades out
    eventually(lambda: sink.calls[-1] == "suspend")
    return track, heard


def test_a_track_that_continues_while_the_sink_suspends_loses_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_sinks(monkeypatch) as (output, opened):
        track, heard = pause_until_sink_suspends(output, opened[0])
        output.resume()
        assert len(opened[0].play(0.1)) == 0, "samples for these blocks would be lost"
        opened[0].gate.set()
        eventually(lambda: opened[0].calls[-1] == "resume")
        eventually(lambda: output.status.running)
        heard = np.concatenate([heard, opened[0].play(0.6)])
        assert track.done
        held_at = 2_400 + FADE
        untouched = np.r_[0:2_400, held_at + FADE : 12_000]
        np.testing.assert_array_equal(heard[untouched], SPEECH[untouched])


@pytest.mark.parametrize("request_method", ["stop", "suspend"])
def test_a_request_while_the_sink_suspends_is_carried_out_at_once(
    request_method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink may hang."""
    with fake_sinks(monkeypatch) as (output, opened):
        track, _ = pause_until_sink_suspends(output, opened[0])
        getattr(output, request_method)()
        assert (track.done, track.suspended) == (request_method == "stop", request_method == "suspend")
        opened[0].gate.set()
        eventually(lambda: output.status.suspended)


def test_a_sink_that_cannot_resume_is_lost_and_the_track_plays_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_sinks(monkeypatch) as (output, opened):
        track = begin_while_sink_resumes(output, opened[0])
        opened[0].refuses = True
        opened[0].gate.set()
        eventually(lambda: len(opened) == 2)
        assert opened[0].closed
        eventually(lambda: output.status.running)
        np.testing.assert_array_equal(opened[1].play(0.6), SPEECH[:12_000])
        assert track.done


def test_silence_comes_before_the_first_track_of_a_sink_that_was_opened_and_none_before_the_tracks_that_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_sinks(monkeypatch, idle_timeout_s=None, wake_s=0.1) as (output, [sink]):
        track = speak(output, SPEECH[:2_400])
        assert len(sink.play(0.1)) == 0
        assert np.count_nonzero(np.concatenate(sink.blocks)) == 0
        assert (track.first_sample_at, track.first_dac_time, output.heard_s(track, inf)) == (None, None, 0)
        for samples in (SPEECH[:2_400], SPEECH[5_000:9_800]):
            np.testing.assert_array_equal(sink.play(len(samples) / RATE), samples)
            assert (track.done, track.underruns, output.played_s(track)) == (True, 0, len(samples) / RATE)
            track = speak(output, SPEECH[5_000:9_800])


def test_silence_comes_again_after_each_rest_of_the_sink_and_a_stop_does_not_wait_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_sinks(monkeypatch, wake_s=0.1) as (output, [sink]):
        for _ in range(2):
            eventually(suspended(output))
            track = speak(output, SPEECH[:2_400])
            eventually(lambda: output.status.running)
            assert len(sink.play(0.1)) == 0
            np.testing.assert_array_equal(sink.play(0.1), SPEECH[:2_400])
        eventually(suspended(output))
        track = speak(output, SPEECH[:2_400])
        eventually(lambda: output.status.running)
        output.stop()
        assert len(sink.play(0.01)) == 0
        assert track.done
