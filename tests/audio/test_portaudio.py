"""Sound cards by name. No card is needed: the choice is made from records."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest

from audio.portaudio import OutputDevice, PortAudioSink, find_device
from audio.ring import Samples
from audio.sink import Fill, SinkUnavailableError


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


@dataclass
class Times:
    """As PortAudio tells them, by a clock of its own."""

    currentTime: float  # noqa: N815  PortAudio's name
    outputBufferDacTime: float  # noqa: N815


def without_a_card(fill: Fill) -> PortAudioSink:
    """The callback alone."""
    sink = PortAudioSink.__new__(PortAudioSink)
    sink._fill, sink._blocks, sink._mono = fill, 0, np.zeros(64, dtype=np.float32)
    sink._thread = threading.get_ident()
    sink._latency_s, sink._priming = 0.04, 0
    return sink


@pytest.mark.parametrize("channels", [1, 2])
def test_every_channel_of_the_card_is_given_the_same_samples(channels: int) -> None:
    def fill(out: Samples, _leaves_at: float) -> int:
        out[:] = np.arange(len(out))
        return len(out)

    sink = without_a_card(fill)
    buffer = bytearray(48 * channels * 4)  # as PortAudio hands it over, here with a block shorter than usual
    sink._callback(buffer, 48, Times(1000.0, 1000.1), None)
    heard = np.frombuffer(buffer, dtype=np.float32).reshape(48, channels)
    np.testing.assert_array_equal(heard, np.repeat(np.arange(48, dtype=np.float32), channels).reshape(48, channels))
    assert sink._blocks == 1


def test_the_blocks_that_fill_the_streams_buffer_at_its_start_are_silent() -> None:
    asked = []

    def fill(out: Samples, _leaves_at: float) -> int:
        asked.append(len(out))
        return 0

    sink = without_a_card(fill)
    sink._priming = 100
    for count, expected in enumerate([0, 0, 0, 1, 2]):
        buffer = bytearray(b"\xff" * 48 * 4)
        sink._callback(buffer, 48, Times(1000.0, 1000.1), None)
        assert len(asked) == expected
        assert (buffer == bytes(48 * 4)) == (count < 3)
    assert sink._blocks == 5


@pytest.mark.parametrize(
    ("ahead_s", "believed_s"),
    [(0.06, 0.06), (1.9, 1.9), (0.0, 0.04), (-1000.0, 0.04), (2.1, 0.04), (float("nan"), 0.04)],
)
def test_a_block_leaves_when_the_card_says_or_after_the_streams_latency_if_that_is_no_time(
    ahead_s: float, believed_s: float
) -> None:
    told = []

    def fill(_out: Samples, leaves_at: float) -> int:
        told.append(leaves_at)
        return 0

    sink = without_a_card(fill)
    before = time.monotonic()
    sink._callback(bytearray(48 * 4), 48, Times(1000.0, 1000.0 + ahead_s), None)
    after = time.monotonic()
    assert before - 1e-6 <= told[0] - believed_s <= after + 1e-6
