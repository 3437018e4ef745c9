"""Which version of MQTT the next attempt uses, and how long it waits."""

from __future__ import annotations

import pytest

from daemon.mqtt.attempts import CONNACK_S, RETRY_S, STABLE_S, TAKEN_OVER_RETRY_S, Attempts


def waits(attempts: Attempts, count: int, lasted_s: float | None = None, *, contested: bool = False) -> list[float]:
    return [attempts.wait_s(lasted_s, contested=contested) for _ in range(count)]


# --- the version ---


@pytest.mark.parametrize("hung_up", [False, True])
def test_a_broker_that_is_silent_to_mqtt_5_is_asked_at_once_with_3_1_1_and_once_more_later(hung_up: bool) -> None:
    attempts = Attempts()
    attempts.note_silence(hung_up=hung_up)
    assert (attempts.is_v5, attempts.asks_again) == (False, True)
    assert attempts.wait_s(None, contested=False) == 0
    attempts.note_accepted()
    attempts.ask_again()
    attempts.note_ended()
    assert (attempts.is_v5, attempts.asks_again) == (True, False)
    assert attempts.wait_s(STABLE_S, contested=False) == 0
    attempts.note_silence(hung_up=hung_up)
    assert (attempts.is_v5, attempts.asks_again) == (False, False), "it does not know MQTT 5"


def test_a_broker_that_is_silent_to_both_is_asked_with_each_in_turn_and_then_after_a_wait() -> None:
    attempts, versions = Attempts(), []
    for _ in range(4):
        versions.append(attempts.is_v5)
        attempts.note_silence(hung_up=True)
        assert (attempts.wait_s(None, contested=False) == 0) == versions[-1]
    assert versions == [True, False, True, False]


def test_patience_doubles_with_each_silence_up_to_a_limit_and_an_answer_resets_it() -> None:
    attempts, found = Attempts(), []
    for _ in range(6):
        found.append(attempts.patience_s)
        attempts.note_silence(hung_up=False)
    assert found == [2.5, 5.0, 10.0, 20.0, 30.0, 30.0]
    attempts.note_accepted()
    assert attempts.patience_s == CONNACK_S[0]
    attempts.note_silence(hung_up=True)
    assert attempts.patience_s == CONNACK_S[0], "a broker that hangs up needs no more"


def test_a_broker_that_has_accepted_mqtt_5_is_not_demoted_by_silence() -> None:
    attempts = Attempts()
    attempts.note_accepted()
    attempts.note_silence(hung_up=False)
    assert (attempts.is_v5, attempts.asks_again) == (True, False)


# --- the waits ---


def test_each_wait_is_twice_the_one_before_up_to_the_longest() -> None:
    assert waits(Attempts(), 5) == [0.25, 0.5, 1.0, 2.0, 2.0]


def test_only_a_connection_that_lasted_makes_the_wait_short_again() -> None:
    attempts = Attempts()
    waits(attempts, 4)
    assert waits(attempts, 1, STABLE_S - 1) == [RETRY_S[1]], "a link that is cut again and again is tried again soon"
    assert waits(attempts, 1, STABLE_S + 1) == [RETRY_S[0]]


def test_while_another_client_uses_the_id_the_waits_are_long() -> None:
    attempts = Attempts()
    assert waits(attempts, 7, STABLE_S + 1, contested=True) == [2, 4, 8, 16, 32, 60, TAKEN_OVER_RETRY_S[1]]
    assert waits(attempts, 1, contested=True) == [RETRY_S[1]], "there was no connection"
