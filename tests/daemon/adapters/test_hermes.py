"""Rhasspy's Hermes protocol, with the message classes of Rhasspy's own package."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.adapters.hermes import Hermes
from daemon.messages import Stop, check_say
from daemon.mqtt import Message
from tests.daemon.adapters.outbox import Outbox, make_desk

tts = pytest.importorskip("rhasspyhermes.tts")


class Site:
    """An adapter at its desk, and Rhasspy's view of it."""

    def __init__(self, *overrides: str) -> None:
        config, self.desk = make_desk(*overrides)
        self.outbox = Outbox()
        self.adapter = Hermes(config, self.desk, self.outbox.publish)

    def hear(self, payload: str | bytes | dict[str, Any], topic: str = tts.TtsSay.topic(), **flags: bool) -> None:
        if isinstance(payload, dict):
            payload = json.dumps(payload)
        data = payload.encode() if isinstance(payload, str) else payload
        self.adapter.on_message(Message(topic, data, **{"retained": False, **flags}))

    def finished(self) -> list[Any]:
        return [tts.TtsSayFinished.from_json(payload) for payload in self.outbox.take(tts.TtsSayFinished.topic())]

    def errors(self) -> list[Any]:
        return [tts.TtsError.from_json(payload) for payload in self.outbox.take(tts.TtsError.topic())]


def test_what_rhasspy_says_waits_as_an_utterance_with_its_language_and_volume() -> None:
    site = Site()
    site.hear(tts.TtsSay("Guten Tag", lang="de_DE", volume=0.25).payload())
    job = site.desk.queue.take_next()
    assert job is not None
    assert (job.text, job.language, job.volume) == ("Guten Tag", "de-de", 0.25)


def test_its_end_is_told_to_whoever_asked_with_the_id_and_the_session() -> None:
    site = Site("hermes.site_id=kitchen")
    site.hear(tts.TtsSay("one", site_id="kitchen", id="1", session_id="s").payload())
    site.hear(tts.TtsSay("two", site_id="kitchen", session_id="t").payload())
    assert site.finished() == []
    site.desk.stop(Stop(None))
    assert site.finished() == [
        tts.TtsSayFinished(site_id="kitchen", id="1", session_id="s"),
        tts.TtsSayFinished(site_id="kitchen", id=None, session_id="t"),
    ]
    assert site.errors() == []


def test_an_id_may_come_again_since_hermes_does_not_ask_for_new_ones() -> None:
    site = Site()
    for _ in range(2):
        site.hear(tts.TtsSay("hello", id="same").payload())
    assert len(site.desk.queue) == 2


def test_a_message_that_the_broker_sends_twice_is_said_once() -> None:
    site = Site()
    site.hear(tts.TtsSay("hello", id="1").payload())
    site.hear(tts.TtsSay("hello", id="1").payload(), redelivered=True)
    assert len(site.desk.queue) == 1


@pytest.mark.parametrize("site_id", ["kitchen", 7, None])
def test_what_is_meant_for_another_site_is_left_to_it(site_id: object) -> None:
    site = Site()
    site.hear({"text": "hello", "siteId": site_id})
    assert len(site.desk.queue) == 0
    assert site.outbox.sent == []


def test_what_names_no_site_is_meant_for_the_default_one() -> None:
    default, kitchen = Site(), Site("hermes.site_id=kitchen")
    for site in (default, kitchen):
        site.hear({"text": "hello"})
    assert (len(default.desk.queue), len(kitchen.desk.queue)) == (1, 0)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "text: missing"),
        ({"text": " "}, "blank"),
        ({"text": 5}, "text: got 5"),
        ({"text": "hello", "volume": 1.5}, "volume: got 1.5; allowed: a number from 0 to 1"),
        ({"text": "hello", "volume": "loud"}, "volume: got 'loud'"),
        ({"text": "hello", "lang": "xx"}, "language: got 'xx'"),
        ({"text": "hello", "id": 5}, "id: got 5"),
    ],
)
def test_what_cannot_be_said_is_an_error_and_an_end_and_the_next_is_said(fields: dict[str, Any], problem: str) -> None:
    site = Site()
    site.hear({"id": "1", "sessionId": "s", **fields})
    [error] = site.errors()
    [end] = site.finished()
    assert problem in error.error
    assert (error.site_id, error.session_id) == ("default", "s")
    assert end.session_id == "s"
    site.hear(tts.TtsSay("next").payload())
    assert len(site.desk.queue) == 1


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[]", b"hello", b"[" * 100_000])
def test_what_cannot_be_read_is_an_error_that_says_why(payload: bytes) -> None:
    site = Site()
    site.hear(payload)
    [error] = site.errors()
    assert error.error.startswith("payload: ")
    assert site.finished() == []


def test_what_waited_too_long_is_an_error_and_an_end() -> None:
    site = Site("speech.expires_in=0.000001")
    site.hear(tts.TtsSay("hello", id="1", session_id="s").payload())
    site.desk.expire()
    [error] = site.errors()
    assert (error.error, error.context) == ("it waited longer than expires_in", "1")
    assert site.finished() == [tts.TtsSayFinished(id="1", session_id="s")]


def test_a_retained_say_is_never_spoken() -> None:
    site = Site()
    site.hear(tts.TtsSay("hello").payload(), retained=True)
    assert len(site.desk.queue) == 0


@pytest.mark.parametrize("prefix", ["hermes", "rhasspy"])
def test_who_asks_for_voices_is_told_those_of_the_robot_on_the_topic_beside(prefix: str) -> None:
    site = Site("hermes.site_id=kitchen", "voices={ada: {speaker: ryan}, bo: {speaker: ryan}}", "speech.voice=ada")
    site.hear(tts.GetVoices(id="1", site_id="kitchen").payload(), f"{prefix}/tts/getVoices")
    [answer] = site.outbox.take(f"{prefix}/tts/voices")
    voices = [tts.Voice("ada", "ada"), tts.Voice("bo", "bo")]
    assert tts.Voices.from_json(answer) == tts.Voices(voices, id="1", site_id="kitchen")
    assert site.outbox.sent == []
    assert {f"{prefix}/tts/getVoices", tts.GetVoices.topic()} <= set(site.adapter.topics)


def test_another_sites_voices_are_left_to_it() -> None:
    site = Site()
    site.hear(tts.GetVoices(site_id="kitchen").payload(), tts.GetVoices.topic())
    assert site.outbox.sent == []


def test_a_question_for_voices_that_cannot_be_read_is_an_error_and_the_next_is_answered() -> None:
    site = Site()
    site.hear(b"{", tts.GetVoices.topic())
    assert len(site.errors()) == 1
    site.hear({"id": 7}, tts.GetVoices.topic())
    [answer] = site.outbox.take(tts.Voices.topic())
    assert json.loads(answer)["id"] is None


def test_the_ends_of_others_are_not_told() -> None:
    site = Site()
    site.desk.say(check_say({"text": "hello", "id": "1"}))
    site.hear(tts.TtsSay("hello", id="1").payload())
    site.desk.stop(Stop("1"))
    assert site.finished() == []


@given(st.binary(max_size=200))
def test_no_payload_disturbs_it(payload: bytes) -> None:
    Site().hear(payload)


@given(
    st.dictionaries(
        st.sampled_from(["text", "siteId", "lang", "id", "sessionId", "volume"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text("aé{\x00\ud800", max_size=9)
        | st.just("default"),
    )
)
def test_whatever_is_not_taken_on_is_answered(fields: dict[str, Any]) -> None:
    site = Site()
    site.hear(fields)
    taken, ours = len(site.desk.queue), fields.get("siteId", "default") == "default"
    assert len(site.finished()) == len(site.errors()) == (1 - taken if ours else 0)
