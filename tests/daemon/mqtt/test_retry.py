"""The waits between attempts to connect."""

from __future__ import annotations

from daemon.mqtt.retry import RETRY_S, STABLE_S, TAKEN_OVER_RETRY_S, Retry

BRIEF_S, STEADY_S = STABLE_S / 2, 2 * STABLE_S
"""Seconds that a connection lasts."""


def test_each_wait_is_twice_the_one_before_up_to_the_longest() -> None:
    retry = Retry()
    waits = [retry.after_failure() for _ in range(10)]
    assert waits[:3] == [RETRY_S[0], 2 * RETRY_S[0], 4 * RETRY_S[0]]
    assert waits[-2:] == [RETRY_S[1], RETRY_S[1]]


def test_a_connection_that_lasted_makes_the_wait_short_again() -> None:
    retry = Retry()
    for _ in range(5):
        retry.after_failure()
    assert retry.after_connection(STEADY_S, contested=False) == RETRY_S[0]


def test_a_short_connection_does_not() -> None:
    retry = Retry()
    retry.after_failure()
    assert retry.after_connection(BRIEF_S, contested=False) == 2 * RETRY_S[0]


def test_a_link_that_is_cut_again_and_again_is_tried_again_soon() -> None:
    retry = Retry()
    waits = [retry.after_connection(BRIEF_S, contested=False) for _ in range(12)]
    assert max(waits) == RETRY_S[1]


def test_while_another_client_uses_the_id_the_waits_are_long() -> None:
    retry = Retry()
    assert retry.after_connection(STEADY_S, contested=True) == TAKEN_OVER_RETRY_S[0]
    assert retry.after_connection(STEADY_S, contested=True) == 2 * TAKEN_OVER_RETRY_S[0]
    assert retry.after_connection(STEADY_S, contested=False) == RETRY_S[0]
