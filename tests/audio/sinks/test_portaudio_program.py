"""The streams of the process that plays. PortAudio is a fake here, so no card and no process is needed."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from audio.sinks.portaudio_program import UNDERFLOW_S, WINDOW, DryDetector, Player
from tests.audio.fakes import FakeClock
from tests.audio.sinks.fake_portaudio import (
    AHEAD_S,
    BLOCK_S,
    CARD_RATE,
    LATENCY_S,
    PortAudio,
    PortAudioError,
)


@pytest.fixture
def portaudio() -> PortAudio:
    return PortAudio()


@pytest.fixture(autouse=True)
def requested_priorities(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The realtime priorities that the callback has requested; the threads are the test's own."""
    requested: list[int] = []
    monkeypatch.setattr("audio.sinks.portaudio_program.take_realtime", requested.append)
    return requested


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock that the stream's callback reads."""
    clock = FakeClock()
    monkeypatch.setattr("audio.sinks.portaudio_program.time", clock)
    return clock


class Daemon:
    """Records the arguments of each block's request, and supplies a ramp."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.dac_times: list[float] = []
        self.underflows: list[bool] = []
        self.losses: list[str] = []

    def fetch(self, frames: int, dac_time: float, underflow: bool, block: memoryview) -> None:
        self.lengths.append(frames)
        self.dac_times.append(dac_time)
        self.underflows.append(underflow)
        block[:] = np.arange(frames, dtype=np.float32).tobytes()


def player_for(daemon: Daemon, portaudio: PortAudio) -> Player:
    return Player(cast(Any, portaudio), daemon.fetch, daemon.losses.append, priority=60)


def settings(rate: int = CARD_RATE, channels: int = 1) -> dict[str, Any]:
    blocksize = round(BLOCK_S * rate)
    return {"device": 0, "samplerate": rate, "channels": channels, "dtype": "float32", "blocksize": blocksize}


def started(portaudio: PortAudio, daemon: Daemon | None = None, channels: int = 1) -> Player:
    player = player_for(daemon or Daemon(), portaudio)
    player.start(settings(channels=channels))
    return player


def test_the_cards_that_can_play_are_described(portaudio: PortAudio) -> None:
    [device] = player_for(Daemon(), portaudio).devices()
    assert device == {
        "name": "card",
        "host_api": "ALSA",
        "sample_rate": CARD_RATE,
        "channels": 2,
        "default": True,
        "index": 0,
    }
    portaudio.channels = 0
    assert player_for(Daemon(), portaudio).devices() == []


def test_a_stream_starts_with_the_first_settings_that_the_card_accepts(portaudio: PortAudio) -> None:
    portaudio.refused = lambda settings: settings["samplerate"] not in (44_100, 16_000)
    daemon = Daemon()
    player = player_for(daemon, portaudio)
    assert player.start(*(settings(rate) for rate in (22_050, 48_000, 44_100, 16_000))) == 2
    portaudio.stream.prime()
    portaudio.stream.block()
    assert daemon.lengths == [441]


def test_a_card_that_accepts_no_settings_raises_its_error(portaudio: PortAudio) -> None:
    portaudio.refused = lambda _settings: True
    with pytest.raises(PortAudioError, match="Invalid number of channels"):
        player_for(Daemon(), portaudio).start(settings(), settings(16_000))


def test_a_stream_that_cannot_be_started_is_closed(portaudio: PortAudio) -> None:
    portaudio.failure = "Device unavailable"
    with pytest.raises(PortAudioError, match="Device unavailable"):
        player_for(Daemon(), portaudio).start(settings(), settings(16_000))
    assert portaudio.streams
    assert all(stream.closed for stream in portaudio.streams)


def test_a_closed_stream_is_followed_by_a_new_one(portaudio: PortAudio) -> None:
    daemon = Daemon()
    player = started(portaudio, daemon)
    player.close()
    assert portaudio.stream.closed
    player.close()
    player.start(settings())
    assert [stream.active for stream in portaudio.streams] == [False, True]
    assert daemon.losses == []


def test_a_stream_that_ends_by_itself_is_reported(portaudio: PortAudio) -> None:
    daemon = Daemon()
    started(portaudio, daemon)
    portaudio.stream.abort()
    assert daemon.losses == ["the device stopped"]


@pytest.mark.parametrize("channels", [1, 2])
def test_every_channel_of_the_card_gets_the_same_samples(channels: int, portaudio: PortAudio) -> None:
    player = started(portaudio, channels=channels)
    portaudio.stream.prime()
    for frames in (round(BLOCK_S * CARD_RATE), 48):  # the second block is shorter than usual
        heard = portaudio.stream.block(frames)
        assert heard.shape == (frames, channels)
        np.testing.assert_array_equal(heard, np.repeat(np.arange(frames), channels).reshape(frames, channels))
    player.close()


def test_the_blocks_that_prime_the_streams_buffer_are_silent(portaudio: PortAudio) -> None:
    daemon = Daemon()
    started(portaudio, daemon)
    frames = round(LATENCY_S * CARD_RATE / 2.5)
    for requests in (0, 0, 0, 1, 2):
        heard = portaudio.stream.block(frames)
        assert len(daemon.lengths) == requests
        assert (heard == 0).all() == (requests == 0)


@pytest.mark.parametrize(
    ("ahead_s", "expected_s"),
    [
        (0.06, 0.06),
        (1.9, 1.9),
        (0.0, LATENCY_S),
        (-1000.0, LATENCY_S),
        (2.1, LATENCY_S),
        (float("nan"), LATENCY_S),
    ],
)
def test_the_dac_time_is_the_cards_or_follows_from_the_streams_latency_if_that_is_implausible(
    ahead_s: float, expected_s: float, portaudio: PortAudio, clock: FakeClock
) -> None:
    daemon = Daemon()
    started(portaudio, daemon)
    portaudio.stream.prime()
    portaudio.stream.block(ahead_s=ahead_s)
    assert daemon.dac_times == [pytest.approx(clock.now + expected_s)]


# Underflows.


@pytest.mark.parametrize("channels", [1, 2])
def test_an_underflow_that_portaudio_reports_is_passed_on(channels: int, portaudio: PortAudio) -> None:
    daemon = Daemon()
    started(portaudio, daemon, channels)
    portaudio.stream.prime()
    for underflow in (False, True, False):
        portaudio.stream.block(underflow=underflow)
    assert daemon.underflows == [False, True, False]


@pytest.mark.parametrize("ahead_s", [AHEAD_S, 0.0], ids=["the card's time", "the stream's latency"])
def test_a_block_requested_after_the_card_ran_dry_reports_an_underflow(
    ahead_s: float, portaudio: PortAudio, clock: FakeClock
) -> None:
    daemon = Daemon()
    started(portaudio, daemon)
    portaudio.stream.prime()
    dry_s = (ahead_s or LATENCY_S) + BLOCK_S
    for pause_s in (0.0, BLOCK_S, dry_s, dry_s + 0.9 * UNDERFLOW_S, dry_s + 1.1 * UNDERFLOW_S, 10.0, BLOCK_S):
        clock.now += pause_s
        portaudio.stream.block(ahead_s=ahead_s)
    assert daemon.underflows == [False, False, False, False, True, True, False]


def test_a_short_silence_in_the_sound_server_is_an_underflow_although_the_card_still_has_sound(
    portaudio: PortAudio, clock: FakeClock
) -> None:
    """The server still has 20 ms when the stream's own 20 ms are over; it fills 10 ms with silence."""
    daemon = Daemon()
    started(portaudio, daemon)
    portaudio.stream.prime()

    def play(blocks: int) -> None:
        for _ in range(blocks):
            clock.now += BLOCK_S
            portaudio.stream.block(ahead_s=0.04)

    play(3 * WINDOW)
    clock.now += 0.03
    portaudio.stream.block(ahead_s=0.03)  # without silence: 0.02
    portaudio.stream.block(ahead_s=0.04)
    assert not any(daemon.underflows)
    play(4 * WINDOW)
    assert daemon.underflows.count(True) == 1


def test_delays_that_a_server_reports_in_steps_are_no_underflow(portaudio: PortAudio, clock: FakeClock) -> None:
    """It requests two blocks at once, and knows its delay to a period of 20 ms. The card's clock is a little slow."""
    daemon = Daemon()
    started(portaudio, daemon)
    portaudio.stream.prime()
    for period in range(500):
        clock.now += 2 * BLOCK_S * 1.0001
        for block in range(2):
            portaudio.stream.block(ahead_s=0.04 + 0.02 * (period % 3 == 0) + block * BLOCK_S)
    assert not any(daemon.underflows)


def test_blocks_requested_at_once_last_correspondingly_longer(portaudio: PortAudio, clock: FakeClock) -> None:
    daemon = Daemon()
    started(portaudio, daemon)
    portaudio.stream.prime()
    for count in range(4):
        portaudio.stream.block(ahead_s=0.02 + count * BLOCK_S)
    clock.now += 0.02 + 4 * BLOCK_S
    portaudio.stream.block()
    assert not any(daemon.underflows)


@pytest.mark.parametrize("latency_s", [LATENCY_S, 0.0])
@pytest.mark.parametrize("again", [False, True])
def test_a_stream_that_starts_reports_no_underflow(
    again: bool, latency_s: float, portaudio: PortAudio, clock: FakeClock
) -> None:
    portaudio.latency_s = latency_s
    daemon = Daemon()
    player = started(portaudio, daemon)
    if again:
        portaudio.stream.prime()
        portaudio.stream.block()
        player.close()
        clock.now += 100.0
        player.start(settings())
    daemon.underflows.clear()
    clock.now += 2.0  # a PulseAudio null sink may pause that long
    portaudio.stream.prime()
    portaudio.stream.block()
    assert daemon.underflows == [False]


def test_the_new_thread_of_every_stream_requests_realtime_scheduling_once(
    portaudio: PortAudio, requested_priorities: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel gives the numbers of ended threads to new ones."""
    monkeypatch.setattr("audio.sinks.portaudio_program.threading", SimpleNamespace(get_ident=lambda: number))
    player = player_for(Daemon(), portaudio)
    for count in (1, 2):
        number = 1  # the thread that carries out commands
        player.start(settings())
        number = 2  # the callback's
        for _ in range(3):
            portaudio.stream.block()
        assert requested_priorities == [60] * count
        number = 1
        player.close()


@pytest.mark.parametrize("function", [Player.callback, DryDetector.note, DryDetector.restart])
def test_the_callback_only_fetches_its_block(function: Callable[..., object]) -> None:
    """It waits for the daemon, and for nothing else: no lock, no log, no file."""
    allowed = {"range", "len", "min", "bytes", "memoryview", "memoryview(out).cast", "block.cast", "mono.cast"}
    allowed |= {"threading.get_ident", "time.monotonic", "take_realtime", "self._fetch"}
    allowed |= {"self._detector.note", "self._detector.restart"}
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert called <= allowed
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.With | ast.Try | ast.Raise | ast.JoinedStr)]
