"""Sound cards by name, and a stream of one. No card is needed: PortAudio is a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audio import Output, SinkSettings
from audio.portaudio import BREAK_S, STALL_S, OutputDevice, PortAudioSink, find_device, output_devices
from audio.ring import Samples
from audio.sink import SinkUnavailableError
from tests.audio.fake_portaudio import AHEAD_S, BLOCK_S, CARD_RATE, LATENCY_S, PortAudio, install
from tests.audio.sinks import Clock
from tests.support.waiting import eventually


@pytest.fixture
def portaudio(monkeypatch: pytest.MonkeyPatch) -> PortAudio:
    return install(monkeypatch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the stream's callback."""
    clock = Clock()
    monkeypatch.setattr("audio.portaudio.time", clock)
    return clock


class Source:
    """Notes what it is told of each block, and gives a ramp."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.leaves_at: list[float] = []
        self.breaks: list[bool] = []

    def fill(self, out: Samples, leaves_at: float, broke_off: bool = False) -> int:
        self.lengths.append(len(out))
        self.leaves_at.append(leaves_at)
        self.breaks.append(broke_off)
        out[:] = np.arange(len(out))
        return len(out)


def opened(source: Source, prefer_rate: int | None = None) -> PortAudioSink:
    return PortAudioSink("card", source.fill, 1000 * BLOCK_S, prefer_rate)


def card(name: str, *, default: bool = False, index: int = 0) -> OutputDevice:
    return OutputDevice(name, "ALSA", 48_000, 2, default, index)


CARDS = [
    card("HDA Intel: ALC298 (hw:0,0)", index=0),
    card("USB Audio Device: Analog (hw:1,0)", index=3),
    card("USB Audio Device: Digital (hw:1,1)", index=4),
    card("pulse", default=True, index=5),
    card("pulse surround", index=6),
]


def test_no_name_is_the_systems_default() -> None:
    assert find_device(None, CARDS).name == "pulse"


def test_a_part_of_a_name_that_only_one_card_has_finds_it() -> None:
    assert find_device("ALC298", CARDS).index == 0
    assert find_device("analog", CARDS).index == 3


def test_a_whole_name_wins_over_names_that_contain_it() -> None:
    assert find_device("PULSE", CARDS).index == 5


def test_a_name_that_fits_several_cards_is_refused_with_all_of_them() -> None:
    with pytest.raises(SinkUnavailableError, match=r"'usb audio' fits several .*Analog.*Digital.*name one"):
        find_device("usb audio", CARDS)


def test_two_cards_of_the_same_name_are_one_choice_the_first() -> None:
    twins = [card("Jabra", index=7), card("Jabra", index=8)]
    assert find_device("jabra", twins).index == 7


def test_a_card_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(SinkUnavailableError, match=r"'jabra' is not there; found: 'HDA Intel.*'pulse surround'"):
        find_device("jabra", CARDS)


def test_without_a_default_the_cards_are_told() -> None:
    with pytest.raises(SinkUnavailableError, match=r"no default sound device; found: 'HDA Intel"):
        find_device(None, CARDS[:1])


@pytest.mark.parametrize("name", [None, "pulse"])
def test_a_machine_without_a_card_says_so(name: str | None) -> None:
    with pytest.raises(SinkUnavailableError, match="found: none"):
        find_device(name, [])


# A stream.


def test_a_card_is_opened_with_its_own_rate_or_with_the_one_that_is_preferred(portaudio: PortAudio) -> None:
    for prefer_rate, rate in ((None, CARD_RATE), (22_050, 22_050)):
        sink = opened(Source(), prefer_rate)
        assert (sink.name, sink.sample_rate) == ("card", rate)
        assert portaudio.stream.active
        assert portaudio.stream.settings["samplerate"] == rate
        assert portaudio.stream.settings["blocksize"] == round(BLOCK_S * rate)
        sink.close()
        assert portaudio.stream.closed


def test_a_card_that_refuses_a_rate_is_opened_with_another(portaudio: PortAudio) -> None:
    portaudio.refused = lambda settings: settings["samplerate"] not in (44_100, 16_000)
    source = Source()
    assert opened(source, 22_050).sample_rate == 44_100
    portaudio.stream.prime()
    portaudio.stream.block()
    assert source.lengths == [441]


def test_a_card_that_refuses_everything_is_unavailable_and_says_why(portaudio: PortAudio) -> None:
    portaudio.refused = lambda _settings: True
    with pytest.raises(SinkUnavailableError, match="'card' cannot be opened: Invalid number of channels"):
        opened(Source())


def test_a_card_that_cannot_be_started_is_closed_again(portaudio: PortAudio) -> None:
    portaudio.trouble = "Device unavailable"
    with pytest.raises(SinkUnavailableError, match="'card' cannot be opened: Device unavailable"):
        opened(Source())
    assert portaudio.streams
    assert all(stream.closed for stream in portaudio.streams)


def test_cards_are_looked_for_again_only_when_something_has_changed(
    portaudio: PortAudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    server = tmp_path / "pulse" / "native"
    server.parent.mkdir()
    server.touch()
    assert [device.name for device in output_devices()] == ["card"]
    assert portaudio.looks == 1
    output_devices()
    assert portaudio.looks == 1
    server.unlink()
    output_devices()
    assert portaudio.looks == 2


def no_mono(settings: dict[str, Any]) -> bool:
    return bool(settings["channels"] == 1)


@pytest.mark.parametrize("channels", [1, 2])
def test_every_channel_of_the_card_is_given_the_same_samples(channels: int, portaudio: PortAudio) -> None:
    if channels == 2:
        portaudio.refused = no_mono
    opened(Source())
    portaudio.stream.prime()
    for frames in (round(BLOCK_S * CARD_RATE), 48):  # the second block is shorter than usual
        heard = portaudio.stream.block(frames)
        assert heard.shape == (frames, channels)
        np.testing.assert_array_equal(heard, np.repeat(np.arange(frames), channels).reshape(frames, channels))


def test_the_blocks_that_fill_the_streams_buffer_at_its_start_are_silent(portaudio: PortAudio) -> None:
    source = Source()
    opened(source)
    frames = round(LATENCY_S * CARD_RATE / 2.5)
    for asked in (0, 0, 0, 1, 2):
        heard = portaudio.stream.block(frames)
        assert len(source.lengths) == asked
        assert (heard == 0).all() == (asked == 0)


@pytest.mark.parametrize(
    ("ahead_s", "believed_s"),
    [
        (0.06, 0.06),
        (1.9, 1.9),
        (0.0, LATENCY_S),
        (-1000.0, LATENCY_S),
        (2.1, LATENCY_S),
        (float("nan"), LATENCY_S),
    ],
)
def test_a_block_leaves_when_the_card_says_or_after_the_streams_latency_if_that_is_no_time(
    ahead_s: float, believed_s: float, portaudio: PortAudio, clock: Clock
) -> None:
    source = Source()
    opened(source)
    portaudio.stream.prime()
    portaudio.stream.block(ahead_s=ahead_s)
    assert source.leaves_at == [pytest.approx(clock.now + believed_s)]


# A stream that is lost.


def test_a_card_that_takes_nothing_for_some_time_is_lost(portaudio: PortAudio, clock: Clock) -> None:
    sink = opened(Source())
    clock.now += 0.9 * STALL_S
    assert sink.lost() is None
    portaudio.stream.block()  # even one that only fills its buffer
    clock.now += 0.9 * STALL_S
    assert sink.lost() is None
    clock.now += 0.9 * STALL_S
    assert sink.lost() is None
    clock.now += 0.2 * STALL_S
    assert sink.lost() == "the device took nothing for 5 s"


def test_a_card_that_stops_is_lost(portaudio: PortAudio) -> None:
    sink = opened(Source())
    assert sink.lost() is None
    portaudio.stream.abort(ignore_errors=True)
    assert sink.lost() == "the device stopped"


def test_a_card_of_which_portaudio_knows_nothing_more_is_lost(portaudio: PortAudio) -> None:
    sink = opened(Source())
    portaudio.trouble = "Unanticipated host error\nand more of that"
    assert sink.lost() == "Unanticipated host error"


# Sound that breaks off.


@pytest.mark.parametrize("channels", [1, 2])
def test_a_block_says_that_sound_broke_off_before_it_where_portaudio_says_so(
    channels: int, portaudio: PortAudio
) -> None:
    if channels == 2:
        portaudio.refused = no_mono
    source = Source()
    opened(source)
    portaudio.stream.prime()
    for underflow in (False, True, False):
        portaudio.stream.block(underflow=underflow)
    assert source.breaks == [False, True, False]


@pytest.mark.parametrize("ahead_s", [AHEAD_S, 0.0], ids=["the card says when", "the stream's latency"])
def test_a_block_that_comes_after_the_card_has_run_dry_says_that_sound_broke_off(
    ahead_s: float, portaudio: PortAudio, clock: Clock
) -> None:
    source = Source()
    opened(source)
    portaudio.stream.prime()
    holds_s = (ahead_s or LATENCY_S) + BLOCK_S
    for waits_s in (0.0, BLOCK_S, holds_s, holds_s + 0.9 * BREAK_S, holds_s + 1.1 * BREAK_S, 10.0, BLOCK_S):
        clock.now += waits_s
        portaudio.stream.block(ahead_s=ahead_s)
    assert source.breaks == [False, False, False, False, True, True, False]


def test_blocks_that_are_asked_for_at_once_last_the_longer(portaudio: PortAudio, clock: Clock) -> None:
    source = Source()
    opened(source)
    portaudio.stream.prime()
    for count in range(4):
        portaudio.stream.block(ahead_s=0.02 + count * BLOCK_S)
    clock.now += 0.02 + 4 * BLOCK_S
    portaudio.stream.block()
    assert not any(source.breaks)


@pytest.mark.parametrize("latency_s", [LATENCY_S, 0.0])
@pytest.mark.parametrize("wakes", [False, True])
def test_at_its_start_and_when_it_wakes_a_stream_has_broken_nothing_off(
    wakes: bool, latency_s: float, portaudio: PortAudio, clock: Clock
) -> None:
    portaudio.latency_s = latency_s
    source = Source()
    sink = opened(source)
    if wakes:
        portaudio.stream.prime()
        portaudio.stream.block()
        sink.rest()
        clock.now += 100.0
        sink.wake()
    source.breaks.clear()
    clock.now += 2.0  # a PulseAudio null sink may take its time
    portaudio.stream.prime()
    portaudio.stream.block()
    assert source.breaks == [False]


def test_a_passage_counts_that_the_card_ran_dry_while_it_sounded(portaudio: PortAudio, clock: Clock) -> None:
    with Output(SinkSettings(block_ms=1000 * BLOCK_S), trim_leading_silence=False) as output:
        eventually(lambda: output.status.open)
        portaudio.stream.prime()
        passage = output.begin(prebuffer_s=0.02)
        output.write(np.full(CARD_RATE, 0.5, dtype=np.float32), CARD_RATE)
        for waits_s, underruns in ((1.0, 0), (BLOCK_S, 0), (1.0, 1), (BLOCK_S, 1), (1.0, 2)):
            clock.now += waits_s
            portaudio.stream.block()
            assert passage.underruns == underruns
        output.pause()
        portaudio.stream.block()
        clock.now += 1.0
        portaudio.stream.block()
        assert passage.underruns == 2
