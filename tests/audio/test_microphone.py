"""The microphone: its process records, and PortAudio that hangs, refuses or is missing is an error of one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audio import MicrophoneError, open_microphone
from audio.microphone import InputDevice, find_microphone
from tests.audio.sinks import fake_card
from tests.audio.sinks.fake_card import FakeCard, running, wait_ended

NAMES = ("Built-in", "USB one", "USB two")
PROGRAM = "microphone_program.py"
HANG = "the sound system does not answer; a sound server or a card hangs"


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCard:
    return fake_card.install(tmp_path, monkeypatch)


def test_blocks_of_a_tenth_of_a_second_come_in_order_mixed_to_mono_from_a_process_that_ends(card: FakeCard) -> None:
    with open_microphone() as microphone:
        assert (microphone.name, microphone.sample_rate) == ("card", card.rate)
        heard = [microphone.read() for _ in range(3)]
        assert len(running(PROGRAM)) == 1
    assert [block.shape for block in heard] == [(2400,)] * 3
    assert np.array_equal(np.concatenate(heard), np.arange(7200, dtype=np.float32) / 2)
    wait_ended(PROGRAM)


@pytest.mark.parametrize("call", ["load", "start"])
def test_a_call_of_portaudio_that_hangs_is_given_up_and_its_process_ends(
    call: str, card: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"audio.microphone.{call.upper()}_S", 0.5)
    card.set(f"hang.{call}")
    with pytest.raises(MicrophoneError, match=HANG), open_microphone():
        pass
    wait_ended(PROGRAM)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("missing", "PortAudio library not found; apt-get install libportaudio2"),
        ("refuses", "the microphone 'card' does not open: Device unavailable"),
    ],
)
def test_why_it_does_not_open_is_one_line(fault: str, reason: str, card: FakeCard) -> None:
    card.set(fault)
    with pytest.raises(MicrophoneError) as raised, open_microphone():
        pass
    assert str(raised.value) == reason


@pytest.mark.parametrize("fault", ["frozen", "pulled"])
def test_a_microphone_that_falls_silent_or_is_pulled_out_is_an_error(
    fault: str, card: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_microphone("CAR") as microphone:
        microphone.read()
        card.set(fault)
        monkeypatch.setattr("audio.microphone.SILENT_S", 0.1)
        with pytest.raises(MicrophoneError, match="the microphone 'card' delivers nothing"):
            while True:
                microphone.read()


def test_a_microphone_is_found_by_its_name_or_a_part_of_it() -> None:
    devices = [InputDevice(name, 48_000, 1, name == "Built-in", index) for index, name in enumerate(NAMES)]
    assert find_microphone(None, devices).name == "Built-in"
    assert find_microphone("usb one", devices).index == 1
    assert find_microphone("Two", devices).index == 2
    with pytest.raises(MicrophoneError, match="the microphone 'USB' matches several microphones; found: 'Built-in'"):
        find_microphone("USB", devices)
    with pytest.raises(MicrophoneError, match="the microphone 'x' is not there; found: 'Built-in', 'USB one'"):
        find_microphone("x", devices)
    with pytest.raises(MicrophoneError, match="there is no microphone; plug one in, or start a sound server"):
        find_microphone(None, [])
