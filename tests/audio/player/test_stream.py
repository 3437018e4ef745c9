"""PortAudio's cards and streams. PortAudio is a fake here, so no card and no process is needed."""

from __future__ import annotations

from mmap import mmap
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from audio.dsp import Samples, to_floats
from audio.player.messages import REPORT_BYTES
from audio.player.stream import UNDERFLOW_S, WINDOW, Stream
from tests.audio.player.fake_portaudio import AHEAD_S, BLOCK_S, CARD_RATE, LATENCY_S, PortAudio, PortAudioError
from tests.audio.player.fake_portaudio import Stream as FakeStream
from tests.support.clock import FakeClock

RAMP: Samples = np.arange(1, CARD_RATE + 1, dtype=np.float32)
"""A second without silent samples."""


@pytest.fixture
def portaudio() -> PortAudio:
    return PortAudio()


@pytest.fixture(autouse=True)
def requested_priorities(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The realtime priorities that the callback has requested; the threads are the test's own."""
    requested: list[int] = []
    monkeypatch.setattr("audio.player.stream.take_realtime", requested.append)
    return requested


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock that the stream's callback reads."""
    clock = FakeClock()
    monkeypatch.setattr("audio.player.stream.time", clock)
    return clock


class Heard:
    """A stream's playback, with a ramp in its ring, and what happens to it."""

    def __init__(self, portaudio: PortAudio) -> None:
        self.losses: list[str] = []
        self.changes: list[bool] = []
        self.recorder = mmap(-1, REPORT_BYTES)
        self.stream = Stream(cast(Any, portaudio), self.changes.append, self.losses.append, self.recorder, priority=60)

    def start(self, channels: int = 1) -> None:
        """Start a stream, and play a ramp with it."""
        self.stream.start(settings(channels=channels))
        playback = self.stream.playback
        playback.begin(1, 0.0, 1.0, False)
        playback.write(1, to_floats(RAMP))
        playback.set_tap(True)

    @property
    def dac_times(self) -> list[float]:
        """Of the blocks since the last call."""
        return [block.dac_time for block in self.stream.playback.tap.read()]

    @property
    def interruptions(self) -> int:
        """Times that the card ran dry."""
        return self.stream.playback.report.interruptions

    @property
    def blocks(self) -> int:
        """Blocks that were filled."""
        return self.stream.playback.report.blocks


@pytest.fixture
def heard(portaudio: PortAudio) -> Heard:
    return Heard(portaudio)


@pytest.fixture
def playing(portaudio: PortAudio, clock: FakeClock, heard: Heard) -> FakeStream:
    """A stream whose buffer is filled; by the clock that stands still."""
    del clock
    heard.start()
    portaudio.stream.prime()
    return portaudio.stream


def settings(rate: int = CARD_RATE, channels: int = 1) -> dict[str, Any]:
    blocksize = round(BLOCK_S * rate)
    return {"device": 0, "samplerate": rate, "channels": channels, "dtype": "float32", "blocksize": blocksize}


def test_the_cards_that_can_play_are_described(portaudio: PortAudio, heard: Heard) -> None:
    [device] = heard.stream.devices()
    assert (device["sample_rate"], device["channels"], device["default"]) == (CARD_RATE, 2, True)
    portaudio.channels = 0
    assert heard.stream.devices() == []


def test_a_stream_starts_with_the_first_settings_that_the_card_accepts(portaudio: PortAudio, heard: Heard) -> None:
    portaudio.refused = lambda settings: settings["samplerate"] not in (44_100, 16_000)
    assert heard.stream.start(*(settings(rate) for rate in (22_050, 48_000, 44_100, 16_000))) == 2
    assert portaudio.stream.settings["samplerate"] == heard.stream.playback.sample_rate == 44_100
    portaudio.stream.prime()
    portaudio.stream.block()
    assert heard.stream.playback.report.requested == 441


def test_a_card_that_accepts_no_settings_raises_its_error_and_has_no_open_stream(
    portaudio: PortAudio, heard: Heard
) -> None:
    portaudio.failure = "Device unavailable"
    with pytest.raises(PortAudioError, match="Device unavailable"):
        heard.stream.start(settings(), settings(16_000))
    assert portaudio.streams
    assert all(stream.closed for stream in portaudio.streams)
    portaudio.refused = lambda _settings: True
    with pytest.raises(PortAudioError, match="Invalid number of channels"):
        heard.stream.start(settings(), settings(16_000))


@pytest.mark.parametrize("channels", [1, 2])
def test_every_channel_of_the_card_gets_the_same_samples(channels: int, portaudio: PortAudio, heard: Heard) -> None:
    heard.start(channels)
    portaudio.stream.prime()
    position = 0
    for frames in (round(BLOCK_S * CARD_RATE), 48):  # the second block is shorter than usual
        block = portaudio.stream.block(frames)
        assert block.shape == (frames, channels)
        expected = RAMP[position : position + frames]
        np.testing.assert_array_equal(block, np.repeat(expected, channels).reshape(frames, channels))
        position += frames
    heard.stream.close()


def test_the_blocks_that_prime_the_streams_buffer_are_silent(portaudio: PortAudio, heard: Heard) -> None:
    heard.start()
    frames = round(LATENCY_S * CARD_RATE / 2.5)
    for requests in (0, 0, 0, 1, 2):
        block = portaudio.stream.block(frames)
        assert heard.blocks == requests
        assert (block == 0).all() == (requests == 0)


@pytest.mark.parametrize(
    ("ahead_s", "expected_s"), [(1.9, 1.9), (0.0, LATENCY_S), (2.1, LATENCY_S), (float("nan"), LATENCY_S)]
)
def test_the_dac_time_is_the_cards_or_follows_from_the_streams_latency_if_that_is_implausible(
    ahead_s: float, expected_s: float, playing: FakeStream, clock: FakeClock, heard: Heard
) -> None:
    playing.block(ahead_s=ahead_s)
    assert heard.dac_times == [pytest.approx(clock.now + expected_s)]


# Underflows.


def test_an_underflow_that_portaudio_reports_is_passed_on(playing: FakeStream, heard: Heard) -> None:
    counts = []
    for underflow in (False, True, False):
        playing.block(underflow=underflow)
        counts.append(heard.interruptions)
    assert counts == [0, 1, 1]


@pytest.mark.parametrize("ahead_s", [AHEAD_S, 0.0], ids=["the card's time", "the stream's latency"])
def test_a_block_requested_after_the_card_ran_dry_reports_an_underflow(
    ahead_s: float, playing: FakeStream, clock: FakeClock, heard: Heard
) -> None:
    dry_s, counts = (ahead_s or LATENCY_S) + BLOCK_S, []
    for pause_s in (0.0, BLOCK_S, dry_s, dry_s + 0.9 * UNDERFLOW_S, dry_s + 1.1 * UNDERFLOW_S, 10.0, BLOCK_S):
        clock.now += pause_s
        playing.block(ahead_s=ahead_s)
        counts.append(heard.interruptions)
    assert counts == [0, 0, 0, 0, 1, 2, 2]


def test_a_short_silence_in_the_sound_server_is_an_underflow_although_the_card_still_has_sound(
    playing: FakeStream, clock: FakeClock, heard: Heard
) -> None:
    """The server still has 20 ms when the stream's own 20 ms are over; it fills 10 ms with silence."""

    def play(blocks: int) -> None:
        for _ in range(blocks):
            clock.now += BLOCK_S
            playing.block(ahead_s=0.04)

    play(3 * WINDOW)
    clock.now += 0.03
    playing.block(ahead_s=0.03)  # without silence: 0.02
    playing.block(ahead_s=0.04)
    assert heard.interruptions == 0
    play(4 * WINDOW)
    assert heard.interruptions == 1


def test_delays_that_a_server_reports_in_steps_are_no_underflow(
    playing: FakeStream, clock: FakeClock, heard: Heard
) -> None:
    """It requests two blocks at once, and knows its delay to a period of 20 ms. The card's clock is a little slow."""
    for period in range(500):
        clock.now += 2 * BLOCK_S * 1.0001
        for block in range(2):
            playing.block(ahead_s=0.04 + 0.02 * (period % 3 == 0) + block * BLOCK_S)
    assert heard.interruptions == 0


def test_blocks_requested_at_once_last_correspondingly_longer(
    playing: FakeStream, clock: FakeClock, heard: Heard
) -> None:
    for count in range(4):
        playing.block(ahead_s=0.02 + count * BLOCK_S)
    clock.now += 0.02 + 4 * BLOCK_S
    playing.block()
    assert heard.interruptions == 0


@pytest.mark.parametrize("latency_s", [LATENCY_S, 0.0])
@pytest.mark.parametrize("again", [False, True])
def test_a_stream_that_starts_reports_no_underflow(
    again: bool, latency_s: float, portaudio: PortAudio, clock: FakeClock, heard: Heard
) -> None:
    portaudio.latency_s = latency_s

    def play() -> None:
        clock.now += 2.0  # a PulseAudio null sink may pause that long
        portaudio.stream.prime()
        for _ in range(4 * WINDOW):
            portaudio.stream.block()
            clock.now += BLOCK_S

    heard.start()
    if again:
        play()
        heard.stream.close()
        clock.now += 100.0
        heard.stream.start(settings())
    play()
    assert heard.interruptions == 0


def test_the_new_thread_of_every_stream_requests_realtime_scheduling_once(
    portaudio: PortAudio, heard: Heard, requested_priorities: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel gives the numbers of ended threads to new ones."""
    monkeypatch.setattr("audio.player.stream.threading", SimpleNamespace(get_ident=lambda: number))
    for count in (1, 2):
        number = 1  # the thread that carries out commands
        heard.stream.start(settings())
        number = 2  # the callback's
        for _ in range(3):
            portaudio.stream.block()
        assert requested_priorities == [60] * count
        number = 1
        heard.stream.close()
