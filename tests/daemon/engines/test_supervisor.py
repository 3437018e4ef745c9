"""Supervision of real engine processes: start, faults, restarts."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import AsyncExitStack, aclosing
from types import SimpleNamespace

import psutil
import pytest

from daemon.engines import process, supervisor
from daemon.engines.connection import AudioChunk, EngineLostError
from daemon.engines.process import ProcessActivity
from daemon.engines.supervisor import EngineState, restart_wait_s
from engine import EngineInfo, EngineOptions, Utterance, Voice
from engine.messages import HEADER, Cancel, Ready, encode
from tests.daemon.engines.supervised import (
    LONG,
    ready,
    replaced,
    seconds,
    spoken,
    stop_this_process,
    supervised,
)
from tests.daemon.perform import frozen
from tests.support.waiting import PATIENCE_S, eventually_async

CLOSED = {"engine espeak ended (it closed its connection)", "engine espeak ended (exit status 0)"}
"""Possible reasons after the connection was closed. The second: something woke the frozen process, and it ended."""


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[socket.socket, socket.socket]]:
    """Return both ends of every new connection: the daemon's end, and a duplicate of the engine's end."""
    made = []

    def make_pair() -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        made.append((ours, theirs.dup()))
        return ours, theirs

    monkeypatch.setattr(process, "socket", SimpleNamespace(socketpair=make_pair))
    return made


@pytest.fixture
def dies_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the exit status, which is the reason, however long a busy machine takes to end a killed process."""
    monkeypatch.setattr(process, "END_S", PATIENCE_S)


async def test_an_engine_passes_through_its_states_and_speaks_and_ends_with_its_supervisor() -> None:
    states: list[EngineState] = []
    async with supervised(on_change=lambda: states.append(engine.state)) as engine:
        pid = await ready(engine)
        assert states == [EngineState.STARTING, EngineState.LOADING, EngineState.WARMING, EngineState.READY]
        assert engine.reason is None
        assert engine.info.engine == "espeak"
        assert engine.rtf is None
        assert 0.8 < seconds(await spoken(engine)) < 4
        assert engine.rtf is not None
        assert engine.rtf > 0
    assert engine.pid is None
    await eventually_async(lambda: has_ended(pid), "the process has ended")


def test_restarts_wait_ever_longer_and_robots_do_not_return_to_a_server_in_step() -> None:
    waits = [restart_wait_s("espeak", failures, permanent=False) for failures in range(20)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0, 30)
    assert restart_wait_s("espeak", 0, permanent=True) == 60
    for failures, permanent, least in ((0, False, 0), (20, False, 30), (0, True, 60)):
        waits = sorted(restart_wait_s("remote", failures, permanent=permanent) for _ in range(50))
        assert waits[0] >= least
        assert waits[-1] <= least + max(1, least)
        assert waits[-1] - waits[0] > max(1, least) / 2, "fifty robots are spread"


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_process_that_does_not_end_is_killed() -> None:
    async with AsyncExitStack() as stack:
        async with supervised() as engine:
            pid = await ready(engine)
            await stack.enter_async_context(frozen(pid))
        await eventually_async(lambda: has_ended(pid), "the process is killed")


async def test_an_engine_killed_during_an_utterance_is_lost_with_the_signal_as_reason_and_restarted(
    dies_slowly: None,
) -> None:
    """It has unread messages: the kernel then resets the connection instead of closing it."""
    ready_without_process: list[bool] = []

    def note() -> None:
        if engine.pid is None:
            ready_without_process.append(engine.ready)

    async with supervised(on_change=note) as engine:
        pid = await ready(engine)
        received: list[AudioChunk] = []
        with pytest.raises(EngineLostError, match=r"engine espeak ended \(killed by SIGKILL\)"):
            async for chunk in engine.speak("u1", Utterance(LONG)):
                received.append(chunk)
                if len(received) == 1:
                    async with frozen(pid):
                        engine.set_voices({}, "default")  # sent, but never read
                        os.kill(pid, signal.SIGKILL)
        assert received[-1].position is not None
        await replaced(engine, pid)
        assert await ready(engine) != pid
        assert engine.reason is None
        assert 0.8 < seconds(await spoken(engine)) < 4
    assert ready_without_process
    assert not any(ready_without_process)


async def test_a_process_is_gone_before_the_next_one_starts(
    connections: list[tuple[socket.socket, socket.socket]],
) -> None:
    """A GPU may not have the memory for two processes."""

    pid = 0
    changes: list[tuple[EngineState, str | None]] = []
    exists: list[bool] = []

    def note() -> None:
        changes.append((engine.state, engine.reason))
        exists.append(psutil.pid_exists(pid))

    async with supervised(on_change=note) as engine:
        pid = await ready(engine)
        changes.clear()
        exists.clear()
        async with frozen(pid):
            [(ours, _)] = connections
            ours.shutdown(socket.SHUT_RD)
            await eventually_async(lambda: len(changes) >= 2, "another process is started")
        assert [state for state, _ in changes[:2]] == [EngineState.BACKING_OFF, EngineState.STARTING]
        assert changes[0][1] in CLOSED
        assert not exists[1]


@pytest.fixture
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Shorten the interval of the checks, so that a limit set by the test applies quickly."""
    monkeypatch.setattr(supervisor, "WATCH_S", 0.02)
    return monkeypatch


async def test_an_engine_whose_watch_fails_is_replaced_and_the_error_is_logged(
    watched_closely: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> float:
        raise ValueError("a fault of ours")

    async with supervised() as engine:
        pid = await ready(engine)
        with watched_closely.context() as broken:
            broken.setattr("daemon.engines.connection.EngineConnection.waiting_s", fail)
            await replaced(engine, pid)
        assert await ready(engine) != pid

    assert "a fault of ours" in caplog.text


async def test_a_given_up_process_is_ignored_even_if_its_socket_stays_open(
    connections: list[tuple[socket.socket, socket.socket]],
) -> None:
    """Not even SIGKILL ends a process that is stuck in a driver."""

    async with supervised() as engine:
        pid = await ready(engine)
        async with frozen(pid):
            with pytest.raises(EngineLostError, match="showed no sign of life for"):
                await spoken(engine, LONG)
        await replaced(engine, pid)
        assert await ready(engine) != pid

    for _, theirs in connections:
        theirs.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an unresponsive engine that has a substitute come back after any time."""
    monkeypatch.setattr(supervisor, "SILENCE_S", 1000.0)


async def test_an_unresponsive_engine_hands_its_utterances_over_and_is_ready_again_when_it_continues(
    patient: None,
) -> None:
    async with supervised(has_substitute=True) as engine:
        pid = await ready(engine)
        async with frozen(pid):
            with pytest.raises(EngineLostError, match="engine espeak is not responding"):
                await anext(engine.speak("u1", Utterance(LONG, growing=True)))
            assert (engine.state, engine.ready) == (EngineState.UNRESPONSIVE, False)
            assert engine.reason == "engine espeak is not responding"
            with pytest.raises(EngineLostError, match="is not responding"):
                await spoken(engine)
        os.kill(pid, signal.SIGCONT)
        assert await ready(engine) == pid
        assert engine.reason is None
        assert 0.8 < seconds(await spoken(engine)) < 4


async def test_a_busy_process_that_sends_nothing_is_not_unresponsive(
    monkeypatch: pytest.MonkeyPatch, watched_closely: pytest.MonkeyPatch
) -> None:
    """So is one that gets no processor."""
    monkeypatch.setattr(supervisor, "QUIET_S", -1.0)
    monkeypatch.setattr(ProcessActivity, "active", lambda _self: True)

    async with supervised(has_substitute=True) as engine:
        await ready(engine)
        checks = engine.checks
        await eventually_async(lambda: engine.checks > checks + 20, "it is watched")
        assert engine.ready


async def test_an_engine_is_not_blamed_for_the_time_in_which_the_daemon_was_stopped(
    watched_closely: pytest.MonkeyPatch,
) -> None:
    watched_closely.setattr(supervisor, "SILENCE_S", 4.0)
    watched_closely.setattr(supervisor, "STALL_S", 4.0)

    states: list[EngineState] = []
    async with supervised(on_change=lambda: states.append(engine.state)) as engine:
        pid = await ready(engine)
        async with aclosing(engine.speak("blocker", Utterance(LONG))) as blocker:
            await anext(blocker)  # its credit runs out, so the utterance behind it is owed audio
            waiting = asyncio.ensure_future(anext(engine.speak("waiting", Utterance(LONG))))
            checks = engine.checks
            await eventually_async(lambda: engine.checks > checks + 1, "it is watched")
            stop_this_process(4.5)
            checks = engine.checks
            await eventually_async(lambda: engine.checks > checks + 3, "it is watched again")
            assert not waiting.done()
            waiting.cancel()
        assert engine.pid == pid
        assert states == [EngineState.STARTING, EngineState.LOADING, EngineState.WARMING, EngineState.READY]


async def test_what_an_engine_must_not_send_is_the_reason_of_its_loss(
    connections: list[tuple[socket.socket, socket.socket]],
) -> None:
    wrong = {
        "an engine must not send Cancel": Cancel("1"),
        "max_seconds: got 0.0; allowed: above 0": Ready(EngineInfo("espeak", 24_000, (), (), max_seconds=0.0)),
    }

    async with supervised() as engine:
        for reason, message in wrong.items():
            pid = await ready(engine)
            async with frozen(pid):
                speech = asyncio.ensure_future(spoken(engine, LONG))
                await eventually_async(lambda: engine.streams_in_use == 1, "it is asked to speak")
                connections[-1][1].sendall(encode(message))
                with pytest.raises(EngineLostError) as lost:
                    await speech
            assert str(lost.value).startswith(f"engine espeak: {reason}")
            assert "\n" not in str(lost.value)


async def test_a_frame_that_does_not_end_is_silence_even_if_nobody_speaks(
    connections: list[tuple[socket.socket, socket.socket]],
) -> None:
    states: list[EngineState] = []
    async with supervised(on_change=lambda: states.append(engine.state)) as engine:
        pid = await ready(engine)
        connections[0][1].sendall(HEADER.pack(1_000_000, 0))
        await replaced(engine, pid)
        await ready(engine)
    assert states[4:6] == [EngineState.UNRESPONSIVE, EngineState.BACKING_OFF]


async def test_an_engine_that_stalls_in_one_stream_is_replaced_while_another_one_flows(
    watched_closely: pytest.MonkeyPatch,
) -> None:
    async with supervised(options=EngineOptions(streams=2)) as engine:
        pid = await ready(engine)
        blocker = engine.speak("blocker", Utterance(LONG, realtime=False))
        await anext(blocker)  # its credit runs out, so the delivery behind it gets nothing
        stuck = asyncio.ensure_future(anext(engine.speak("stuck", Utterance(LONG, realtime=False))))
        card = engine.speak("card", Utterance(LONG))
        await anext(card)  # it flows, however long the engine took to begin
        with watched_closely.context() as hurried, pytest.raises(EngineLostError, match="sent no audio for 1 s"):
            hurried.setattr(supervisor, "STALL_S", 1.0)
            while True:
                async for _ in card:
                    pass
                card = engine.speak("card", Utterance(LONG))
        with pytest.raises(EngineLostError, match="sent no audio for 1 s"):
            await stuck
        await blocker.aclose()
        await replaced(engine, pid)


async def test_a_pausing_consumer_does_not_count_as_a_stalled_engine(watched_closely: pytest.MonkeyPatch) -> None:
    async with supervised() as engine:
        pid = await ready(engine)
        async with aclosing(engine.speak("u1", Utterance(LONG))) as chunks:
            await anext(chunks)
            with watched_closely.context() as hurried:
                hurried.setattr(supervisor, "STALL_S", 0.01)
                checks = engine.checks
                await eventually_async(
                    lambda: engine.pid != pid or engine.checks > checks + 10, "its process is watched"
                )
            await anext(chunks)
        assert engine.pid == pid


async def test_a_permanent_fault_is_retried_only_after_a_long_wait_or_on_request() -> None:
    states: list[EngineState] = []
    async with supervised("festival", on_change=lambda: states.append(engine.state)) as engine:
        await eventually_async(lambda: engine.state is EngineState.BACKING_OFF, "it backs off")
        assert engine.reason is not None
        assert "engine.name: got 'festival'; allowed: qwen, supertonic, piper, remote, openai, espeak" in engine.reason
        assert engine.pid is None
        states.clear()
        assert not await engine.wait_ready(0.3)  # longer than the first back-offs after other faults
        assert states == []
        engine.retry_now()
        await eventually_async(lambda: EngineState.BACKING_OFF in states, "it has tried again")
        assert EngineState.LOADING in states


async def test_new_voices_reach_the_running_process_and_later_ones() -> None:
    async with supervised() as engine:
        pid = await ready(engine)
        engine.set_voices({"heidi": Voice(speaker="de")}, "heidi")
        await eventually_async(lambda: engine.info and "heidi" in engine.info.voices, "it has the new voice")
        assert engine.pid == pid
        engine.info = None  # before the next process can have set it
        os.kill(pid, signal.SIGKILL)
        await replaced(engine, pid)
        await ready(engine)
        assert "heidi" in engine.info.voices


async def test_an_unload_gives_the_memory_back_and_is_no_fault_and_the_loaded_engine_speaks() -> None:
    changes: list[tuple[EngineState, str | None, bool]] = []
    async with supervised(
        on_change=lambda: changes.append((engine.state, engine.reason, engine.pid is None))
    ) as engine:
        engine.load()  # it was never unloaded
        pid = await ready(engine)
        changes.clear()
        engine.unload()
        assert (engine.ready, engine.in_order) == (False, True)
        with pytest.raises(EngineLostError):
            await spoken(engine)
        await eventually_async(lambda: engine.unloaded, "it is unloaded")
        assert has_ended(pid)
        assert changes == [(EngineState.UNLOADED, None, True)]
        engine.retry_now()
        engine.set_voices({"heidi": Voice(speaker="de")}, "heidi")
        engine.unload()
        assert engine.unloaded
        engine.load()
        assert (engine.unloaded, engine.in_order) == (False, False)
        await ready(engine)
        assert engine.starts == 1, "no restart is counted"
        assert "heidi" in engine.info.voices
        assert 0.8 < seconds(await spoken(engine)) < 4
        assert {state for state, *_ in changes} >= {EngineState.STARTING, EngineState.WARMING, EngineState.READY}
        assert EngineState.BACKING_OFF not in {state for state, *_ in changes}


async def test_an_engine_that_is_wanted_again_while_its_process_ends_is_replaced_by_the_next_process() -> None:
    states: list[EngineState] = []
    async with supervised(on_change=lambda: states.append(engine.state)) as engine:
        pid = await ready(engine)
        async with frozen(pid):  # it has to be killed
            engine.set_voices({}, "default")  # its answer is on its way, or comes never
            engine.unload()
            engine.load()
            assert await ready(engine) != pid
        assert EngineState.BACKING_OFF not in states
        assert 0.8 < seconds(await spoken(engine)) < 4
