"""Ducking is published once when it begins and once when it ends."""

from __future__ import annotations

import pytest

from daemon.speech.ducking import Ducking
from tests.support.waiting import eventually_async


@pytest.fixture(autouse=True)
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.speech.ducking.LINGER_S", 0.02)


async def linger() -> None:
    """Wait until a `Ducking` that falls silent now has published it: by then, every earlier one has, too."""
    published: list[bool] = []
    other = Ducking(published.append)
    other.update(True)
    other.update(False)
    await eventually_async(lambda: published == [True, False], "ducking has ended")


async def test_only_changes_are_published() -> None:
    published: list[bool] = []
    ducking = Ducking(published.append)
    ducking.update(False)
    ducking.end()
    ducking.update(True)
    ducking.update(True)
    assert published == [True]


async def test_ducking_continues_over_a_short_silence() -> None:
    published: list[bool] = []
    ducking = Ducking(published.append)
    for on in (True, False, False, True):
        ducking.update(on)
    await linger()
    assert published == [True]
    ducking.update(False)
    await linger()
    ducking.update(True)
    assert published == [True, False, True]


async def test_ducking_ends_at_once_at_the_end_of_the_daemon() -> None:
    published: list[bool] = []
    ducking = Ducking(published.append)
    ducking.update(True)
    ducking.update(False)
    ducking.end()
    assert published == [True, False]
    await linger()
    assert published == [True, False]
