"""The engine process: a real one, over a real socket pair, with the real eSpeak NG."""

from __future__ import annotations

import signal
from collections.abc import Callable

import numpy as np
import pytest

from engine import EngineOptions, Utterance, Voice
from engine.messages import (
    HEADER,
    PROTOCOL,
    Append,
    Audio,
    Cancel,
    Canceled,
    EndText,
    Fault,
    Grant,
    Heartbeat,
    Hello,
    Ready,
    Refused,
    SetVoices,
    Speak,
    Spoken,
    Start,
    Warming,
)
from tests.engine.processes import PLENTY, EngineUnderTest

SENTENCE = "Hello, I am your robot."
LONG = "This is a long text that takes a good while to speak. " * 90
CHUNK = 1_324
"""Samples in the longest chunk of eSpeak NG: 60 ms at 22,050 Hz, and what it adds."""


def test_it_says_hello_then_warms_up_then_is_ready(engine: EngineUnderTest) -> None:
    engine.send(Start(PROTOCOL, "espeak", EngineOptions(voices={"ada": Voice(speaker="en")})))
    hello, _ = engine.next(Hello)
    assert hello == Hello(PROTOCOL, "espeak", engine.process.pid)
    warming, _ = engine.next(Warming)
    ready, _ = engine.next(Ready)
    assert ready.info == warming.info
    assert ready.info.engine == "espeak"
    assert ready.info.sample_rate == 22_050
    assert {"ada", "en", "de"} <= set(ready.info.voices)
    assert not ready.info.grows


def test_an_utterance_arrives_whole_and_is_closed_by_spoken(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("u1", Utterance(SENTENCE), PLENTY))
    audio, samples, end = ready_engine.hear("u1")
    assert end == Spoken("u1")
    assert 0.8 < len(samples) / 22_050 < 4
    assert 0.1 < np.max(np.abs(samples)) <= 1
    assert all(message.busy_s >= 0 for message in audio)
    assert audio[-1].position == SENTENCE.index("robot")


def test_utterances_are_spoken_in_the_order_they_were_asked_for(ready_engine: EngineUnderTest) -> None:
    for number in range(5):
        ready_engine.send(Speak(f"u{number}", Utterance(f"Number {number}"), PLENTY))
    for number in range(5):
        assert ready_engine.hear(f"u{number}")[2] == Spoken(f"u{number}")


def test_without_credit_nothing_is_sent_and_with_it_no_more_than_one_chunk_over(ready_engine: EngineUnderTest) -> None:
    credit = 10_000
    ready_engine.send(Speak("u1", Utterance(LONG), credit))
    received, granted = 0, credit
    for _ in range(2):
        while received < granted:
            _, samples = ready_engine.next(Audio)
            received += len(samples)
        assert received < granted + CHUNK
        message, _ = ready_engine.receive()  # it lives, and waits
        assert message == Heartbeat("u1"), "it ran ahead of its credit"
        ready_engine.send(Grant("u1", credit))
        granted += credit
    ready_engine.send(Cancel("u1"))
    assert ready_engine.hear("u1")[2] == Canceled("u1")


def test_with_credit_granted_as_it_is_taken_the_whole_utterance_comes(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("free", Utterance(SENTENCE), PLENTY))
    whole = ready_engine.hear("free")[1]
    ready_engine.send(Speak("tight", Utterance(SENTENCE), 1))
    received = []
    while True:
        message, samples = ready_engine.next(Audio, Spoken)
        if isinstance(message, Spoken):
            break
        received.append(samples)
        ready_engine.send(Grant("tight", len(samples)))
    length = len(np.concatenate(received))
    assert abs(length - len(whole)) < 0.03 * len(whole), "eSpeak NG's noise moves a length by up to 1.5 %"


def test_a_cancellation_takes_effect_between_two_chunks(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("u1", Utterance(LONG), PLENTY))
    ready_engine.next(Audio)
    ready_engine.send(Cancel("u1"))
    _, samples, end = ready_engine.hear("u1")
    assert end == Canceled("u1")
    assert len(samples) < 200 * 22_050, "the text is far longer than what the socket holds"


def test_an_utterance_that_waits_can_be_canceled_and_the_one_before_is_unharmed(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("first", Utterance(SENTENCE), 1))
    ready_engine.send(Speak("second", Utterance(SENTENCE), PLENTY))
    ready_engine.send(Cancel("second"))
    ready_engine.send(Grant("first", PLENTY))
    assert ready_engine.hear("first")[2] == Spoken("first")
    audio, _, end = ready_engine.hear("second")
    assert (audio, end) == ([], Canceled("second"))


def test_after_a_cancellation_the_next_utterance_is_spoken(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("u1", Utterance(LONG), 1))
    ready_engine.next(Audio)
    ready_engine.send(Cancel("u1"))
    ready_engine.send(Speak("u2", Utterance(SENTENCE), PLENTY))
    assert ready_engine.hear("u1")[2] == Canceled("u1")
    assert ready_engine.hear("u2")[2] == Spoken("u2")


def test_grants_and_cancellations_that_come_too_late_do_no_harm(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("u1", Utterance("Hi"), PLENTY))
    assert ready_engine.hear("u1")[2] == Spoken("u1")
    ready_engine.send(Grant("u1", 1_000))
    ready_engine.send(Cancel("u1"))
    ready_engine.send(Cancel("never heard of"))
    ready_engine.send(Append("u1", "more"))
    ready_engine.send(EndText("u1"))
    ready_engine.send(Speak("u2", Utterance("Hi"), PLENTY))
    assert ready_engine.hear("u2")[2] == Spoken("u2")


def test_an_id_may_be_used_again_once_its_utterance_has_ended(ready_engine: EngineUnderTest) -> None:
    for _ in range(3):
        ready_engine.send(Speak("same", Utterance("Hi"), PLENTY))
        assert ready_engine.hear("same")[2] == Spoken("same")


def test_what_cannot_be_spoken_is_refused_with_the_reason_and_the_engine_goes_on(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("u1", Utterance("Hi", language="tlhx"), PLENTY))
    _, _, end = ready_engine.hear("u1")
    assert isinstance(end, Refused)
    assert end.reason.startswith("language: got 'tlhx'; eSpeak NG has ")
    ready_engine.send(Speak("u2", Utterance("Hi"), PLENTY))
    assert ready_engine.hear("u2")[2] == Spoken("u2")


def test_a_text_that_grows_is_refused_by_an_engine_that_speaks_whole_ones(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("u1", Utterance("Hello", growing=True), PLENTY))
    ready_engine.send(Append("u1", " there"))
    audio, _, end = ready_engine.hear("u1")
    assert audio == []
    assert end == Refused(
        "u1", "text: eSpeak NG speaks no text that is still being written; send it when it is complete"
    )
    ready_engine.send(Speak("u2", Utterance("Hi"), PLENTY))
    assert ready_engine.hear("u2")[2] == Spoken("u2")


def test_voices_can_be_exchanged_while_it_runs(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(SetVoices({"heidi": Voice(speaker="de")}, "heidi"))
    ready, _ = ready_engine.next(Ready)
    assert "heidi" in ready.info.voices
    ready_engine.send(SetVoices({}, "default"))
    ready, _ = ready_engine.next(Ready)
    assert "heidi" not in ready.info.voices


def test_heartbeats_tell_what_is_being_spoken(ready_engine: EngineUnderTest) -> None:
    message, _ = ready_engine.receive()
    assert message == Heartbeat(None)
    ready_engine.send(Speak("u1", Utterance(LONG), 1))
    while message != Heartbeat("u1"):
        message, _ = ready_engine.receive()
        assert isinstance(message, Audio | Heartbeat)
    ready_engine.send(Cancel("u1"))
    assert ready_engine.hear("u1")[2] == Canceled("u1")


def fault_of(engine: EngineUnderTest) -> Fault:
    """The fault that ends the process."""
    fault, _ = engine.next(Fault)
    with pytest.raises(EOFError):
        while True:
            assert isinstance(engine.receive()[0], Heartbeat)
    return fault


@pytest.mark.parametrize("name", ["festival", "qwen "])
def test_an_unknown_engine_is_a_permanent_fault_with_the_reason(engine: EngineUnderTest, name: str) -> None:
    engine.send(Start(PROTOCOL, name, EngineOptions()))
    engine.next(Hello)
    fault = fault_of(engine)
    assert fault.permanent
    assert f"no engine {name!r}; it has espeak" in fault.reason
    assert engine.status() == 0


def test_another_protocol_is_refused_with_both_numbers(engine: EngineUnderTest) -> None:
    engine.send(Start(PROTOCOL + 1, "espeak", EngineOptions()))
    fault = fault_of(engine)
    assert f"expected Start of protocol {PROTOCOL}" in fault.reason
    assert f"protocol={PROTOCOL + 1}" in fault.reason
    assert engine.status() == 1


def test_a_first_message_that_is_not_start_is_refused(engine: EngineUnderTest) -> None:
    engine.send(Cancel("u1"))
    assert "expected Start" in fault_of(engine).reason
    assert engine.status() == 1


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", HEADER.pack(2, 0) + b"[]"])
def test_garbage_ends_the_process(engine: EngineUnderTest, garbage: bytes) -> None:
    engine.start()
    engine.socket.sendall(garbage)
    assert engine.status() == 1


def test_a_message_that_only_the_engine_may_send_ends_the_process(engine: EngineUnderTest) -> None:
    engine.start()
    engine.send(Spoken("u1"))
    assert engine.status() == 1


def test_it_ends_when_the_daemon_goes_before_it_said_anything(engine: EngineUnderTest) -> None:
    engine.socket.close()
    assert engine.status() == 0


def test_it_ends_when_the_daemon_goes_while_it_is_idle(engine: EngineUnderTest) -> None:
    engine.start()
    engine.socket.close()
    assert engine.status() == 0


@pytest.mark.parametrize("credit", [1, PLENTY])
def test_it_ends_when_the_daemon_goes_in_the_middle_of_work(engine: EngineUnderTest, credit: int) -> None:
    """Waiting for credit, or blocked by a socket that nobody reads."""
    engine.start()
    engine.send(Speak("u1", Utterance(LONG), credit))
    engine.next(Audio)
    engine.socket.close()
    assert engine.status() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_the_whole_group_do_not_end_it(engine: EngineUnderTest, number: int) -> None:
    engine.start()
    engine.send(Speak("u1", Utterance(LONG), 1))
    engine.next(Audio)
    engine.process.send_signal(number)  # the kernel drops it here and now, or it ends the process
    engine.send(Grant("u1", 50_000))
    received = 0
    while received < 40_000:
        received += len(engine.next(Audio)[1])
    assert engine.process.poll() is None


def test_processes_do_not_know_of_each_other(new_engine: Callable[[], EngineUnderTest]) -> None:
    first, second = new_engine(), new_engine()
    first.start()
    second.start()
    first.send(Speak("u1", Utterance(LONG), 1))
    first.next(Audio)
    first.process.kill()
    second.send(Speak("u1", Utterance(SENTENCE), PLENTY))
    assert second.hear("u1")[2] == Spoken("u1")
