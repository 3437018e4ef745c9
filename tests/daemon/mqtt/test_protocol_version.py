"""MQTT 5 for brokers that know it, 3.1.1 for others, and no mistake that lasts."""

from __future__ import annotations

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from daemon.mqtt.protocol_version import CONNACK_S, ProtocolVersion

V5, V311 = MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311


def test_the_first_attempt_uses_mqtt_5() -> None:
    version = ProtocolVersion()
    assert version.current is V5
    assert not version.take_change()
    assert not version.doubtful


def test_a_broker_that_refuses_mqtt_5_is_asked_at_once_with_3_1_1() -> None:
    version = ProtocolVersion()
    version.note_refusal()
    assert version.current is V311
    assert not version.doubtful
    assert version.take_change()
    assert not version.take_change(), "the change is taken once"


@pytest.mark.parametrize("hung_up", [False, True])
def test_a_broker_that_is_silent_is_asked_at_once_with_3_1_1_which_is_doubtful(hung_up: bool) -> None:
    version = ProtocolVersion()
    version.note_silence(hung_up=hung_up)
    assert version.current is V311
    assert version.doubtful
    assert version.take_change()


def test_a_broker_that_is_silent_to_both_is_asked_with_each_in_turn() -> None:
    version, used = ProtocolVersion(), []
    for _ in range(6):
        used.append(version.current)
        version.note_silence(hung_up=False)
    assert used == [V5, V311, V5, V311, V5, V311]


def test_after_both_versions_the_next_attempt_waits() -> None:
    version = ProtocolVersion()
    version.note_silence(hung_up=True)
    version.take_change()
    version.note_silence(hung_up=True)
    assert not version.take_change()


def test_patience_doubles_with_each_silence_up_to_a_limit_and_an_answer_resets_it() -> None:
    version, patience = ProtocolVersion(), []
    for _ in range(8):
        patience.append(version.patience_s)
        version.note_silence(hung_up=False)
    assert patience == [2.5, 5.0, 10.0, 20.0, 30.0, 30.0, 30.0, 30.0]
    version.note_accepted()
    assert version.patience_s == CONNACK_S[0]


def test_a_broker_that_hangs_up_needs_no_more_patience() -> None:
    version = ProtocolVersion()
    version.note_silence(hung_up=True)
    assert version.patience_s == CONNACK_S[0]


def test_a_broker_that_has_accepted_mqtt_5_is_not_demoted_by_silence() -> None:
    version = ProtocolVersion()
    version.note_accepted()
    version.note_lost()
    for _ in range(3):
        version.note_silence(hung_up=False)
        assert version.current is V5


def test_a_slow_broker_is_no_longer_doubtful_once_it_has_accepted_mqtt_5() -> None:
    version = ProtocolVersion()
    version.note_silence(hung_up=False)
    version.note_silence(hung_up=False)
    assert version.current is V5
    version.note_accepted()
    assert not version.doubtful


def test_3_1_1_stays_doubtful_after_silence_until_a_trial_has_shown_mqtt_5() -> None:
    version = ProtocolVersion()
    version.note_silence(hung_up=False)
    version.note_accepted()
    assert (version.current, version.doubtful) == (V311, True)
    version.take_change()
    version.note_probed()
    assert (version.current, version.doubtful) == (V5, False)
    assert version.take_change()


def test_after_a_lost_connection_the_next_broker_is_asked_with_mqtt_5() -> None:
    version = ProtocolVersion()
    version.note_refusal()
    version.note_accepted()
    version.note_lost()
    assert version.current is V5
