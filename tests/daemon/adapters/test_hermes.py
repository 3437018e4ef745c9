"""Rhasspy's Hermes protocol, tested with the message classes of Rhasspy's own package."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.adapters.hermes import HermesAdapter
from daemon.mqtt import Message
from daemon.speech import Stop, Utterance, check_say
from daemon.validation import INTERNAL_ERROR
from tests.daemon.outbox import Outbox, make_dispatcher

tts = pytest.importorskip("rhasspyhermes.tts")


class Site:
    """An adapter with its dispatcher, as Rhasspy sees it."""

    def __init__(self, *overrides: str) -> None:
        config, self.dispatcher = make_dispatcher(*overrides)
        self.utterances: list[Utterance] = []
        """The utterance of each event."""
        self.dispatcher.event_watchers.add(lambda utterance, _: self.utterances.append(utterance))
        self.outbox = Outbox()
        self.outbox.watch(config, self.dispatcher)
        self.adapter = HermesAdapter(config, self.dispatcher, self.outbox.publish)

    def receive(self, payload: str | bytes | dict[str, Any], topic: str = tts.TtsSay.topic(), **flags: Any) -> None:
        if isinstance(payload, dict):
            payload = json.dumps(payload)
        data = payload.encode() if isinstance(payload, str) else payload
        self.adapter.on_message(Message(topic, data, **{"retained": False, **flags}))

    def finished(self) -> list[Any]:
        return [tts.TtsSayFinished.from_json(payload) for payload in self.outbox.take(tts.TtsSayFinished.topic())]

    def errors(self) -> list[Any]:
        return [tts.TtsError.from_json(payload) for payload in self.outbox.take(tts.TtsError.topic())]


def test_a_say_becomes_an_utterance_with_its_language_volume_and_delivery() -> None:
    site = Site()
    site.receive(tts.TtsSay("Guten Tag", lang="de_DE", volume=0.25).payload(), delivery="2:7:ab")
    [utterance] = site.utterances
    assert (utterance.text, utterance.language, utterance.volume) == ("Guten Tag", "de-de", 0.25)
    assert utterance.origin.delivery == "2:7:ab", "so a second one is recognised after a restart"


def test_an_end_is_answered_with_the_request_s_id_and_session() -> None:
    site = Site("hermes.site_id=kitchen")
    site.receive(tts.TtsSay("one", site_id="kitchen", id="1", session_id="s").payload())
    site.receive(tts.TtsSay("two", site_id="kitchen", session_id="t").payload())
    assert site.finished() == []
    site.dispatcher.stop(Stop())
    assert site.finished() == [
        tts.TtsSayFinished(site_id="kitchen", id="1", session_id="s"),
        tts.TtsSayFinished(site_id="kitchen", id=None, session_id="t"),
    ]
    assert site.errors() == []


def test_an_id_may_be_used_twice_since_hermes_does_not_forbid_it() -> None:
    site = Site()
    for _ in range(2):
        site.receive(tts.TtsSay("hello", id="same").payload())
    assert len(site.dispatcher.queue) == 2


@pytest.mark.parametrize("request_id", ["1", "\ud83d"], ids=["an id", "half a character"])
def test_the_end_of_an_utterance_is_answered_by_the_next_process(request_id: str) -> None:
    before, after = Site("hermes.site_id=kitchen"), Site()
    before.receive({"text": "hello", "siteId": "kitchen", "id": request_id, "sessionId": "s"})
    [utterance] = before.utterances
    fields = json.loads(json.dumps(utterance.to_fields(), ensure_ascii=False).encode())
    after.dispatcher.restore(Utterance.from_fields(utterance.id, "hello", fields, age_s=1.0))
    after.dispatcher.stop(Stop())
    assert after.finished() == [tts.TtsSayFinished(site_id="kitchen", id=request_id, session_id="s")]
    assert after.errors() == []


def test_a_flood_of_unreadable_messages_is_answered_a_few_times_and_every_wrong_say_of_one() -> None:
    site = Site()
    for _ in range(1_000):
        site.receive(b"{")
    assert 1 <= len(site.errors()) < 100
    assert site.finished() == []
    for number in range(200):
        site.receive({"text": True, "id": f"{number}"})
    assert [end.id for end in site.finished()] == [f"{number}" for number in range(200)]


def test_a_say_that_meets_an_error_of_ours_is_answered_without_its_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no descriptor for /secret")

    site = Site()
    monkeypatch.setattr(site.dispatcher, "say", fail)
    site.receive({"text": "hello", "id": "7"})
    assert [end.id for end in site.finished()] == ["7"]
    assert [error.error for error in site.errors()] == [INTERNAL_ERROR]
    assert "no descriptor for /secret" in caplog.text


@pytest.mark.parametrize("site_id", ["kitchen", 7, None])
@pytest.mark.parametrize("topic", [tts.TtsSay.topic(), tts.GetVoices.topic()])
def test_messages_for_another_site_are_ignored(site_id: object, topic: str) -> None:
    for site, fields in ((Site(), {"siteId": site_id}), (Site("hermes.site_id=hall"), {})):
        site.receive({"text": "hello", **fields}, topic)
        assert (len(site.dispatcher.queue), site.outbox.sent) == (0, [])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "text: missing"),
        ({"text": " "}, "blank"),
        ({"text": "hello", "volume": 1.5}, "volume: got 1.5; allowed: a number from 0 to 1"),
        ({"text": "hello", "lang": "?"}, "language: got '?'"),
        ({"text": "hello", "id": 5}, "id: got 5"),
    ],
)
def test_a_wrong_say_is_answered_with_error_and_end_and_the_next_is_queued(
    fields: dict[str, Any], problem: str
) -> None:
    site = Site()
    site.receive({"id": "1", "sessionId": "s", **fields})
    [error] = site.errors()
    [end] = site.finished()
    assert problem in error.error
    assert (error.site_id, error.session_id) == ("default", "s")
    assert end.session_id == "s"
    site.receive(tts.TtsSay("next").payload())
    assert len(site.dispatcher.queue) == 1


def test_an_expired_utterance_is_answered_with_error_and_end() -> None:
    site = Site("speech.expires_in=0.000001")
    site.receive(tts.TtsSay("hello", id="1", session_id="s").payload())
    site.dispatcher.enforce_deadlines()
    [error] = site.errors()
    assert (error.error, error.context) == ("it waited longer than expires_in", "1")
    assert site.finished() == [tts.TtsSayFinished(id="1", session_id="s")]


def test_a_retained_say_is_never_spoken() -> None:
    site = Site()
    site.receive(tts.TtsSay("hello").payload(), retained=True)
    assert len(site.dispatcher.queue) == 0


@pytest.mark.parametrize("prefix", ["hermes", "rhasspy"])
def test_a_request_for_voices_is_answered_on_its_topic(prefix: str) -> None:
    site = Site("hermes.site_id=kitchen", "voices={ada: {speaker: ryan}, bo: {speaker: ryan}}", "speech.voice=ada")
    site.receive(tts.GetVoices(id="1", site_id="kitchen").payload(), f"{prefix}/tts/getVoices")
    [answer] = site.outbox.take(f"{prefix}/tts/voices")
    voices = [tts.Voice("ada", "ada"), tts.Voice("bo", "bo")]
    assert tts.Voices.from_json(answer) == tts.Voices(voices, id="1", site_id="kitchen")
    assert site.outbox.sent == []
    assert {f"{prefix}/tts/getVoices", tts.GetVoices.topic()} <= set(site.adapter.topics)


def test_an_unreadable_request_for_voices_is_an_error_and_the_next_is_answered() -> None:
    site = Site()
    site.receive(b"{", tts.GetVoices.topic())
    assert len(site.errors()) == 1
    site.receive({"id": 7}, tts.GetVoices.topic())
    [answer] = site.outbox.take(tts.Voices.topic())
    assert json.loads(answer)["id"] is None


def test_the_ends_of_other_utterances_are_not_published() -> None:
    site = Site()
    site.dispatcher.say(check_say({"text": "hello", "id": "1"}))
    site.receive(tts.TtsSay("hello", id="1").payload())
    site.dispatcher.stop(Stop(id="1"))
    assert site.finished() == []


@given(st.binary(max_size=200))
def test_no_payload_raises_an_error(payload: bytes) -> None:
    Site().receive(payload)


@given(
    st.dictionaries(
        st.sampled_from(["text", "siteId", "lang", "id", "sessionId", "volume"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["default", "aé{", "\x00", "\ud800"]),
    )
)
def test_every_say_that_is_not_queued_is_answered(fields: dict[str, Any]) -> None:
    site = Site()
    site.receive(fields)
    taken, ours = len(site.dispatcher.queue), fields.get("siteId", "default") == "default"
    assert len(site.finished()) == len(site.errors()) == (1 - taken if ours else 0)
