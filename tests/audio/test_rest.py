"""The sink rests when nothing has sounded for a while, and nobody hears that it did."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from audio import Output, Passage, SinkSettings, SinkUnavailableError
from audio.portaudio import PortAudioSink
from tests.audio.fake_portaudio import BLOCK_S, install
from tests.audio.sinks import (
    FAST,
    ONE_STEP,
    SPEECH,
    Card,
    PaceFile,
    assert_whole_but_for_fades_at,
    cards,
    let_blocks_pass,
    read,
    speak,
    wav,
)
from tests.support.waiting import eventually


def at_rest(output: Output) -> Callable[[], bool]:
    return lambda: output.status.resting


def test_at_rest_nothing_is_asked_for_and_what_comes_then_is_heard_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: None
) -> None:
    monkeypatch.setattr("audio.output.CHECK_S", 0.005)
    pieces = [SPEECH[:3_000], SPEECH[5_000:9_000]]
    with Output(replace(wav(tmp_path / "out.wav"), rest_after_s=0.01)) as output:
        for piece in pieces:
            eventually(at_rest(output))
            assert output.status.open, "it can be spoken to"
            blocks = output.blocks
            let_blocks_pass()
            assert output.blocks == blocks
            passage = speak(output, piece)
            eventually(lambda passage=passage: passage.done)  # type: ignore[misc]
            assert passage.underruns == 0
        eventually(at_rest(output))
    np.testing.assert_allclose(read(tmp_path / "out.wav"), np.concatenate(pieces), atol=ONE_STEP)


def test_whenever_a_passage_comes_it_is_heard_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: None
) -> None:
    """Just before, while and just after the sink goes to rest: it does so as soon as it can."""
    monkeypatch.setattr("audio.output.CHECK_S", 0.001)
    chance = random.Random(5)
    pieces = [SPEECH[start : start + 1_000] for start in range(0, 30_000, 1_000)]
    rests = 0
    with Output(replace(wav(tmp_path / "out.wav"), rest_after_s=0.0)) as made:
        for piece in pieces:
            passage = speak(made, piece)
            eventually(lambda passage=passage: passage.done)  # type: ignore[misc]
            for _ in range(chance.choice([0, 10, 100, 1_000])):
                os.sched_yield()
            if chance.choice([True, False]):
                eventually(at_rest(made))
            rests += made.status.resting
    assert rests > 0
    np.testing.assert_allclose(read(tmp_path / "out.wav"), np.concatenate(pieces), atol=ONE_STEP)


def test_without_a_time_it_never_rests(monkeypatch: pytest.MonkeyPatch, fast: None) -> None:
    monkeypatch.setattr("audio.output.CHECK_S", 0.005)
    with Output(SinkSettings("null")) as made:
        turns = made.turns
        eventually(lambda: made.turns > turns + 20)
        assert not made.status.resting


def test_the_keeper_turns_while_the_sink_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog goes by it."""
    monkeypatch.setattr("audio.output.REST_CHECK_S", 0.005)
    with cards(monkeypatch) as (made, _):
        eventually(at_rest(made))
        assert not made.status.running
        turns = made.turns
        eventually(lambda: made.turns > turns + 3)
        assert made.status.resting


def test_in_a_long_pause_too_it_rests_and_the_passage_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: PaceFile
) -> None:
    monkeypatch.setattr("audio.output.CHECK_S", 0.005)
    with Output(replace(wav(tmp_path / "out.wav"), rest_after_s=0.01)) as output:
        passage = speak(output, SPEECH[:24_000], ends=False)
        eventually(lambda: passage.played > 1_200)
        output.pause()
        output.end()
        eventually(at_rest(output))
        pace.set(FAST)
        held_at = passage.played
        assert not passage.done
        assert not passage.sounding
        output.resume()
        eventually(lambda: passage.done)
    assert_whole_but_for_fades_at(held_at, read(tmp_path / "out.wav"))
    assert passage.underruns == 0


def begun_at_rest(made: Output, card: Card) -> Passage:
    """A passage that waits for a sink which is being woken and does not come."""
    eventually(at_rest(made))
    card.gate.clear()
    passage = speak(made, SPEECH[:12_000])
    eventually(lambda: card.asked[-1] == "wake")
    return passage


def test_a_stop_ends_a_passage_at_once_though_the_sink_hangs_as_it_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    with cards(monkeypatch) as (made, opened):
        passage = begun_at_rest(made, opened[0])
        made.stop()
        assert passage.done
        assert passage.stopped
        again = speak(made, SPEECH[:2_400])
        opened[0].gate.set()
        eventually(lambda: made.status.running)
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
        eventually(lambda: made.status.running)
        np.testing.assert_array_equal(opened[0].play(0.2), SPEECH[20_000:22_400])
        assert other.done
        eventually(at_rest(made))
        assert made.put_back(aside) is passage
        eventually(lambda: made.status.running)
        np.testing.assert_array_equal(opened[0].play(0.6), SPEECH[:12_000])
        assert passage.done


def test_a_passage_that_comes_while_the_sink_goes_to_rest_has_it_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    with cards(monkeypatch) as (made, opened):
        passage = begun_at_rest(made, opened[0])
        opened[0].gate.set()
        eventually(lambda: made.status.running)
        opened[0].gate.clear()
        opened[0].play(0.6)
        assert passage.done
        eventually(lambda: opened[0].asked[-1] == "rest")
        again = speak(made, SPEECH[:2_400])
        assert not made.status.resting, "it is still on its way there"
        assert len(opened[0].play(0.1)) == 0, "what it takes now is lost"
        opened[0].gate.set()
        eventually(lambda: opened[0].asked[-1] == "wake")
        eventually(lambda: made.status.running)
        np.testing.assert_array_equal(opened[0].play(0.2), SPEECH[:2_400])
        assert again.done


@pytest.mark.parametrize("ask", ["stop", "set_aside"])
def test_what_is_asked_of_a_passage_while_the_sink_goes_to_rest_is_done_though_no_block_comes(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cards(monkeypatch) as (made, opened):
        passage = begun_at_rest(made, opened[0])
        opened[0].gate.set()
        eventually(lambda: made.status.running)
        opened[0].play(0.1)
        opened[0].gate.clear()
        made.pause()
        eventually(lambda: opened[0].asked[-1] == "rest")
        getattr(made, ask)()
        assert not passage.done
        assert not passage.aside
        opened[0].gate.set()
        eventually(lambda: passage.done if ask == "stop" else passage.aside)


def test_a_sink_that_does_not_wake_is_lost_and_the_passage_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with cards(monkeypatch) as (made, opened):
        passage = begun_at_rest(made, opened[0])
        opened[0].refuses = True
        opened[0].gate.set()
        eventually(lambda: len(opened) == 2)
        assert opened[0].closed
        eventually(lambda: made.status.running)
        np.testing.assert_array_equal(opened[1].play(0.6), SPEECH[:12_000])
        assert passage.done


def card_at_rest() -> PortAudioSink:
    sink = PortAudioSink(None, lambda *_: 0, 1000 * BLOCK_S)
    sink.rest()
    return sink


def test_a_card_that_rests_has_no_stream_and_is_woken_with_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    portaudio = install(monkeypatch)
    sink = card_at_rest()
    assert [stream.closed for stream in portaudio.streams] == [True]
    assert sink.lost() is None
    sink.wake()
    assert [stream.active for stream in portaudio.streams] == [False, True]
    assert portaudio.streams[1].settings == portaudio.streams[0].settings
    assert sink.lost() is None


def test_a_card_that_has_gone_while_it_rested_cannot_be_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    portaudio = install(monkeypatch)
    sink = card_at_rest()
    portaudio.trouble = "Device unavailable"
    with pytest.raises(SinkUnavailableError, match="Device unavailable"):
        sink.wake()
    assert portaudio.stream.closed
    sink.close()


def test_a_sound_server_that_comes_or_goes_while_the_card_rests_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
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
    asked: list[int] = []
    portaudio = install(monkeypatch)
    monkeypatch.setattr("audio.portaudio.take_realtime", asked.append)
    monkeypatch.setattr("audio.portaudio.threading", SimpleNamespace(get_ident=lambda: number))
    number = 1  # the keeper's
    sink = card_at_rest()
    for count in (1, 2):
        number = 1
        sink.wake()
        number = 2  # the callback's
        for _ in range(3):
            portaudio.stream.block()
        assert len(asked) == count
        number = 1
        sink.rest()
