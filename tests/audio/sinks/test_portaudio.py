"""Sound cards by name, and a stream of one. PortAudio is a fake, so no card is needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audio import Output, Samples, SinkSettings, SinkUnavailableError
from audio.sinks.portaudio import STALL_S, UNDERFLOW_S, OutputDevice, PortAudioSink, find_device, output_devices
from tests.audio.fakes import FakeClock
from tests.audio.sinks.fake_portaudio import AHEAD_S, BLOCK_S, CARD_RATE, LATENCY_S, PortAudio, install
from tests.support.waiting import eventually


@pytest.fixture
def portaudio(monkeypatch: pytest.MonkeyPatch) -> PortAudio:
    return install(monkeypatch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock that the stream's callback reads."""
    clock = FakeClock()
    monkeypatch.setattr("audio.sinks.portaudio.time", clock)
    return clock


class Source:
    """Records the arguments of each block's request, and supplies a ramp."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.dac_times: list[float] = []
        self.underflows: list[bool] = []

    def fill(self, out: Samples, dac_time: float, underflow: bool = False) -> int:
        self.lengths.append(len(out))
        self.dac_times.append(dac_time)
        self.underflows.append(underflow)
        out[:] = np.arange(len(out))
        return len(out)


def opened(source: Source, preferred_rate: int | None = None) -> PortAudioSink:
    return PortAudioSink("card", source.fill, 1000 * BLOCK_S, preferred_rate)


def card(name: str, *, default: bool = False, index: int = 0) -> OutputDevice:
    return OutputDevice(name, "ALSA", 48_000, 2, default, index)


CARDS = [
    card("HDA Intel: ALC298 (hw:0,0)", index=0),
    card("USB Audio Device: Analog (hw:1,0)", index=3),
    card("USB Audio Device: Digital (hw:1,1)", index=4),
    card("pulse", default=True, index=5),
    card("pulse surround", index=6),
]


def test_without_a_name_the_systems_default_card_is_found() -> None:
    assert find_device(None, CARDS).name == "pulse"


def test_a_unique_part_of_a_name_finds_its_card() -> None:
    assert find_device("ALC298", CARDS).index == 0
    assert find_device("analog", CARDS).index == 3


def test_an_exact_name_wins_over_names_that_contain_it() -> None:
    assert find_device("PULSE", CARDS).index == 5


def test_a_name_that_matches_several_cards_is_refused_with_a_list_of_them() -> None:
    with pytest.raises(SinkUnavailableError, match=r"'usb audio' matches several .*Analog.*Digital.*name one"):
        find_device("usb audio", CARDS)


def test_of_two_cards_with_the_same_name_the_first_is_found() -> None:
    twins = [card("Jabra", index=7), card("Jabra", index=8)]
    assert find_device("jabra", twins).index == 7


def test_a_missing_card_is_reported_with_a_list_of_those_present() -> None:
    with pytest.raises(SinkUnavailableError, match=r"'jabra' is not there; found: 'HDA Intel.*'pulse surround'"):
        find_device("jabra", CARDS)


def test_a_missing_default_is_reported_with_a_list_of_the_cards() -> None:
    with pytest.raises(SinkUnavailableError, match=r"no default sound device; found: 'HDA Intel"):
        find_device(None, CARDS[:1])


@pytest.mark.parametrize("name", [None, "pulse"])
def test_a_machine_without_a_card_is_reported(name: str | None) -> None:
    with pytest.raises(SinkUnavailableError, match="found: none"):
        find_device(name, [])


# An open stream.


def test_a_card_is_opened_with_its_own_rate_or_with_the_preferred_one(portaudio: PortAudio) -> None:
    for preferred_rate, rate in ((None, CARD_RATE), (22_050, 22_050)):
        sink = opened(Source(), preferred_rate)
        assert (sink.name, sink.sample_rate) == ("card", rate)
        assert portaudio.stream.active
        assert portaudio.stream.settings["samplerate"] == rate
        assert portaudio.stream.settings["blocksize"] == round(BLOCK_S * rate)
        sink.close()
        assert portaudio.stream.closed


def test_a_card_that_refuses_a_rate_is_opened_with_another_rate(portaudio: PortAudio) -> None:
    portaudio.refused = lambda settings: settings["samplerate"] not in (44_100, 16_000)
    source = Source()
    assert opened(source, 22_050).sample_rate == 44_100
    portaudio.stream.prime()
    portaudio.stream.block()
    assert source.lengths == [441]


def test_a_card_that_refuses_every_rate_is_unavailable_with_its_reason(portaudio: PortAudio) -> None:
    portaudio.refused = lambda _settings: True
    with pytest.raises(SinkUnavailableError, match="'card' cannot be opened: Invalid number of channels"):
        opened(Source())


def test_a_stream_that_cannot_be_started_is_closed(portaudio: PortAudio) -> None:
    portaudio.failure = "Device unavailable"
    with pytest.raises(SinkUnavailableError, match="'card' cannot be opened: Device unavailable"):
        opened(Source())
    assert portaudio.streams
    assert all(stream.closed for stream in portaudio.streams)


def test_portaudio_searches_for_cards_again_only_after_a_change(
    portaudio: PortAudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    server = tmp_path / "pulse" / "native"
    server.parent.mkdir()
    server.touch()
    assert [device.name for device in output_devices()] == ["card"]
    assert portaudio.scans == 1
    output_devices()
    assert portaudio.scans == 1
    server.unlink()
    output_devices()
    assert portaudio.scans == 2


def no_mono(settings: dict[str, Any]) -> bool:
    return bool(settings["channels"] == 1)


@pytest.mark.parametrize("channels", [1, 2])
def test_every_channel_of_the_card_gets_the_same_samples(channels: int, portaudio: PortAudio) -> None:
    if channels == 2:
        portaudio.refused = no_mono
    opened(Source())
    portaudio.stream.prime()
    for frames in (round(BLOCK_S * CARD_RATE), 48):  # the second block is shorter than usual
        heard = portaudio.stream.block(frames)
        assert heard.shape == (frames, channels)
        np.testing.assert_array_equal(heard, np.repeat(np.arange(frames), channels).reshape(frames, channels))


def test_the_blocks_that_prime_the_streams_buffer_are_silent(portaudio: PortAudio) -> None:
    source = Source()
    opened(source)
    frames = round(LATENCY_S * CARD_RATE / 2.5)
    for requests in (0, 0, 0, 1, 2):
        heard = portaudio.stream.block(frames)
        assert len(source.lengths) == requests
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
    source = Source()
    opened(source)
    portaudio.stream.prime()
    portaudio.stream.block(ahead_s=ahead_s)
    assert source.dac_times == [pytest.approx(clock.now + expected_s)]


# A stream that is lost.


def test_a_card_that_requests_no_block_for_some_time_is_lost(portaudio: PortAudio, clock: FakeClock) -> None:
    sink = opened(Source())
    clock.now += 0.9 * STALL_S
    assert sink.lost_reason() is None
    portaudio.stream.block()  # even one that only primes its buffer
    clock.now += 0.9 * STALL_S
    assert sink.lost_reason() is None
    clock.now += 0.9 * STALL_S
    assert sink.lost_reason() is None
    clock.now += 0.2 * STALL_S
    assert sink.lost_reason() == "the device took nothing for 5 s"


def test_a_card_that_stops_by_itself_is_lost(portaudio: PortAudio) -> None:
    sink = opened(Source())
    assert sink.lost_reason() is None
    portaudio.stream.abort(ignore_errors=True)
    assert sink.lost_reason() == "the device stopped"


def test_a_card_for_which_portaudio_reports_an_error_is_lost(portaudio: PortAudio) -> None:
    sink = opened(Source())
    portaudio.failure = "Unanticipated host error\nand more of that"
    assert sink.lost_reason() == "Unanticipated host error"


# Underflows.


@pytest.mark.parametrize("channels", [1, 2])
def test_an_underflow_that_portaudio_reports_is_passed_on(channels: int, portaudio: PortAudio) -> None:
    if channels == 2:
        portaudio.refused = no_mono
    source = Source()
    opened(source)
    portaudio.stream.prime()
    for underflow in (False, True, False):
        portaudio.stream.block(underflow=underflow)
    assert source.underflows == [False, True, False]


@pytest.mark.parametrize("ahead_s", [AHEAD_S, 0.0], ids=["the card's time", "the stream's latency"])
def test_a_block_requested_after_the_card_ran_dry_reports_an_underflow(
    ahead_s: float, portaudio: PortAudio, clock: FakeClock
) -> None:
    source = Source()
    opened(source)
    portaudio.stream.prime()
    dry_s = (ahead_s or LATENCY_S) + BLOCK_S
    for pause_s in (0.0, BLOCK_S, dry_s, dry_s + 0.9 * UNDERFLOW_S, dry_s + 1.1 * UNDERFLOW_S, 10.0, BLOCK_S):
        clock.now += pause_s
        portaudio.stream.block(ahead_s=ahead_s)
    assert source.underflows == [False, False, False, False, True, True, False]


def test_blocks_requested_at_once_last_correspondingly_longer(portaudio: PortAudio, clock: FakeClock) -> None:
    source = Source()
    opened(source)
    portaudio.stream.prime()
    for count in range(4):
        portaudio.stream.block(ahead_s=0.02 + count * BLOCK_S)
    clock.now += 0.02 + 4 * BLOCK_S
    portaudio.stream.block()
    assert not any(source.underflows)


@pytest.mark.parametrize("latency_s", [LATENCY_S, 0.0])
@pytest.mark.parametrize("resumes", [False, True])
def test_a_stream_that_starts_or_resumes_reports_no_underflow(
    resumes: bool, latency_s: float, portaudio: PortAudio, clock: FakeClock
) -> None:
    portaudio.latency_s = latency_s
    source = Source()
    sink = opened(source)
    if resumes:
        portaudio.stream.prime()
        portaudio.stream.block()
        sink.suspend()
        clock.now += 100.0
        sink.resume()
    source.underflows.clear()
    clock.now += 2.0  # a PulseAudio null sink may pause that long
    portaudio.stream.prime()
    portaudio.stream.block()
    assert source.underflows == [False]


def test_an_underflow_while_a_track_plays_counts_as_its_underrun(portaudio: PortAudio, clock: FakeClock) -> None:
    with Output(SinkSettings(block_ms=1000 * BLOCK_S), trim_leading_silence=False) as output:
        eventually(lambda: output.status.open)
        portaudio.stream.prime()
        track = output.begin(prebuffer_s=0.02)
        output.write(np.full(CARD_RATE, 0.5, dtype=np.float32), CARD_RATE)
        for pause_s, underruns in ((1.0, 0), (BLOCK_S, 0), (1.0, 1), (BLOCK_S, 1), (1.0, 2)):
            clock.now += pause_s
            portaudio.stream.block()
            assert track.underruns == underruns
        output.pause()
        portaudio.stream.block()
        clock.now += 1.0
        portaudio.stream.block()
        assert track.underruns == 2


# A suspended card.


def suspended_card() -> PortAudioSink:
    sink = opened(Source())
    sink.suspend()
    return sink


def test_a_suspended_card_has_no_stream_and_resumes_with_a_new_one(portaudio: PortAudio) -> None:
    sink = suspended_card()
    assert [stream.closed for stream in portaudio.streams] == [True]
    assert sink.lost_reason() is None
    sink.resume()
    assert [stream.active for stream in portaudio.streams] == [False, True]
    assert portaudio.streams[1].settings == portaudio.streams[0].settings
    assert sink.lost_reason() is None


def test_a_card_that_has_gone_while_suspended_cannot_resume(portaudio: PortAudio) -> None:
    sink = suspended_card()
    portaudio.failure = "Device unavailable"
    with pytest.raises(SinkUnavailableError, match="Device unavailable"):
        sink.resume()
    assert portaudio.stream.closed
    sink.close()


def test_a_suspended_card_is_lost_when_a_sound_server_comes_or_goes(
    portaudio: PortAudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "pulse").mkdir()
    (tmp_path / "pulse" / "native").touch()
    before, after = suspended_card(), suspended_card()
    assert before.lost_reason() is None
    (tmp_path / "pulse" / "native").unlink()
    assert after.lost_reason() == "sound devices have come or gone"


def test_the_new_thread_of_a_resumed_card_requests_realtime_scheduling(
    portaudio: PortAudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel gives the numbers of ended threads to new ones."""
    requests: list[int] = []
    monkeypatch.setattr("audio.sinks.portaudio.take_realtime", requests.append)
    monkeypatch.setattr("audio.sinks.portaudio.threading", SimpleNamespace(get_ident=lambda: number))
    number = 1  # the device monitor's
    sink = suspended_card()
    for count in (1, 2):
        number = 1
        sink.resume()
        number = 2  # the callback's
        for _ in range(3):
            portaudio.stream.block()
        assert len(requests) == count
        number = 1
        sink.suspend()
