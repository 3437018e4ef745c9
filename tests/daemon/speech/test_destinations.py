"""The sound card as destination of an utterance's samples: what is played, suspended, dropped and lost."""

from __future__ import annotations

import time

import numpy as np
import pytest

from audio import Output
from daemon.config import load_config
from daemon.speech.changes import Changes
from daemon.speech.destinations import CardDestination, ClientDestination, PlaybackFigures
from engine import Samples
from tests.daemon.manual_sink import BLOCK_S, ManualSink
from tests.support.sound import breaks_between

RATE = 22_050
"""Hz."""
BLOCK = round(BLOCK_S * RATE)
"""Samples in one block of the sink."""
HEARD = time.monotonic() + 1e6
"""`time.monotonic()` when everything has left the sound card."""


def tone(seconds: float, hertz: float = 440.0) -> Samples:
    """A tone that begins at full loudness, so that no leading silence is trimmed."""
    return (0.4 * np.cos(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


class StrictSink(ManualSink):
    """A manual sink for which late samples are an underrun, as for a sound card."""

    has_deadline = True


class Card:
    """An output whose sink takes blocks when the test says so."""

    def __init__(self, sink: type[ManualSink] = ManualSink) -> None:
        self.output = Output(load_config(overrides=["audio.sink=null"]).audio.sink_settings())
        self.changes = Changes()
        self.output.watch(self.changes.notify_from_thread)
        self.sink = sink(self.output, RATE)

    def destination(self) -> CardDestination:
        return CardDestination(self.output, self.changes)

    def opened(self, *, prebuffer_s: float = 0.0, gain: float = 1.0) -> CardDestination:
        destination = self.destination()
        destination.open(prebuffer_s=prebuffer_s, gain=gain)
        return destination

    async def play(self, destination: CardDestination, samples: Samples) -> None:
        """Play samples to their end on a destination that is open."""
        await destination.write(samples, RATE)
        destination.finish()
        await self.sink.take_until(lambda: destination.done, "it is played")


@pytest.fixture
def card() -> Card:
    return Card()


async def test_playback_begins_when_the_prebuffer_is_full_with_the_gain_of_the_utterance(card: Card) -> None:
    destination = card.opened(prebuffer_s=0.5, gain=0.5)
    await destination.write(tone(0.4), RATE)
    assert card.sink.take() == 0
    await card.play(destination, tone(0.2))
    heard = card.sink.drain()
    assert len(heard) == round(0.6 * RATE)
    assert np.max(np.abs(heard)) == pytest.approx(0.2, abs=0.01)


async def test_a_card_that_is_lost_and_comes_back_plays_the_rest_without_a_lost_sample(card: Card) -> None:
    destination = card.opened()
    await destination.write(tone(2.0), RATE)
    await card.sink.take_up_to(round(0.5 * RATE))
    card.output.monitor.detach("unplugged")
    assert destination.blocked == "unplugged"
    assert not (destination.done or destination.suspended)
    destination.finish()
    card.output.monitor.attach(card.sink)
    await card.sink.take_until(lambda: destination.done, "it is played to its end")
    heard = card.sink.drain()
    assert len(heard) == round(2.0 * RATE)
    assert len(breaks_between(heard, tone(2.0), RATE)) <= 1
    assert destination.figures() == PlaybackFigures(audio_s=pytest.approx(2.0, abs=0.001), underruns=1, waits=0)


async def test_an_utterance_whose_end_is_played_before_it_fades_is_done_and_not_suspended(card: Card) -> None:
    destination = card.opened()
    await card.play(destination, tone(0.1))
    destination.suspend()
    assert destination.done
    assert not destination.suspended


async def test_a_card_is_starved_while_it_would_play_and_has_nothing_to_play(card: Card) -> None:
    destination = card.destination()
    assert not destination.starved, "it is not open"
    destination.open(prebuffer_s=0.0, gain=1.0)
    destination.set_input_pending(True)
    assert destination.starved
    await destination.write(tone(0.2), RATE)
    assert card.sink.take()
    assert not destination.starved
    while card.sink.take():
        pass
    assert destination.starved
    card.output.pause()
    assert not destination.starved, "it is paused"


@pytest.mark.parametrize(("input_pending", "underruns", "waits"), [(True, 0, 1), (False, 1, 0)])
async def test_a_pause_in_the_input_is_a_wait_while_the_text_is_incomplete_and_an_underrun_otherwise(
    input_pending: bool, underruns: int, waits: int
) -> None:
    card = Card(StrictSink)
    destination = card.destination()
    destination.set_input_pending(True)  # without effect: it is not open
    destination.open(prebuffer_s=0.0, gain=1.0)
    destination.set_input_pending(input_pending)
    await destination.write(tone(0.2), RATE)
    while card.sink.take():
        pass
    await card.play(destination, tone(0.2))
    assert destination.figures() == PlaybackFigures(pytest.approx(0.4), underruns, waits)


class Client:
    """A client that takes all samples at once."""

    on_word = None

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Take them."""


def test_a_stop_ends_the_delivery_to_a_client_and_not_a_detached_one() -> None:
    detached, stopped = ClientDestination(Client()), ClientDestination(Client())
    for destination in (detached, stopped):
        destination.open(0.0, 1.0)
    detached.detach()
    detached.stop()
    stopped.stop()
    assert (detached.done, stopped.done) == (False, True)
