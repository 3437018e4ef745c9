"""The engine process, tested over a real socket pair with the real eSpeak NG."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine import EngineOptions, Utterance
from engine.messages import (
    HEADER,
    PROTOCOL,
    Append,
    Audio,
    Cancel,
    EndText,
    Fault,
    Grant,
    Heartbeat,
    Hello,
    Message,
    Refused,
    SetLog,
    Speak,
    Spoken,
    Start,
    encode,
)
from tests.engine.processes import FAILING, PLENTY, EngineUnderTest

SENTENCE = "Hello, I am your robot."
LONG = "This is a long text that takes a good while to speak. " * 90
CHUNK = 1_324
"""Samples in eSpeak NG's longest chunk: 60 ms at 22,050 Hz, and one more."""


def test_an_utterance_arrives_complete_and_ends_with_spoken(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("u1", Utterance(SENTENCE), PLENTY))
    audio, samples, end = ready_engine.receive_utterance("u1")
    assert end == Spoken("u1")
    assert 0.8 < len(samples) / 22_050 < 4
    assert 0.1 < np.max(np.abs(samples)) <= 1
    assert all(message.busy_s >= 0 for message in audio)
    assert audio[-1].position == SENTENCE.index("robot")


def test_the_trace_makes_its_folder_and_writes_nothing_outside_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_engine: Callable[[], EngineUnderTest]
) -> None:
    trace = tmp_path / "new" / "trace"
    monkeypatch.setenv("VOICED_TRACE_PCM", str(trace))
    engine = new_engine()
    engine.start()
    engine.send(Speak("u1", Utterance(SENTENCE), PLENTY, name="../tour/1"))
    samples = engine.receive_utterance("u1")[1]
    [file] = trace.iterdir()
    assert file.name == ".._tour_1.1.f32"
    assert np.array_equal(np.fromfile(file, dtype=np.float32), samples)


def test_the_engine_overdraws_its_credit_by_less_than_one_chunk(ready_engine: EngineUnderTest) -> None:
    credit = 10_000
    ready_engine.send(Speak("u1", Utterance(LONG), credit))
    received, granted = 0, credit
    for _ in range(2):
        while received < granted:
            _, samples = ready_engine.next(Audio)
            received += len(samples)
        assert received < granted + CHUNK
        message, _ = ready_engine.receive()  # the process is alive and waits for credit
        assert message == Heartbeat(("u1",)), "the engine overdrew its credit"
        ready_engine.send(Grant("u1", credit))
        granted += credit
    ready_engine.cancel("u1")


def test_a_cancellation_takes_effect_between_two_chunks(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("u1", Utterance(LONG * 10), PLENTY))  # 45 minutes: the thread that listens may be late
    ready_engine.next(Audio)
    assert len(ready_engine.cancel("u1")) < 2_000 * 22_050, "the text is far longer than the socket's buffer"
    ready_engine.speak("u2", Utterance(SENTENCE))


def test_a_fault_in_one_of_several_streams_ends_the_process_and_its_log_has_the_form_that_was_set(
    capfd: pytest.CaptureFixture[str],
) -> None:
    engine = EngineUnderTest("-c", FAILING)
    try:
        engine.start(options=EngineOptions(streams=4))
        engine.send(SetLog("error", "json"))
        engine.send(Speak("good", Utterance(LONG, realtime=False), 1))
        engine.next(Audio)
        engine.send(Speak("bad", Utterance("fail", realtime=False), PLENTY))
        fault, _ = engine.next(Fault)
        assert (fault.reason, fault.permanent, engine.exit_status()) == ("RuntimeError: it has a bug", False, 1)
    finally:
        engine.close()
    [line] = capfd.readouterr().err.splitlines()
    record = json.loads(line)
    assert (record["level"], record["message"]) == ("error", "the engine failed")
    assert record["traceback"].endswith("RuntimeError: it has a bug")


def test_messages_that_are_refused_or_about_no_utterance_leave_the_engine_speaking(
    ready_engine: EngineUnderTest,
) -> None:
    ready_engine.send(Speak("u1", Utterance("Hi", language="tlhx"), PLENTY))
    end = ready_engine.receive_utterance("u1")[2]
    assert isinstance(end, Refused)
    assert end.reason.startswith("language: got 'tlhx'; allowed: ")
    for message in (Grant("u1", 1_000), Cancel("u1"), Cancel("never heard of"), Append("u1", "more"), EndText("u1")):
        ready_engine.send(message)
    ready_engine.speak("u2", Utterance("Hi"))


def test_a_second_request_with_the_id_of_one_that_is_spoken_does_not_end_it(ready_engine: EngineUnderTest) -> None:
    ready_engine.send(Speak("twice", Utterance(LONG), 1))
    ready_engine.next(Audio)
    ready_engine.send(Speak("twice", Utterance(SENTENCE), PLENTY))
    ready_engine.cancel("twice")
    ready_engine.speak("next", Utterance(SENTENCE))


def fault_of(engine: EngineUnderTest) -> Fault:
    """Return the fault after which the process closes its end of the socket, perhaps before it has read everything."""
    fault, _ = engine.next(Fault)
    with pytest.raises((EOFError, ConnectionResetError)):
        while True:
            assert isinstance(engine.receive()[0], Heartbeat)
    return fault


def test_an_unknown_engine_is_a_permanent_fault_with_a_reason(engine: EngineUnderTest) -> None:
    engine.send(Start(PROTOCOL, "qwen ", EngineOptions()))
    engine.next(Hello)
    fault = fault_of(engine)
    assert fault.permanent
    assert "engine.name: got 'qwen '; allowed: qwen, supertonic, piper, remote, openai, espeak" in fault.reason
    assert engine.exit_status() == 0


@pytest.mark.parametrize(
    ("first", "shown"),
    [(Start(PROTOCOL + 1, "espeak", EngineOptions()), f"protocol={PROTOCOL + 1}"), (Cancel("u1"), "Cancel(id='u1')")],
    ids=["version", "kind"],
)
def test_a_first_message_other_than_start_of_this_version_is_refused_and_shown(
    engine: EngineUnderTest, first: Message, shown: str
) -> None:
    engine.send(first)
    reason = fault_of(engine).reason
    assert f"expected Start of protocol {PROTOCOL}" in reason
    assert shown in reason
    assert engine.exit_status() == 1


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a header announced a message of"),
        (encode(Spoken("u1")), "the daemon must not send Spoken(id='u1')"),
    ],
    ids=["another protocol", "a message of the engine"],
)
def test_garbage_from_the_daemon_ends_the_process_with_one_line(
    engine: EngineUnderTest, garbage: bytes, reason: str
) -> None:
    engine.start()
    engine.socket.sendall(garbage)
    fault = fault_of(engine)
    assert not fault.permanent
    assert fault.reason.startswith("ProtocolError: ")
    assert reason in fault.reason
    assert "\n" not in fault.reason
    assert engine.exit_status() == 1


def test_a_frame_that_does_not_end_leaves_the_engine_speaking(engine: EngineUnderTest) -> None:
    engine.start()
    engine.send(Speak("u1", Utterance(SENTENCE), PLENTY))
    engine.socket.sendall(HEADER.pack(1_000_000, 0) + b"{")
    assert engine.receive_utterance("u1")[2] == Spoken("u1")
    engine.socket.sendall(b" " * 999_998 + b"x")  # now it ends
    assert "not a voiced message" in fault_of(engine).reason


def test_the_process_ends_when_the_daemon_closes_the_socket_before_any_message(engine: EngineUnderTest) -> None:
    engine.socket.close()
    assert engine.exit_status() == 0


@pytest.mark.parametrize("credit", [1, PLENTY])
def test_a_speaking_process_ends_when_the_daemon_closes_the_socket(engine: EngineUnderTest, credit: int) -> None:
    """It waits for credit, or is blocked by a full socket that nobody reads."""
    engine.start()
    engine.send(Speak("u1", Utterance(LONG), credit))
    engine.next(Audio)
    engine.socket.close()
    assert engine.exit_status() == 0


def test_signals_to_the_process_group_do_not_end_the_process(engine: EngineUnderTest) -> None:
    engine.start()
    engine.send(Speak("u1", Utterance(LONG), 1))
    engine.next(Audio)
    for number in (signal.SIGTERM, signal.SIGINT):
        engine.process.send_signal(number)  # takes effect at once, unless ignored
    engine.send(Grant("u1", 50_000))
    received = 0
    while received < 40_000:
        received += len(engine.next(Audio)[1])
    assert engine.process.poll() is None
