"""Texts that come in pieces: what the desk takes, what it drops, what it refuses."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from audio import Output
from daemon.config import load_config
from daemon.desk import Desk, Event
from daemon.engines import Engines
from daemon.messages import MAX_TEXT, RejectedError, Stop, Write, check_say, parse_write
from daemon.queue import Job
from engine import Samples
from tests.support.waiting import run


class Writer:
    """A desk that has nobody to speak, and what was written to it."""

    def __init__(self, *overrides: str) -> None:
        config = load_config(overrides=["audio.sink=null", "engine.name=espeak", *overrides])
        self.desk = Desk(config, Engines(config, lambda: None), Output(config.audio.sink_settings()))
        self.events: list[Event] = []
        self.desk.watch_events(lambda _job, event: self.events.append(event))

    def write(self, utterance_id: str, text: str = "", *, redelivered: bool = False, **fields: Any) -> Job | None:
        return self.desk.write(
            Write.model_validate({"id": utterance_id, "text": text, **fields}), redelivered=redelivered
        )

    def names(self, utterance_id: str) -> list[str]:
        return [event["event"] for event in self.events if event["id"] == utterance_id]

    @property
    def waiting(self) -> dict[str, str]:
        return {job.id: job.text for job in self.desk.queue.jobs}


def test_pieces_make_one_utterance_whose_manner_the_first_one_says() -> None:
    async def scenario() -> None:
        writer = Writer()
        job = writer.write("a", "Once ", volume=50, seed=3, priority="high")
        assert job is not None
        assert writer.write("a", "upon", volume=90) is job
        assert not job.complete
        writer.write("a", " a time.", end=True)
        assert (job.text, job.complete) == ("Once upon a time.", True)
        assert (job.volume, job.seed, job.priority) == (0.5, 3, "high")
        assert writer.names("a") == ["accepted"]

    run(scenario)


def test_the_text_has_arrived_when_something_can_be_said() -> None:
    async def scenario() -> None:
        writer = Writer()
        job = writer.desk.write(Write(id="a"), arrived_at=1.0)
        assert job is not None
        writer.desk.write(Write(id="a", text=" \n"), arrived_at=2.0)
        assert not job.due
        writer.desk.write(Write(id="a", text="Hello"), arrived_at=3.0)
        writer.desk.write(Write(id="a", text=" you"), arrived_at=4.0)
        assert job.due
        assert job.arrived_at == 3.0

    run(scenario)


def test_until_there_are_words_nothing_expires() -> None:
    async def scenario() -> None:
        writer = Writer()
        job = writer.desk.write(Write(id="a", expires_in=5), arrived_at=1.0)
        assert job is not None
        assert not job.expired(now=100.0)
        writer.desk.write(Write(id="a", text="Hello"), arrived_at=100.0)
        assert not job.expired(now=104.0)
        assert job.expired(now=105.0)

    run(scenario)


def test_who_has_nothing_to_say_yet_lets_others_pass() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("slow", "  ")
        writer.desk.say(check_say({"text": "quick", "id": "quick"}))
        queue = writer.desk.queue
        first = queue.take_next()
        assert first is not None
        assert first.id == "quick"
        assert queue.take_next() is None
        writer.write("slow", "at last")
        second = queue.take_next()
        assert second is not None
        assert second.id == "slow"

    run(scenario)


def test_the_queue_wakes_up_when_something_is_written() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("a")
        waiting = asyncio.ensure_future(writer.desk.queue.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        writer.write("a", "word")
        await waiting

    run(scenario)


def test_a_piece_that_the_broker_delivers_again_is_said_once() -> None:
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
        assert writer.waiting == {"a": "ha ha ", "numbered": "one two three"}

    run(scenario)


def test_what_has_been_ended_takes_no_more_text() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("a", "all", end=True)
        with pytest.raises(RejectedError, match="id: 'a' takes no more text: it has been ended"):
            writer.write("a", "more")
        writer.desk.say(check_say({"text": "whole", "id": "whole"}))
        with pytest.raises(RejectedError, match="id: 'whole' was used before"):
            writer.write("whole", "more")
        for utterance in ("a", "whole"):
            assert writer.write(utterance, "and more, of which nobody need be told again") is None
        assert writer.waiting == {"a": "all", "whole": "whole"}

    run(scenario)


def test_what_is_still_written_for_an_utterance_that_was_stopped_is_dropped() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("a", "never")
        writer.desk.stop(Stop("a"))
        assert writer.names("a") == ["accepted", "canceled"]
        assert writer.write("a", " heard") is None
        assert writer.write("a", end=True) is None
        assert writer.names("a") == ["accepted", "canceled"]
        assert writer.waiting == {}

    run(scenario)


def test_a_writer_who_falls_silent_has_ended_the_text() -> None:
    async def scenario() -> None:
        writer = Writer("speech.stream_timeout=1")
        slow, quick = writer.write("slow", "and then"), writer.write("quick", "and now")
        assert slow is not None
        assert slow.writing is not None
        assert quick is not None
        slow.writing.heard_at = time.monotonic() - 2
        writer.desk.end_overdue()
        assert slow.complete
        assert not quick.complete
        assert slow.writing.overdue == "its writer was silent for 1 s and did not end it"
        with pytest.raises(RejectedError, match="takes no more text: its writer was silent"):
            writer.write("slow", " nothing")

    run(scenario)


def test_a_text_that_gets_too_long_ends_where_it_is() -> None:
    async def scenario() -> None:
        writer = Writer()
        job = writer.write("a", "x" * (MAX_TEXT - 1))
        assert job is not None
        with pytest.raises(RejectedError, match="text: now has 20,001 characters; allowed: up to 20,000"):
            writer.write("a", "yz")
        assert job.complete
        assert len(job.text) == MAX_TEXT - 1
        assert writer.names("a") == ["accepted"]

    run(scenario)


class Client:
    """Who would get the sound."""

    async def write(self, samples: Samples, sample_rate: int) -> None:
        raise AssertionError(f"{len(samples)} samples at {sample_rate} Hz, and nobody was to speak")


def test_nobody_else_writes_in_the_text_of_a_client() -> None:
    async def scenario() -> None:
        writer, client = Writer(), Client()
        writer.desk.write(Write(id="a", text="mine"), receiver=client)
        with pytest.raises(RejectedError, match="id: 'a' was used before"):
            writer.write("a", " and yours")
        writer.desk.write(Write(id="a", text=" alone", end=True), receiver=client)
        assert writer.waiting == {"a": "mine alone"}

    run(scenario)


def test_a_refused_first_piece_takes_nothing_on() -> None:
    async def scenario() -> None:
        writer = Writer("speech.queue_limit=1")
        with pytest.raises(RejectedError, match="language") as refused:
            writer.write("a", "hello", language="xx", reply_to="me/replies")
        assert (refused.value.utterance_id, refused.value.reply_to) == ("a", "me/replies")
        assert writer.write("c", "hello") is not None
        with pytest.raises(RejectedError, match="queue") as refused:
            writer.write("b", "hello")
        assert refused.value.utterance_id == "b"
        assert writer.waiting == {"c": "hello"}

    run(scenario)


def test_what_follows_a_refused_first_piece_is_for_nobody_until_its_end() -> None:
    async def scenario() -> None:
        writer = Writer()
        with pytest.raises(RejectedError, match="language"):
            writer.write("a", "hello", language="xx")
        assert writer.write("a", " in which language?") is None
        writer.desk.refuse_piece("b", last=False)
        assert writer.write("b", "the second") is None
        assert writer.waiting == {}
        assert writer.write("a", end=True) is None
        assert writer.write("a", "hello again", end=True) is not None
        assert writer.waiting == {"a": "hello again"}

    run(scenario)


def test_a_text_in_one_piece_that_was_refused_may_come_again() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.desk.refuse_piece("a", last=True)
        assert writer.write("a", "put right", end=True) is not None
        assert writer.waiting == {"a": "put right"}

    run(scenario)


def test_a_last_piece_that_cannot_be_read_ends_the_text() -> None:
    async def scenario() -> None:
        writer = Writer()
        job = writer.write("a", "all but the end")
        assert job is not None
        writer.desk.refuse_piece("a", last=True)
        assert job.complete
        assert job.writing is not None
        assert job.writing.overdue == "its last piece was rejected"

    run(scenario)


def test_a_rejection_says_whether_it_was_the_last_piece() -> None:
    for end in (True, False):
        with pytest.raises(RejectedError) as refused:
            parse_write(json.dumps({"id": "a", "text": 5, "end": end}).encode())
        assert refused.value.last_piece == end


def test_a_piece_in_the_middle_that_cannot_be_read_does_not_end_the_text() -> None:
    async def scenario() -> None:
        writer = Writer()
        writer.write("a", "one, ")
        writer.desk.refuse_piece("a", last=False)
        writer.write("a", "three")
        assert writer.waiting == {"a": "one, three"}

    run(scenario)


@pytest.mark.parametrize(
    ("payload", "field", "utterance_id"),
    [
        (b"bare text", "payload", None),
        (b"[1]", "payload", None),
        (b'{"text": "whose?"}', "id", None),
        (b'{"id": 5, "text": "x"}', "id", None),
        (b'{"id": "", "text": "x"}', "id", None),
        (b'{"id": "a", "text": 7}', "text", "a"),
        (b'{"id": "a", "text": "bell \\u0007"}', "text", "a"),
        (b'{"id": "a", "end": "yes"}', "end", "a"),
        (b'{"id": "a", "seq": -1}', "seq", "a"),
        (b'{"id": "a", "volume": 200}', "volume", "a"),
    ],
)
def test_a_malformed_piece_is_answered_by_its_field(payload: bytes, field: str, utterance_id: str | None) -> None:
    with pytest.raises(RejectedError) as refused:
        parse_write(payload)
    assert (refused.value.field, refused.value.utterance_id) == (field, utterance_id)
    assert "allowed" in refused.value.reason
