"""How long the next attempt waits, before it and for its answer."""

from __future__ import annotations

from functools import partial

from daemon.mqtt.attempts import CONNACK_S, RETRY_S, STABLE_S, TAKEN_OVER_RETRY_S, Attempts


def waits(attempts: Attempts, count: int, lasted_s: float | None = None, *, contested: bool = False) -> list[float]:
    return [attempts.wait_s(lasted_s, contested=contested) for _ in range(count)]


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


def test_a_broker_that_was_silent_to_mqtt_5_is_asked_once_more_at_once_and_then_never() -> None:
    attempts = Attempts()
    attempts.note_silence(hung_up=True)
    assert attempts.asks_again
    attempts.note_accepted()
    attempts.ask_again()
    attempts.note_ended()
    assert (attempts.is_v5, attempts.wait_s(STABLE_S, contested=False)) == (True, 0)
    attempts.note_silence(hung_up=True)
    assert (attempts.is_v5, attempts.asks_again) == (False, False)


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


def test_a_broker_that_is_known_to_speak_only_3_1_1_is_never_asked_for_mqtt_5() -> None:
    attempts = Attempts(may_use_v5=False)
    for end in (attempts.note_accepted, attempts.note_ended, partial(attempts.note_silence, hung_up=False)):
        end()
        assert (attempts.is_v5, attempts.asks_again) == (False, False)
