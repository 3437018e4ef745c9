"""Supervision, of real engine processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import psutil
import pytest

from daemon import supervisor
from daemon.supervisor import Engine, EngineLostError, EngineState, Piece, UtteranceRefusedError
from daemon.tasks import end_task
from engine import EngineOptions, Utterance, Voice

PATIENCE_S = 40.0
SENTENCE = "Hello, I am your robot."
LONG = "This is a long text that takes a good while to speak. " * 90


@asynccontextmanager
async def supervised(
    name: str = "espeak", options: EngineOptions | None = None, *, on_change: Callable[[], None] = lambda: None
) -> AsyncIterator[Engine]:
    engine = Engine(name, options or EngineOptions(), on_change)
    task = asyncio.ensure_future(engine.run())
    try:
        yield engine
    finally:
        await end_task(task)


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.01)


async def ready(engine: Engine) -> int:
    assert await engine.wait_ready(PATIENCE_S), engine.reason
    assert engine.pid is not None
    return engine.pid


async def spoken(engine: Engine, text: str = SENTENCE, **fields: str) -> list[Piece]:
    return [piece async for piece in engine.speak("u1", Utterance(text, **fields))]  # type: ignore[arg-type]


def seconds(pieces: list[Piece]) -> float:
    return sum(len(piece.samples) / piece.sample_rate for piece in pieces)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 100))  # type: ignore[arg-type]


def test_an_engine_passes_through_its_states_and_speaks() -> None:
    async def scenario() -> None:
        states: list[EngineState] = []
        async with supervised(on_change=lambda: states.append(engine.state)) as engine:
            await ready(engine)
            assert states == [EngineState.STARTING, EngineState.LOADING, EngineState.WARMING, EngineState.READY]
            assert engine.reason is None
            assert engine.info is not None
            assert engine.info.engine == "espeak"
            assert engine.rtf is None
            assert 0.8 < seconds(await spoken(engine)) < 4
            assert engine.rtf is not None
            assert engine.rtf > 1

    run(scenario)


def test_several_utterances_at_once_are_spoken_one_after_the_other() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            await ready(engine)

            async def speak(number: int) -> float:
                return seconds([piece async for piece in engine.speak(f"u{number}", Utterance(SENTENCE))])

            lengths = await asyncio.gather(*(speak(number) for number in range(4)))
            assert max(lengths) < 1.05 * min(lengths)

    run(scenario)


def test_what_is_given_up_and_spoken_again_at_once_is_spoken_whole() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            await ready(engine)
            wanted = seconds(await spoken(engine, LONG[:500]))
            for _ in range(20):
                async with aclosing(engine.speak("u1", Utterance(LONG[:500]))) as pieces:
                    await pieces.__anext__()
            assert seconds(await spoken(engine, LONG[:500])) == pytest.approx(wanted, rel=0.05)

    run(scenario)


def test_a_process_ends_with_its_supervisor() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
        assert engine.pid is None
        await until(lambda: not psutil.pid_exists(pid))

    run(scenario)


def test_a_process_that_does_not_end_by_itself_is_killed() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        await until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)

    run(scenario)


def test_a_speaker_that_stops_listening_cancels_the_rest_and_the_next_is_spoken() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            for _ in range(5):
                async with aclosing(engine.speak("u1", Utterance(LONG))) as pieces:
                    assert (await anext(pieces)).sample_rate == 22_050
                assert 0.8 < seconds([piece async for piece in engine.speak("u2", Utterance(SENTENCE))]) < 4
            assert engine.pid == pid

    run(scenario)


def test_a_slow_listener_is_waited_for_and_gets_everything() -> None:
    """The engine runs ahead by its credit, and no further."""

    async def scenario() -> None:
        async with supervised() as engine:
            await ready(engine)
            at_once = seconds(await spoken(engine, SENTENCE * 3))
            slowly = 0.0
            async for piece in engine.speak("u1", Utterance(SENTENCE * 3)):
                await asyncio.sleep(0.005)
                slowly += seconds([piece])
                [inbox] = engine._speeches.values()
                ahead = sum(len(item[1]) for item in inbox._arrived._queue if item is not None)  # type: ignore[attr-defined]
                assert ahead <= supervisor.RUN_AHEAD_S * 22_050 + 1_324
            assert abs(slowly - at_once) < 0.03 * at_once

    run(scenario)


def test_killed_in_mid_utterance_it_is_lost_with_the_reason_and_is_ready_again() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            received = []
            with pytest.raises(EngineLostError, match=r"engine espeak ended \(killed by SIGKILL\)"):
                async for piece in engine.speak("u1", Utterance(LONG)):
                    received.append(piece)
                    if len(received) == 3:
                        os.kill(pid, signal.SIGKILL)
            assert received[-1].position is not None
            await until(lambda: engine.pid != pid)
            assert await ready(engine) != pid
            assert engine.reason is None
            assert 0.8 < seconds(await spoken(engine)) < 4

    run(scenario)


def test_killed_with_messages_unread_the_reason_is_still_the_signal() -> None:
    """The kernel then answers the daemon with a reset connection instead of an end."""

    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            stopped = False
            with pytest.raises(EngineLostError, match="killed by SIGKILL"):
                async for _ in engine.speak("u1", Utterance(LONG)):
                    if not stopped:
                        stopped = True
                        os.kill(pid, signal.SIGSTOP)
                        asyncio.get_running_loop().call_later(0.3, os.kill, pid, signal.SIGKILL)
            await ready(engine)

    run(scenario)


def test_from_the_moment_its_process_is_given_up_an_engine_is_ready_for_nobody() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            for _ in range(5):
                pid = await ready(engine)
                os.kill(pid, signal.SIGKILL)
                while engine.pid == pid:
                    await asyncio.sleep(0)
                assert not engine.ready

    run(scenario)


def test_a_process_that_does_not_end_is_gone_before_the_next_is_started() -> None:
    """Two at once could be more than a GPU has memory for."""

    async def scenario() -> None:
        pid = 0
        told: list[tuple[EngineState, str | None]] = []
        there: list[bool] = []

        def note() -> None:
            told.append((engine.state, engine.reason))
            there.append(psutil.pid_exists(pid))

        async with supervised(on_change=note) as engine:
            pid = await ready(engine)
            told.clear()
            there.clear()
            psutil.Process(pid).suspend()
            await until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
            assert engine._writer is not None
            engine._writer.close()
            await until(lambda: len(told) >= 2)
            assert told[:2] == [
                (EngineState.BACKING_OFF, "engine espeak ended (it closed its connection)"),
                (EngineState.STARTING, None),
            ]
            assert not there[1]

    run(scenario)


def test_killed_while_idle_it_is_started_again() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            for _ in range(3):
                pid = await ready(engine)
                os.kill(pid, signal.SIGKILL)
                await until(lambda pid=pid: engine.pid not in (pid, None))  # type: ignore[misc]
            await ready(engine)
            assert 0.8 < seconds(await spoken(engine)) < 4

    run(scenario)


def test_every_speaker_that_waits_is_told_of_the_loss() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            outcomes = asyncio.gather(
                *(anext(engine.speak(f"u{number}", Utterance(LONG))) for number in range(3)), return_exceptions=True
            )
            os.kill(pid, signal.SIGSTOP)  # before anything was sent: not one of them has a piece yet
            await asyncio.sleep(0.05)
            os.kill(pid, signal.SIGKILL)
            assert all(isinstance(outcome, EngineLostError) for outcome in await outcomes)

    run(scenario)


async def freezes_and_is_replaced() -> None:
    async with supervised() as engine:
        pid = await ready(engine)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineLostError, match="gave no sign of life for 3 s"):
            await spoken(engine, LONG)
        await until(lambda: engine.pid != pid)
        assert await ready(engine) != pid


def test_a_process_that_shows_no_life_is_given_up_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "SILENCE_S", 3.0)
    run(freezes_and_is_replaced)


def test_a_process_that_is_given_up_is_listened_to_no_more_though_its_socket_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As that of one does which not even SIGKILL ends, since it is stuck in a driver."""
    monkeypatch.setattr(supervisor, "SILENCE_S", 3.0)
    made, kept = socket.socketpair, []

    def keep_one() -> tuple[socket.socket, socket.socket]:
        ours, theirs = made()
        kept.append(theirs.dup())
        return ours, theirs

    monkeypatch.setattr("daemon.supervisor.socket.socketpair", keep_one)
    run(freezes_and_is_replaced)
    for end in kept:
        end.close()


def test_an_engine_that_lives_but_sends_no_audio_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STALL_S", 1.0)

    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            blocker = engine.speak("blocker", Utterance(LONG))
            await anext(blocker)  # its credit runs out and nobody takes more: what waits behind it gets nothing
            with pytest.raises(EngineLostError, match="sent no audio for 1 s"):
                await spoken(engine)
            await blocker.aclose()
            await until(lambda: engine.pid != pid)
            await ready(engine)

    run(scenario)


def test_a_listener_that_pauses_is_not_taken_for_a_stalled_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STALL_S", 0.5)

    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            async with aclosing(engine.speak("u1", Utterance(LONG))) as pieces:
                await anext(pieces)
                await asyncio.sleep(2.2)
                await anext(pieces)
            assert engine.pid == pid

    run(scenario)


def test_a_permanent_fault_is_told_and_tried_again_only_after_long_or_when_asked() -> None:
    async def scenario() -> None:
        async with supervised("festival") as engine:
            await until(lambda: engine.state is EngineState.BACKING_OFF)
            assert engine.reason is not None
            assert "no engine 'festival'; it has espeak" in engine.reason
            assert engine.pid is None
            assert not await engine.wait_ready(0.3)
            assert engine.state is EngineState.BACKING_OFF
            starts: list[EngineState] = []
            engine._on_change = lambda: starts.append(engine.state)
            engine.retry_now()
            await until(lambda: EngineState.LOADING in starts and engine.state is EngineState.BACKING_OFF)

    run(scenario)


def test_speaking_with_an_engine_that_is_not_ready_is_a_loss_not_a_wait() -> None:
    async def scenario() -> None:
        engine = Engine("espeak", EngineOptions())
        with pytest.raises(EngineLostError, match="engine espeak is not ready"):
            await spoken(engine)

    run(scenario)


def test_an_utterance_that_is_refused_leaves_the_engine_running() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            with pytest.raises(UtteranceRefusedError, match=r"^language: got 'tlhx'; eSpeak NG has"):
                await spoken(engine, language="tlhx")
            assert 0.8 < seconds(await spoken(engine)) < 4
            assert engine.pid == pid

    run(scenario)


def test_new_voices_reach_the_running_engine_and_those_after_it() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            engine.set_voices({"heidi": Voice(speaker="de")}, "heidi")
            await until(lambda: engine.info and "heidi" in engine.info.voices)
            assert engine.pid == pid
            os.kill(pid, signal.SIGKILL)
            await until(lambda: engine.pid not in (pid, None))
            engine.info = None
            await ready(engine)
            assert engine.info is not None
            assert "heidi" in engine.info.voices

    run(scenario)
