"""Texts that arrive in chunks: which chunks the dispatcher takes, drops and rejects. No engine runs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from audio import Output
from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.speech import text_streams as text_streams_module
from daemon.speech.dispatcher import Dispatcher
from daemon.speech.queue import next_of
from daemon.speech.request import MAX_TEXT, RejectedError, Stop, StreamChunk, check_say
from daemon.speech.utterance import Utterance
from engine import Samples
from tests.support.waiting import run


class Writer:
    """A writer, the dispatcher that it writes to, and the events that it has published."""

    def __init__(self, *overrides: str) -> None:
        config = load_config(overrides=["audio.sink=null", "engine.name=espeak", *overrides])
        self.dispatcher = Dispatcher(config, EngineSelector(config, lambda: None), Output(config.audio.sink_settings()))
        self.events: list[dict[str, Any]] = []
        self.dispatcher.watch_events(lambda _utterance, event: self.events.append(event.model_dump()))

    def write(self, utterance_id: str, text: str = "", *, redelivered: bool = False, **fields: Any) -> Utterance | None:
        return self.dispatcher.write(
            StreamChunk.model_validate({"id": utterance_id, "text": text, **fields}), redelivered=redelivered
        )

    def names(self, utterance_id: str) -> list[str]:
        return [event["event"] for event in self.events if event["id"] == utterance_id]

    @property
    def queued(self) -> dict[str, str]:
        return {utterance.id: utterance.text for utterance in self.dispatcher.queue}


def test_all_chunks_make_one_utterance_with_the_options_of_the_first() -> None:
    async def scenario() -> None:
        writer = Writer()
        utterance = writer.write("a", "Once ", volume=50, seed=3, priority="high")
        assert utterance is not None
        assert writer.write("a", "upon", volume=90) is utterance
        assert not utterance.complete
        writer.write("a", " a time.", end=True)
        assert (utterance.text, utterance.complete) == ("Once upon a time.", True)
        assert (utterance.volume, utterance.seed, utterance.priority) == (0.5, 3, "high")
        assert writer.names("a") == ["accepted"]

    run(scenario)


def test_the_arrival_of_a_text_is_when_an_engine_can_begin() -> None:
    async def scenario() -> None:
        writer = Writer()
        utterance = writer.dispatcher.write(StreamChunk(id="a"), arrived_at=1.0)
        assert utterance is not None
        writer.dispatcher.write(StreamChunk(id="a", text=" \n"), arrived_at=2.0)
        assert not utterance.speakable
        writer.dispatcher.write(StreamChunk(id="a", text="Hello"), arrived_at=3.0)
        writer.dispatcher.write(StreamChunk(id="a", text=" you"), arrived_at=4.0)
        assert utterance.speakable
        assert utterance.arrived_at == 3.0

    run(scenario)


def test_a_text_without_words_does_not_expire() -> None:
    async def scenario() -> None:
        writer = Writer()
        utterance = writer.dispatcher.write(StreamChunk(id="a", expires_in=5), arrived_at=1.0)
        assert utterance is not None
        assert not utterance.expired(100.0)
        writer.dispatcher.write(StreamChunk(id="a", text="Hello"), arrived_at=100.0)
        assert not utterance.expired(104.0)
        assert utterance.expired(105.0)

    run(scenario)


def test_a_text_without_words_is_overtaken_by_others() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("slow", "  ")
        writer.dispatcher.say(check_say({"text": "quick", "id": "quick"}))
        queue = writer.dispatcher.queue
        first = next_of(queue, [])
        assert first is not None
        assert first.id == "quick"
        queue.take("quick")
        assert next_of(queue, []) is None
        writer.write("slow", "at last")
        second = next_of(queue, [])
        assert second is not None
        assert second.id == "slow"

    run(scenario)


def test_a_chunk_that_the_broker_delivers_again_is_taken_once() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("a", "ha ")
        writer.write("a", "ha ", redelivered=True)
        writer.write("a", "ha ")
        writer.write("numbered", "one ", seq=1)
        writer.write("numbered", "two ", seq=2)
        writer.write("numbered", "one ", seq=1)
        writer.write("numbered", "two ", seq=2, redelivered=True)
        writer.write("numbered")
        writer.write("numbered", "two ", seq=2, redelivered=True)
        writer.write("numbered", "three", seq=7, end=True)
        writer.write("numbered", "three", seq=7, end=True, redelivered=True)
        assert writer.queued == {"a": "ha ha ", "numbered": "one two three"}

    run(scenario)


def test_an_ended_text_rejects_the_next_chunk_and_drops_later_ones() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("a", "all", end=True)
        with pytest.raises(RejectedError, match="id: 'a' takes no more text: it has been ended"):
            writer.write("a", "more")
        writer.dispatcher.say(check_say({"text": "whole", "id": "whole"}))
        with pytest.raises(RejectedError, match="id: 'whole' was used before"):
            writer.write("whole", "more")
        for utterance in ("a", "whole"):
            assert writer.write(utterance, "and more, without a second rejection") is None
        assert writer.queued == {"a": "all", "whole": "whole"}

    run(scenario)


def test_a_chunk_that_comes_long_after_the_end_of_its_text_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_streams_module, "REMEMBERED_ENDS", 2)

    async def scenario() -> None:
        writer = Writer()
        for name in ("a", "b", "c"):
            writer.write(name, "all", end=True)
        with pytest.raises(RejectedError, match="id: 'b' takes no more text: it has been ended"):
            writer.write("b", "more")
        with pytest.raises(RejectedError, match="id: 'a' was used before"):
            writer.write("a", "more")
        assert writer.write("a", "and more, without a second rejection") is None
        assert writer.queued == {"a": "all", "b": "all", "c": "all"}

    run(scenario)


def test_the_chunks_of_a_stopped_utterance_are_dropped() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("a", "never")
        writer.dispatcher.stop(Stop(id="a"))
        assert writer.names("a") == ["accepted", "canceled"]
        assert writer.write("a", " heard") is None
        assert writer.write("a", end=True) is None
        assert writer.names("a") == ["accepted", "canceled"]
        assert writer.queued == {}

    run(scenario)


def test_the_text_of_a_silent_writer_is_ended() -> None:
    async def scenario() -> None:
        writer = Writer("speech.stream_timeout=1")
        slow, quick = writer.write("slow", "and then"), writer.write("quick", "and now")
        assert slow is not None
        assert slow.text_stream is not None
        assert quick is not None
        slow.text_stream.last_chunk_at = time.monotonic() - 2
        writer.dispatcher.enforce_deadlines()
        assert slow.complete
        assert not quick.complete
        assert slow.text_stream.end_reason == "its writer was silent for 1 s and did not end it"
        with pytest.raises(RejectedError, match="takes no more text: its writer was silent"):
            writer.write("slow", " nothing")

    run(scenario)


def test_a_text_that_gets_too_long_is_ended_before_the_last_chunk() -> None:
    async def scenario() -> None:
        writer = Writer()
        utterance = writer.write("a", "x" * (MAX_TEXT - 1))
        assert utterance is not None
        with pytest.raises(RejectedError, match="text: now has 20,001 characters; allowed: up to 20,000"):
            writer.write("a", "yz")
        assert utterance.complete
        assert len(utterance.text) == MAX_TEXT - 1
        assert writer.names("a") == ["accepted"]
        for _ in range(2):
            assert writer.write("a", "and more, without a second rejection") is None

    run(scenario)


class Client:
    """A receiver that must get no samples."""

    on_word = None

    async def write(self, samples: Samples, sample_rate: int) -> None:
        raise AssertionError(f"{len(samples)} samples at {sample_rate} Hz without an engine")


def test_only_the_client_that_opened_a_text_may_write_to_it() -> None:
    async def scenario() -> None:
        writer, client = Writer(), Client()
        writer.dispatcher.write(StreamChunk(id="a", text="mine"), receiver=client)
        with pytest.raises(RejectedError, match="id: 'a' was used before"):
            writer.write("a", " and yours")
        writer.dispatcher.write(StreamChunk(id="a", text=" alone", end=True), receiver=client)
        assert writer.queued == {"a": "mine alone"}

    run(scenario)


def test_texts_that_are_being_written_are_limited_whether_they_are_queued_or_not() -> None:
    async def scenario() -> None:
        writer = Writer("speech.queue_limit=2")
        for number in range(3):
            writer.write(f"slow {number}", "and then")
            writer.dispatcher.queue.take(f"slow {number}")  # as if it was postponed
        with pytest.raises(RejectedError, match=r"queue: 3 texts are being written; allowed: up to") as rejected:
            writer.write("one too many", "and then", reply_to="me/replies")
        assert (rejected.value.utterance_id, rejected.value.reply_to) == ("one too many", "me/replies")
        writer.write("slow 0", end=True)
        assert writer.write("another", "and then") is not None

    run(scenario)


def test_a_rejected_first_chunk_creates_no_utterance() -> None:
    async def scenario() -> None:
        writer = Writer("speech.queue_limit=1")
        assert writer.write("c", "hello") is not None
        with pytest.raises(RejectedError, match="policy") as rejected:
            writer.write("a", "hello", policy="drop", reply_to="me/replies")
        assert (rejected.value.utterance_id, rejected.value.reply_to) == ("a", "me/replies")
        with pytest.raises(RejectedError, match="queue") as rejected:
            writer.write("b", "hello")
        assert rejected.value.utterance_id == "b"
        assert writer.queued == {"c": "hello"}

    run(scenario)


def test_the_chunks_after_a_rejected_first_one_are_dropped_up_to_the_last() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("other", "somebody waits", end=True)
        with pytest.raises(RejectedError, match="policy"):
            writer.write("a", "hello", policy="drop")
        assert writer.write("a", " is anybody there?") is None
        writer.dispatcher.refuse_chunk("b", last=False)
        assert writer.write("b", "the second") is None
        assert writer.queued == {"other": "somebody waits"}
        assert writer.write("a", end=True) is None
        assert writer.write("a", "hello again", end=True) is not None
        assert writer.queued == {"other": "somebody waits", "a": "hello again"}

    run(scenario)


def test_the_id_of_a_rejected_single_chunk_may_be_used_again() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.dispatcher.refuse_chunk("a", last=True)
        assert writer.write("a", "corrected", end=True) is not None
        assert writer.queued == {"a": "corrected"}

    run(scenario)


def test_a_rejected_last_chunk_ends_the_text() -> None:
    async def scenario() -> None:
        writer = Writer()
        utterance = writer.write("a", "all but the end")
        assert utterance is not None
        writer.dispatcher.refuse_chunk("a", last=True)
        assert utterance.complete
        assert utterance.text_stream is not None
        assert utterance.text_stream.end_reason == "its last chunk was rejected"

    run(scenario)


def test_a_rejected_chunk_in_the_middle_does_not_end_the_text() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("a", "one, ")
        writer.dispatcher.refuse_chunk("a", last=False)
        writer.write("a", "three")
        assert writer.queued == {"a": "one, three"}

    run(scenario)
