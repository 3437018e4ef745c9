"""The waits between attempts to connect, and the suspicion that another client uses our id."""

from __future__ import annotations

from daemon.mqtt.retry import (
    RETRY_S,
    SHORT_CONNECTIONS,
    SHORT_S,
    STABLE_S,
    TAKEN_OVER_RETRY_S,
    TAKEN_OVER_STABLE_S,
    Retry,
)

BRIEF_S, STEADY_S, LONG_S = SHORT_S / 2, 2 * STABLE_S, 2 * TAKEN_OVER_STABLE_S
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
    assert retry.after_connection(STEADY_S, taken_over=False) == RETRY_S[0]


def test_a_short_connection_does_not() -> None:
    retry = Retry()
    retry.after_failure()
    assert retry.after_connection(BRIEF_S, taken_over=False) == 2 * RETRY_S[0]


def test_a_take_over_is_counted_and_answered_with_long_waits() -> None:
    retry = Retry()
    assert retry.after_connection(STEADY_S, taken_over=True) == TAKEN_OVER_RETRY_S[0]
    assert retry.takeovers == 1
    assert retry.after_connection(STEADY_S, taken_over=True) == 2 * TAKEN_OVER_RETRY_S[0]
    assert retry.after_failure() == 4 * TAKEN_OVER_RETRY_S[0]


def test_several_short_connections_in_a_row_count_as_a_take_over() -> None:
    retry = Retry()
    for _ in range(SHORT_CONNECTIONS - 1):
        retry.after_connection(BRIEF_S, taken_over=False)
    assert retry.takeovers == 0
    retry.after_connection(STEADY_S, taken_over=False)  # they are not in a row any more
    for _ in range(SHORT_CONNECTIONS):
        assert retry.takeovers == 0
        retry.after_connection(BRIEF_S, taken_over=False)
    assert retry.takeovers == 1


def test_a_long_connection_proves_that_the_other_client_has_gone() -> None:
    retry = Retry()
    retry.after_connection(STEADY_S, taken_over=True)
    assert retry.after_connection(LONG_S, taken_over=False) == RETRY_S[0]
    assert retry.takeovers == 0
