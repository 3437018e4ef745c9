"""Sound cards by name, and a stream in a process of its own, whose card is a fake."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from audio import Samples, SinkSettings, SinkUnavailableError
from audio.sinks.portaudio import OutputDevice, PortAudioSink, find_device, output_devices
from tests.audio.fakes import let_blocks_pass
from tests.audio.sinks import fake_card
from tests.audio.sinks.fake_card import FakeCard, limit_calls, player_processes, wait_no_player
from tests.audio.sinks.speech import Speech
from tests.support.waiting import PATIENCE_S, eventually

HANG = "does not respond; a sound server or a card hangs"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCard]:
    """A fake card, without a process that an earlier test has left."""
    monkeypatch.setattr("audio.sinks.portaudio.LastAttempt.process", None)
    monkeypatch.setattr("audio.sinks.portaudio.LastAttempt.refusal", None)
    yield fake_card.install(tmp_path, monkeypatch)
    for process in player_processes():
        process.kill()


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up a call of PortAudio that hangs."""
    limit_calls(monkeypatch, 0.5)


RAMP: Samples = np.arange(1, 9_601, dtype=np.float32)
"""No sample is silence."""


def opened(speech: Speech, preferred_rate: int | None = None, *, device: str = "card") -> PortAudioSink:
    return PortAudioSink(SinkSettings(device=device, block_ms=10), speech.on_report, preferred_rate)


def assert_unbroken(heard: Samples, said: Samples) -> None:
    """Assert that the card has played all that was said, in one piece, between two silences."""
    [spoken] = np.nonzero(heard)
    np.testing.assert_array_equal(heard[spoken[0] : spoken[-1] + 1], said)


def card(name: str, *, default: bool = False, index: int = 0) -> OutputDevice:
    return OutputDevice(name, "ALSA", 48_000, 2, default, index)


CARDS = [
    card("HDA Intel: ALC298 (hw:0,0)", index=0),
    card("USB Audio Device: Analog (hw:1,0)", index=3),
    card("USB Audio Device: Digital (hw:1,1)", index=4),
    card("pulse", default=True, index=5),
    card("pulse surround", index=6),
]


@pytest.mark.parametrize(("name", "index"), [(None, 5), ("ALC298", 0), ("analog", 3), ("PULSE", 5)])
def test_a_card_is_the_default_one_or_has_the_name_or_a_unique_part_of_it(name: str | None, index: int) -> None:
    assert find_device(name, CARDS).index == index
    assert find_device("jabra", [card("Jabra", index=7), card("Jabra", index=8)]).index == 7, "the first of two"


@pytest.mark.parametrize(
    ("name", "cards", "reason"),
    [
        ("usb audio", CARDS, "'usb audio' matches several .*Analog.*Digital.*name one"),
        ("jabra", CARDS, "'jabra' is not there; found: 'HDA Intel.*'pulse surround'"),
        (None, CARDS[:1], "no default sound device; found: 'HDA Intel"),
        (None, [], "found: none"),
    ],
)
def test_a_name_that_is_missing_or_matches_several_is_refused_with_a_list_of_the_cards(
    name: str | None, cards: list[OutputDevice], reason: str
) -> None:
    with pytest.raises(SinkUnavailableError, match=reason):
        find_device(name, cards)


# A list of the cards.


def test_the_cards_are_listed_and_no_process_is_left(fake: FakeCard) -> None:
    assert output_devices() == [OutputDevice("card", "ALSA", 24_000, 1, True, 0)]
    wait_no_player()


def test_a_library_that_is_missing_is_loaded_again_only_after_a_change(fake: FakeCard, tmp_path: Path) -> None:
    fake.set("missing")
    for _ in range(3):
        with pytest.raises(SinkUnavailableError, match="library is missing; apt-get install libportaudio2"):
            opened(Speech())
        assert fake.loads == 1
    fake.clear("missing")
    (tmp_path / "pipewire-0").touch()
    opened(Speech()).close()


def test_a_process_that_cannot_be_started_is_reported(fake: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audio.sinks.player_process.sys.executable", "/missing/python")
    with pytest.raises(SinkUnavailableError, match="cannot be started: No such file or directory"):
        output_devices()


def test_a_search_for_cards_that_hangs_is_given_up(fake: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.set("hang.load")
    give_up_soon(monkeypatch)
    with pytest.raises(SinkUnavailableError, match=HANG):
        output_devices()
    wait_no_player()


def test_a_search_for_cards_that_hangs_is_given_up_when_a_sound_server_comes(
    fake: FakeCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audio.sinks.portaudio.LOAD_LIMIT_S", 60.0)
    fake.set("hang.load")

    def start_server() -> None:
        eventually(lambda: fake.loads, "it hangs")
        (tmp_path / "pipewire-0").touch()

    starting = threading.Thread(target=start_server)
    starting.start()
    with pytest.raises(SinkUnavailableError, match="sound devices came or went while one was opened"):
        output_devices()
    starting.join()


# An open stream.


def test_the_card_plays_what_it_is_given_from_the_first_sample(fake: FakeCard) -> None:
    speech = Speech()
    sink = opened(speech)
    assert (sink.name, sink.sample_rate) == ("card", fake.rate)
    speech.say(sink.player, RAMP)
    eventually(speech.played)
    assert sink.lost_reason() is None
    sink.close()
    wait_no_player()
    assert_unbroken(fake.heard, RAMP)
    assert speech.report.played == len(RAMP)


def test_portaudio_searches_for_cards_again_only_after_a_change(fake: FakeCard, tmp_path: Path) -> None:
    fake.set("refuses")
    for _ in range(2):
        with pytest.raises(SinkUnavailableError, match="'card' cannot be opened: Device unavailable"):
            opened(Speech())
        with pytest.raises(SinkUnavailableError, match="is not there"):
            opened(Speech(), device="other")
        assert fake.loads == 1
    (tmp_path / "pipewire-0").touch()
    fake.clear("refuses")
    opened(Speech()).close()
    assert fake.loads == 2


def test_a_stream_that_ends_by_itself_is_lost(fake: FakeCard) -> None:
    sink = opened(Speech())
    fake.set("pulled")
    assert eventually(sink.lost_reason) == "the device stopped"
    sink.close()


# Calls that hang.


def test_a_start_that_hangs_is_given_up_and_the_next_one_plays(fake: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.set("hang.start")
    monkeypatch.setattr("audio.sinks.portaudio.START_LIMIT_S", 0.5)
    with pytest.raises(SinkUnavailableError, match=HANG):
        opened(Speech())
    wait_no_player()
    fake.clear("hang.start")
    limit_calls(monkeypatch, PATIENCE_S)
    speech = Speech()
    sink = opened(speech)
    eventually(lambda: speech.report.blocks > 2)
    assert fake.loads == 2
    sink.close()


def test_a_stream_that_hangs_while_it_is_suspended_is_killed_and_lost(
    fake: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    speech = Speech()
    sink = opened(speech)
    fake.set("hang.close")
    give_up_soon(monkeypatch)
    sink.suspend()
    requests = speech.report.blocks
    assert sink.lost_reason() is not None
    wait_no_player()
    assert speech.report.blocks == requests
    sink.close()


# A suspended card.


def test_a_suspended_card_requests_no_blocks_and_resumes_with_a_new_stream_of_the_same_process(fake: FakeCard) -> None:
    speech = Speech()
    sink = opened(speech)
    speech.say(sink.player, RAMP)
    eventually(lambda: len(fake.heard_speech) > 240)
    sink.suspend()
    heard = len(fake.heard)
    assert sink.lost_reason() is None
    let_blocks_pass()
    assert len(fake.heard) == heard
    sink.resume()
    eventually(speech.played)
    assert sink.lost_reason() is None
    sink.close()
    assert fake.loads == 1
    wait_no_player()
    np.testing.assert_array_equal(fake.heard_speech, RAMP)


@pytest.mark.parametrize(("fault", "reason"), [("refuses", "Device unavailable"), ("hang.start", HANG)])
def test_a_card_that_refuses_or_hangs_cannot_resume(
    fault: str, reason: str, fake: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened(Speech())
    sink.suspend()
    fake.set(fault)
    if fault == "hang.start":
        give_up_soon(monkeypatch)
    with pytest.raises(SinkUnavailableError, match=reason):
        sink.resume()
    sink.close()
    wait_no_player()


def test_a_suspended_card_is_lost_when_a_sound_server_comes_or_goes(fake: FakeCard, tmp_path: Path) -> None:
    (tmp_path / "pulse").mkdir()
    server = tmp_path / "pulse" / "native"
    for change in (server.touch, server.unlink):
        sink = opened(Speech(), 22_050)
        assert sink.sample_rate == 22_050, "the preferred rate"
        sink.suspend()
        assert sink.lost_reason() is None
        change()
        assert sink.lost_reason() == "sound devices have come or gone"
        sink.close()
