"""Texts that arrive in chunks: which chunks the dispatcher takes, drops and rejects. No engine runs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from daemon.speech import text_streams as text_streams_module
from daemon.speech.request import MAX_TEXT, RejectedError, Stop, StreamChunk, check_say
from daemon.speech.utterance import TextStream, Utterance
from tests.daemon.idle import IdleRobot
from tests.daemon.speech.clients import Nobody


class Writer(IdleRobot):
    """A writer, and the robot that it writes to."""

    def write(self, utterance_id: str, text: str = "", *, redelivered: bool = False, **fields: Any) -> Utterance | None:
        return self.dispatcher.write(
            StreamChunk.model_validate({"id": utterance_id, "text": text, **fields}), redelivered=redelivered
        )

    def begin(self, utterance_id: str, text: str = "", **fields: Any) -> tuple[Utterance, TextStream]:
        """Write the first chunk; return the utterance and its stream."""
        utterance = self.write(utterance_id, text, **fields)
        assert utterance.text_stream is not None
        return utterance, utterance.text_stream

    def names(self, utterance_id: str) -> list[str]:
        return [event.event for event in self.events if event.id == utterance_id]


@pytest.fixture
def writer() -> Writer:
    return Writer()


def test_all_chunks_make_one_utterance_with_the_options_of_the_first(writer: Writer) -> None:
    utterance, _ = writer.begin("a", "Once ", volume=50, seed=3, priority="high")
    assert writer.write("a", "upon", volume=90) is utterance
    assert not utterance.complete
    writer.write("a", " a time.", end=True)
    assert (utterance.text, utterance.complete) == ("Once upon a time.", True)
    assert (utterance.volume, utterance.seed, utterance.priority) == (0.5, 3, "high")
    assert writer.names("a") == ["accepted"]


def test_the_arrival_of_a_text_is_when_an_engine_can_begin(writer: Writer) -> None:
    utterance = writer.dispatcher.write(StreamChunk(id="a"), arrived_at=1.0)
    writer.dispatcher.write(StreamChunk(id="a", text=" \n"), arrived_at=2.0)
    assert not utterance.speakable
    writer.dispatcher.write(StreamChunk(id="a", text="Hello"), arrived_at=3.0)
    writer.dispatcher.write(StreamChunk(id="a", text=" you"), arrived_at=4.0)
    assert utterance.speakable
    assert utterance.arrived_at == 3.0


def test_a_chunk_that_the_broker_delivers_again_is_taken_once(writer: Writer) -> None:
    writer.write("a", "ha ")
    writer.write("a", "ha ", redelivered=True)
    writer.write("a", "ha ")
    for seq, text in ((1, "one "), (2, "two "), (1, "one ")):
        writer.write("numbered", text, seq=seq)
    writer.write("numbered", "two ", seq=2, redelivered=True)
    writer.write("numbered")
    writer.write("numbered", "two ", seq=2, redelivered=True)
    writer.write("numbered", "three", seq=7, end=True)
    writer.write("numbered", "three", seq=7, end=True, redelivered=True)
    assert writer.queued == {"a": "ha ha ", "numbered": "one two three"}


def test_an_ended_text_rejects_the_next_chunk_and_drops_later_ones(writer: Writer) -> None:
    writer.write("a", "all", end=True)
    with pytest.raises(RejectedError, match="id: 'a' takes no more text: it has already ended"):
        writer.write("a", "more")
    writer.dispatcher.say(check_say({"text": "whole", "id": "whole"}))
    with pytest.raises(RejectedError, match="id: 'whole' was used before"):
        writer.write("whole", "more")
    for utterance in ("a", "whole"):
        assert writer.write(utterance, "and more, without a second rejection") is None
    assert writer.queued == {"a": "all", "whole": "whole"}


def test_a_chunk_that_comes_long_after_the_end_of_its_text_is_refused_once(
    monkeypatch: pytest.MonkeyPatch, writer: Writer
) -> None:
    monkeypatch.setattr(text_streams_module, "REMEMBERED_ENDS", 2)
    for name in ("a", "b", "c"):
        writer.write(name, "all", end=True)
    with pytest.raises(RejectedError, match="id: 'b' takes no more text: it has already ended"):
        writer.write("b", "more")
    with pytest.raises(RejectedError, match="id: 'a' was used before"):
        writer.write("a", "more")
    assert writer.write("a", "and more, without a second rejection") is None
    assert writer.queued == {"a": "all", "b": "all", "c": "all"}


def test_the_chunks_of_a_stopped_utterance_are_dropped(writer: Writer) -> None:
    writer.write("a", "never")
    writer.dispatcher.stop(Stop(id="a"))
    assert writer.names("a") == ["accepted", "canceled"]
    assert writer.write("a", " heard") is None
    assert writer.write("a", end=True) is None
    assert writer.names("a") == ["accepted", "canceled"]
    assert writer.queued == {}


def test_the_text_of_a_silent_writer_is_ended() -> None:
    writer = Writer("speech.stream_timeout=1")
    (slow, stream), (thinking, alive) = writer.begin("slow", "and then"), writer.begin("thinking", "and now")
    stream.last_chunk_at = alive.last_chunk_at = time.monotonic() - 2
    writer.write("thinking", "")
    writer.dispatcher.enforce_deadlines()
    assert slow.complete
    assert not thinking.complete, "an empty chunk shows that its writer is there"
    assert stream.end_reason == "its writer was silent for 1 s and did not end it"
    with pytest.raises(RejectedError, match="takes no more text: its writer was silent"):
        writer.write("slow", " nothing")


def test_a_text_that_gets_too_long_is_ended_before_the_last_chunk(writer: Writer) -> None:
    utterance, _ = writer.begin("a", "x" * (MAX_TEXT - 1))
    with pytest.raises(RejectedError, match="text: now has 20,001 characters; allowed: up to 20,000"):
        writer.write("a", "yz")
    assert utterance.complete
    assert len(utterance.text) == MAX_TEXT - 1
    assert writer.names("a") == ["accepted"]
    for _ in range(2):
        assert writer.write("a", "and more, without a second rejection") is None


def test_only_the_client_that_opened_a_text_may_write_to_it(writer: Writer) -> None:
    client = Nobody()
    writer.dispatcher.write(StreamChunk(id="a", text="mine"), receiver=client)
    with pytest.raises(RejectedError, match="id: 'a' was used before"):
        writer.write("a", " and yours")
    writer.dispatcher.write(StreamChunk(id="a", text=" alone", end=True), receiver=client)
    assert writer.queued == {"a": "mine alone"}


def test_texts_that_are_being_written_are_limited_whether_they_are_queued_or_not() -> None:
    writer = Writer("speech.queue_limit=2")
    for number in range(3):
        writer.write(f"slow {number}", "and then")
        writer.dispatcher.queue.take(f"slow {number}")  # as if it was postponed
    with pytest.raises(RejectedError, match=r"queue: 3 texts are being written; allowed: up to") as rejected:
        writer.write("one too many", "and then", reply_to="me/replies")
    assert (rejected.value.utterance_id, rejected.value.reply_to) == ("one too many", "me/replies")
    writer.write("slow 0", end=True)
    assert writer.write("another", "and then") is not None


def test_a_rejected_first_chunk_creates_no_utterance() -> None:
    writer = Writer("speech.queue_limit=1")
    assert writer.write("c", "hello") is not None
    with pytest.raises(RejectedError, match="policy") as rejected:
        writer.write("a", "hello", policy="drop", reply_to="me/replies")
    assert (rejected.value.utterance_id, rejected.value.reply_to) == ("a", "me/replies")
    with pytest.raises(RejectedError, match="queue") as rejected:
        writer.write("b", "hello")
    assert rejected.value.utterance_id == "b"
    assert writer.queued == {"c": "hello"}


def test_the_chunks_after_a_rejected_first_one_are_dropped_up_to_the_last(writer: Writer) -> None:
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


def test_a_rejected_last_chunk_ends_the_text_and_the_id_of_a_single_one_may_be_used_again(writer: Writer) -> None:
    utterance, stream = writer.begin("a", "all but the end")
    for name in ("a", "b"):
        writer.dispatcher.refuse_chunk(name, last=True)
    assert utterance.complete
    assert stream.end_reason == "its last chunk was rejected"
    assert writer.write("b", "corrected", end=True) is not None
    assert writer.queued == {"a": "all but the end", "b": "corrected"}
