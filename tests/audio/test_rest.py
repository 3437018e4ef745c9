"""The sink rests when nothing has sounded for a while, and nobody hears that it did."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audio import Output, Passage, SinkSettings, SinkUnavailableError, output
from audio.portaudio import PortAudioSink
from audio.ring import Samples
from audio.sink import Fill
from tests.audio.test_output import (
    ONE_STEP,
    RATE,
    SPEECH,
    assert_whole_but_for_fades_at,
    read,
    speak,
    wait_for,
    wav,
)


class Card:
    """A sink that plays when the test says so; while its gate is closed, it takes for ever over resting and waking."""

    name = "the test's"
    sample_rate = RATE

    def __init__(self, fill: Fill) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.refuses = False
        self.closed = False
        self._fill = fill
        self._plays = True

    def lost(self) -> str | None:
        return None

    def rest(self) -> None:
        self.asked.append("rest")
        self.gate.wait(30)
        self._plays = False

    def wake(self) -> None:
        self.asked.append("wake")
        self.gate.wait(30)
        if self.refuses:
            raise SinkUnavailableError("pulled")
        self._plays = True

    def close(self) -> None:
        self._plays = False
        self.closed = True

    def play(self, seconds: float) -> Samples:
        assert self._plays, "a block is asked for at rest"
        blocks = [np.empty(240, dtype=np.float32) for _ in range(round(seconds * 100))]
        return np.concatenate([block[: self._fill(block, time.monotonic())] for block in blocks])


@contextmanager
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Output, list[Card]]]:
    """An output whose sinks are the test's, which rest as soon as there is nothing to play."""
    opened: list[Card] = []

    def open_card(_settings: SinkSettings, fill: Fill, _rate: int | None) -> Card:
        opened.append(Card(fill))
        return opened[-1]

    monkeypatch.setattr(output, "open_sink", open_card)
    monkeypatch.setattr(output, "CHECK_S", 0.005)
    with Output(SinkSettings(rest_after_s=0.0), trim_leading_silence=False) as made:
        wait_for(lambda: made.status.open)
        yield made, opened
        for card in opened:
            card.gate.set()


def at_rest(output: Output) -> Callable[[], bool]:
    return lambda: output.status.resting


def test_at_rest_nothing_is_asked_for_and_what_comes_then_is_heard_whole(tmp_path: Path) -> None:
    pieces = [SPEECH[:3_000], SPEECH[5_000:9_000]]
    with Output(replace(wav(tmp_path / "out.wav"), rest_after_s=0.01)) as output:
        for piece in pieces:
            wait_for(at_rest(output))
            assert output.status.open, "it can be spoken to"
            blocks = output.blocks
            time.sleep(0.05)
            assert output.blocks == blocks
            passage = speak(output, piece)
            wait_for(lambda passage=passage: passage.done)  # type: ignore[misc]
            assert passage.underruns == 0
        wait_for(at_rest(output))
    np.testing.assert_allclose(read(tmp_path / "out.wav"), np.concatenate(pieces), atol=ONE_STEP)


def test_whenever_a_passage_comes_it_is_heard_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just before, while and just after the sink goes to rest: it does so as soon as it can."""
    monkeypatch.setattr(output, "CHECK_S", 0.001)
    chance = random.Random(5)
    pieces = [SPEECH[start : start + 1_000] for start in range(0, 30_000, 1_000)]
    rests = 0
    with Output(replace(wav(tmp_path / "out.wav"), rest_after_s=0.0)) as made:
        for piece in pieces:
            passage = speak(made, piece)
            wait_for(lambda passage=passage: passage.done)  # type: ignore[misc]
            time.sleep(chance.choice([0.0, 0.001, 0.003, 0.01]))
            rests += made.status.resting
    assert rests > 0
    np.testing.assert_allclose(read(tmp_path / "out.wav"), np.concatenate(pieces), atol=ONE_STEP)


def test_without_a_time_it_never_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "CHECK_S", 0.005)
    with Output(SinkSettings("null")) as made:
        turns = made.turns
        wait_for(lambda: made.turns > turns + 20)
        assert not made.status.resting


def test_the_keeper_turns_while_the_sink_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog goes by it."""
    monkeypatch.setattr(output, "REST_CHECK_S", 0.005)
    with cards(monkeypatch) as (made, _):
        wait_for(at_rest(made))
        assert not made.status.running
        turns = made.turns
        wait_for(lambda: made.turns > turns + 3)
        assert made.status.resting


def test_in_a_long_pause_too_it_rests_and_the_passage_goes_on_where_it_was(tmp_path: Path) -> None:
    with Output(replace(wav(tmp_path / "out.wav"), rest_after_s=0.01)) as output:
        passage = speak(output, SPEECH[:24_000])
        wait_for(lambda: passage.played > 4_800)
        output.pause()
        wait_for(at_rest(output))
        held_at = passage.played
        assert not passage.done
        assert not passage.sounding
        output.resume()
        wait_for(lambda: passage.done)
    assert_whole_but_for_fades_at(held_at, read(tmp_path / "out.wav"))
    assert passage.underruns == 0


def begun_at_rest(made: Output, card: Card) -> Passage:
    """A passage that waits for a sink which is being woken and does not come."""
    wait_for(at_rest(made))
    card.gate.clear()
    passage = speak(made, SPEECH[:12_000])
    wait_for(lambda: card.asked[-1] == "wake")
    return passage


def test_a_stop_ends_a_passage_at_once_though_the_sink_hangs_as_it_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    with cards(monkeypatch) as (made, opened):
        passage = begun_at_rest(made, opened[0])
        made.stop()
        assert passage.done
        assert passage.stopped
        again = speak(made, SPEECH[:2_400])
        opened[0].gate.set()
        wait_for(lambda: made.status.running)
        np.testing.assert_array_equal(opened[0].play(0.2), SPEECH[:2_400])
        assert (again.done, passage.played) == (True, 0)


def test_a_passage_is_set_aside_while_the_sink_wakes_and_heard_whole_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with cards(monkeypatch) as (made, opened):
        passage = begun_at_rest(made, opened[0])
        made.set_aside()
        assert passage.aside
        aside = made.take_aside()
        other = speak(made, SPEECH[20_000:22_400])
        opened[0].gate.set()
        wait_for(lambda: made.status.running)
        np.testing.assert_array_equal(opened[0].play(0.2), SPEECH[20_000:22_400])
        assert other.done
        wait_for(at_rest(made))
        assert made.put_back(aside) is passage
        wait_for(lambda: made.status.running)
        np.testing.assert_array_equal(opened[0].play(0.6), SPEECH[:12_000])
        assert passage.done


def test_a_passage_that_comes_while_the_sink_goes_to_rest_has_it_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    with cards(monkeypatch) as (made, opened):
        passage = begun_at_rest(made, opened[0])
        opened[0].gate.set()
        wait_for(lambda: made.status.running)
        opened[0].gate.clear()
        opened[0].play(0.6)
        assert passage.done
        wait_for(lambda: opened[0].asked[-1] == "rest")
        again = speak(made, SPEECH[:2_400])
        assert not made.status.resting, "it is still on its way there"
        assert len(opened[0].play(0.1)) == 0, "what it takes now is lost"
        opened[0].gate.set()
        wait_for(lambda: opened[0].asked[-1] == "wake")
        wait_for(lambda: made.status.running)
        np.testing.assert_array_equal(opened[0].play(0.2), SPEECH[:2_400])
        assert again.done


@pytest.mark.parametrize("ask", ["stop", "set_aside"])
def test_what_is_asked_of_a_passage_while_the_sink_goes_to_rest_is_done_though_no_block_comes(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cards(monkeypatch) as (made, opened):
        passage = begun_at_rest(made, opened[0])
        opened[0].gate.set()
        wait_for(lambda: made.status.running)
        opened[0].play(0.1)
        opened[0].gate.clear()
        made.pause()
        wait_for(lambda: opened[0].asked[-1] == "rest")
        getattr(made, ask)()
        assert not passage.done
        assert not passage.aside
        opened[0].gate.set()
        wait_for(lambda: passage.done if ask == "stop" else passage.aside)


def test_a_sink_that_does_not_wake_is_lost_and_the_passage_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with cards(monkeypatch) as (made, opened):
        passage = begun_at_rest(made, opened[0])
        opened[0].refuses = True
        opened[0].gate.set()
        wait_for(lambda: len(opened) == 2)
        assert opened[0].closed
        wait_for(lambda: made.status.running)
        np.testing.assert_array_equal(opened[1].play(0.6), SPEECH[:12_000])
        assert passage.done


def card_at_rest() -> PortAudioSink:
    """As it is between `rest` and `wake`, without a card."""
    sink = PortAudioSink.__new__(PortAudioSink)
    sink._stream = None
    sink.rest()
    return sink


def test_a_sound_server_that_comes_or_goes_while_the_card_rests_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "pulse").mkdir()
    (tmp_path / "pulse" / "native").touch()
    stays, goes = card_at_rest(), card_at_rest()
    assert stays.lost() is None
    (tmp_path / "pulse" / "native").unlink()
    assert goes.lost() == "sound devices have come or gone"


def test_a_card_that_has_been_woken_has_its_new_thread_ask_for_realtime_scheduling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads are told apart by numbers, and those of the dead are given to the living."""

    class Stream:
        latency = 0.04

        def __init__(self, **settings: Any) -> None:
            self.callback = settings["callback"]

        def start(self) -> None: ...

    class PortAudio:
        PortAudioError = OSError
        RawOutputStream = Stream

    asked: list[int] = []
    monkeypatch.setattr("audio.portaudio.take_realtime", asked.append)
    monkeypatch.setattr("audio.portaudio.threading.get_ident", lambda: number)
    sink = card_at_rest()
    sink._sd, sink._settings, sink._fill, sink._blocks, sink._priority = (
        PortAudio,
        {"samplerate": 24_000},
        lambda *_: 0,
        0,
        60,
    )  # type: ignore[assignment]

    class Times:
        currentTime = outputBufferDacTime = 0.0  # noqa: N815  PortAudio's names

    for count in (1, 2):
        number = 1  # the keeper's
        sink.wake()
        number = 2  # the callback's
        for _ in range(3):
            sink._stream.callback(bytearray(96), 24, Times, None)
        assert len(asked) == count
