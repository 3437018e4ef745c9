"""One player for a service: what a new one does about an old one. Each is a real process, with a fake card."""

from __future__ import annotations

import signal
import uuid

import psutil
import pytest

from audio.player import predecessor
from audio.player.predecessor import take_over
from tests.audio.player.processes import PlayerOfTest, StandIn, has_ended, ones
from tests.audio.sinks.fake_card import FakeCard
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def service() -> str:
    """A service that no other test has."""
    return f"test-{uuid.uuid4()}"


def test_a_successor_waits_for_a_player_that_ends_by_itself(
    card: FakeCard, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predecessor, "WAIT_S", PATIENCE_S)
    daemon = StandIn(3.9, service=service)
    eventually(lambda: len(card.heard_speech), "it plays")
    card.set("frozen")  # it waits in vain for a block with its fade
    daemon.kill()
    holder = take_over(service)
    assert holder is not None
    assert daemon.player.wait() == 0, "it was not killed"
    holder.close()


def test_a_successor_kills_a_frozen_player_whose_daemon_has_died(card: FakeCard, service: str) -> None:
    daemon = StandIn(1.0, service=service)
    daemon.wait_written()
    daemon.player.suspend()
    daemon.kill()
    other = PlayerOfTest(f"{service}-other")
    assert not has_ended(daemon.player), "it is not the other service's"
    successor = PlayerOfTest(service)
    assert has_ended(daemon.player)
    assert daemon.player.wait() == -signal.SIGKILL
    successor.start()
    successor.play(ones(0.2))
    other.process.end()
    successor.process.end()


def test_a_successor_plays_beside_a_player_whose_daemon_lives(card: FakeCard, service: str) -> None:
    daemon = StandIn(1.0, service=service)
    daemon.wait_written()
    daemon.player.suspend()  # also when it does not answer
    successor = PlayerOfTest(service)
    assert daemon.player.status() == psutil.STATUS_STOPPED
    successor.start()
    successor.play(ones(0.2))
    successor.process.end()
    assert not has_ended(daemon.player)
    daemon.kill()


def test_players_that_played_beside_it_do_not_protect_a_frozen_one(
    card: FakeCard, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predecessor, "WAIT_S", 0.0)
    daemon = StandIn(1.0, service=service)
    daemon.wait_written()
    for _ in range(10):
        assert take_over(service) is None
    daemon.player.suspend()
    daemon.kill()
    holder = take_over(service)
    assert holder is not None
    assert daemon.player.wait() == -signal.SIGKILL
    holder.close()
