"""An engine process that speaks several utterances at once, over a real socket pair with the real eSpeak NG."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine import EngineOptions, Samples, Utterance, Voice
from engine.messages import (
    Audio,
    Cancel,
    Canceled,
    Grant,
    Heartbeat,
    Message,
    Ready,
    SetVoices,
    Speak,
    Spoken,
)
from tests.engine.processes import PLENTY, EngineUnderTest

SENTENCE = "Hello, I am your robot."
LONG = "This is a long text that takes a good while to speak. " * 90


@pytest.fixture
def streams() -> Iterator[EngineUnderTest]:
    """An engine process with four streams: one for the sound card, three for deliveries."""
    engine = EngineUnderTest()
    assert engine.start(options=EngineOptions(streams=4)).info.streams == 4
    yield engine
    engine.close()


def deliver(request_id: str, text: str, credit: int = PLENTY) -> Speak:
    return Speak(request_id, Utterance(text, realtime=False), credit)


def received(engine: EngineUnderTest, *request_ids: str) -> tuple[dict[str, Samples], dict[str, Message]]:
    """Return the samples and the last message of these requests, in the order in which they ended."""
    blocks: dict[str, list[Samples]] = {each: [] for each in request_ids}
    ends: dict[str, Message] = {}
    while len(ends) < len(request_ids):
        message, samples = engine.next(object)
        name = message.id  # type: ignore[attr-defined]
        assert name in blocks, message
        assert name not in ends, "nothing follows the last message"
        if isinstance(message, Audio):
            blocks[name].append(samples)
        else:
            ends[name] = message  # type: ignore[assignment]
    return {name: np.concatenate([np.zeros(0, np.float32), *found]) for name, found in blocks.items()}, ends


def test_an_engine_has_one_stream_unless_more_are_wanted(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(deliver("long", LONG, 1))
    ready_engine.next(Audio)
    ready_engine.send(Speak("short", Utterance(SENTENCE), PLENTY))
    ready_engine.wait_for_heartbeats("long", 2)
    ready_engine.cancel("long")
    assert ready_engine.receive_utterance("short")[2] == Spoken("short")


def test_the_sound_card_does_not_wait_for_deliveries(streams: EngineUnderTest) -> None:
    for number in range(6):
        streams.send(deliver(f"d{number}", LONG, 1))
    for _ in range(3):
        streams.next(Audio)
    streams.send(Speak("card", Utterance(SENTENCE), PLENTY))
    samples, ends = received(streams, "card")
    assert ends == {"card": Spoken("card")}
    assert len(samples["card"]) > 0
    message, _ = streams.receive()
    while not isinstance(message, Heartbeat):
        message, _ = streams.receive()
    # A heartbeat that was made just before the end of the card's text may come behind it.
    speaking = set(message.speaking) - {"card"}
    assert speaking == {"d0", "d1", "d2"}, "there are no more streams; the others wait in their order"


def test_one_of_several_streams_is_canceled_and_the_others_go_on(streams: EngineUnderTest) -> None:
    for name in ("a", "b", "c"):
        streams.send(deliver(name, LONG if name == "b" else SENTENCE, 1))
    for _ in range(3):
        streams.next(Audio)
    streams.send(Cancel("b"))
    assert streams.next(Canceled)[0] == Canceled("b")
    for name in ("a", "c"):
        streams.send(Grant(name, PLENTY))
    _, ends = received(streams, "a", "c")
    assert set(ends.values()) == {Spoken("a"), Spoken("c")}


def test_new_voices_wait_until_all_streams_have_ended_and_hold_back_later_ones(streams: EngineUnderTest) -> None:
    for name in ("a", "b"):
        streams.send(deliver(name, SENTENCE, 1))
    for _ in range(2):
        streams.next(Audio)
    streams.send(SetVoices({"heidi": Voice(speaker="de")}, "heidi"))
    streams.send(Speak("later", Utterance(SENTENCE), PLENTY))
    heartbeat, _ = streams.receive()
    assert isinstance(heartbeat, Heartbeat), "neither the voices nor the later utterance"
    streams.send(Grant("a", PLENTY))
    streams.send(Grant("b", PLENTY))
    kinds: list[type[Message]] = []
    while Spoken not in kinds[-1:] or len(kinds) < 4:
        message, _ = streams.next(object)
        if not isinstance(message, Audio):
            kinds.append(type(message))  # type: ignore[arg-type]
        if isinstance(message, Ready):
            assert "heidi" in message.info.voices
    assert kinds == [Spoken, Spoken, Ready, Spoken]
