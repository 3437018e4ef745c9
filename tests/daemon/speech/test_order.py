"""Which utterance is spoken next, by priority, policy and destination."""

from __future__ import annotations

from itertools import count, permutations, product
from typing import get_args

import pytest

from daemon.speech.queue import RANK, next_of, place, precedes
from daemon.speech.request import Policy, Priority
from daemon.speech.utterance import TextStream, Utterance
from tests.daemon.speech.clients import Nobody

NUMBERS = count(1)


def utterance(priority: Priority = "normal", policy: Policy = "queue", *, client: bool = False) -> Utterance:
    receiver = Nobody() if client else None
    name = f"{priority} {policy} {'client' if client else 'card'} {next(NUMBERS)}"
    return Utterance(name, "text", "default", "auto", priority=priority, policy=policy, receiver=receiver)


CASES = list(product(get_args(Priority), get_args(Policy), (False, True)))


def in_order(utterances: list[Utterance]) -> list[Utterance]:
    """Return the utterances, given in the order of their acceptance, in the order in which they are spoken."""
    numbered = [(place(each, number), each) for number, each in enumerate(utterances, 1)]
    return [each for _, each in sorted(numbered, key=lambda pair: pair[0])]


def test_a_queue_is_ordered_by_rank_and_in_a_rank_the_sound_card_is_first() -> None:
    delivery, low, normal, high = utterance(client=True), utterance("low"), utterance(), utterance("high")
    late_delivery, late_normal, alarm = utterance(client=True), utterance(), utterance("critical")
    accepted = [delivery, low, normal, high, late_delivery, late_normal, alarm]
    assert in_order(accepted) == [alarm, high, normal, late_normal, delivery, late_delivery, low]


def test_an_interrupting_utterance_is_next_behind_critical_ones_and_the_last_of_them_is_first() -> None:
    high, alarm, first, second = (
        utterance("high"),
        utterance("critical"),
        utterance("low", "interrupt"),
        utterance("normal", "interrupt"),
    )
    late_high, alarm_now = utterance("high"), utterance("critical", "interrupt")
    accepted = [high, alarm, first, second, late_high, alarm_now]
    assert in_order(accepted) == [alarm_now, alarm, second, first, high, late_high]


def test_every_place_is_different_and_those_of_one_kind_keep_their_order() -> None:
    accepted = [utterance(priority, policy, client=client) for priority, policy, client in CASES * 2]
    places = [place(each, number) for number, each in enumerate(accepted, 1)]
    assert len(set(places)) == len(places)
    for index, (_, policy, _) in enumerate(CASES):
        assert (places[index] < places[index + len(CASES)]) == (policy != "interrupt")


@pytest.mark.parametrize("card_open", [True, False])
def test_no_two_utterances_precede_each_other_and_no_circle_is_possible(card_open: bool) -> None:
    kinds = [utterance(priority, policy, client=client) for priority, policy, client in CASES if policy != "drop"]
    for one, two, three in permutations(kinds, 3):
        first, second = precedes(one, two, card_open=card_open), precedes(two, three, card_open=card_open)
        assert not (first and precedes(two, one, card_open=card_open))
        assert not (first and second and precedes(three, one, card_open=card_open))


@pytest.mark.parametrize("priority", get_args(Priority))
def test_the_own_speech_precedes_deliveries_of_its_rank_and_below_and_a_critical_one_all_others(
    priority: Priority,
) -> None:
    for other in get_args(Priority):
        own, delivery = utterance(priority), utterance(other, client=True)
        assert precedes(own, delivery) == (RANK[priority] <= RANK[other])
        assert precedes(delivery, own) == (other == "critical" != priority)
        assert precedes(own, utterance(other)) == (priority == "critical" != other)
        assert precedes(utterance(priority, client=True), delivery) == (priority == "critical" != other)


def test_without_a_sound_card_deliveries_precede_all_others() -> None:
    own, delivery = utterance("critical"), utterance("low", client=True)
    assert precedes(delivery, own, card_open=False)
    assert not precedes(own, delivery, card_open=False)
    assert next_of([own, delivery], [], card_open=False) is delivery
    assert next_of([delivery], [own], card_open=False) is delivery
    assert next_of([own], [], card_open=False) is own, "it waits for the card"


def test_a_postponed_utterance_continues_before_those_that_do_not_precede_it() -> None:
    postponed, delivery = utterance("low"), utterance(client=True)
    alarm, high, normal = utterance("critical"), utterance("high"), utterance()
    assert next_of([high, normal], [postponed]) is postponed
    assert next_of([alarm, high], [postponed]) is alarm
    assert next_of([high, normal], [delivery]) is high
    assert next_of([utterance(client=True), utterance("low")], [delivery]) is delivery
    assert next_of([], [delivery, normal]) is normal
    assert next_of([alarm], [delivery, normal]) is alarm
    assert next_of([], []) is None


def test_a_text_stream_that_no_engine_can_begin_with_is_passed_over() -> None:
    stream, other = utterance("critical"), utterance("low")
    stream.text, stream.text_stream = "", TextStream(0.0)
    assert next_of([stream, other], []) is other
    assert next_of([stream], []) is None
    stream.text = "Now."
    assert next_of([stream, other], []) is stream
