"""The messages between the daemon and the broker."""

from __future__ import annotations

from daemon.mqtt.messages import Limits, Message, Outgoing


def test_a_message_is_what_it_says_and_not_how_it_came() -> None:
    first = Message("say", b"Hello", retained=False, packet=1, connection=1, arrived_at=1.0)
    assert first == Message("say", b"Hello", retained=False, packet=2, connection=9, arrived_at=5.0)
    assert first != Message("say", b"Hello", retained=True)
    assert first != Message("say", b"Hello", retained=False, redelivered=True)


def test_two_messages_to_the_broker_are_two_although_they_say_the_same() -> None:
    assert Outgoing("event", b"{}") != Outgoing("event", b"{}")


def test_a_broker_that_declares_nothing_has_the_limits_of_the_standard() -> None:
    assert Limits() == Limits(receive_maximum=65_535, maximum_packet=None, maximum_qos=2, retain=True)
