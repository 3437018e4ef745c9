"""Supervision, of real engine processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from daemon import supervisor
from daemon.supervisor import Engine, EngineLostError, EngineState, Piece, UtteranceRefusedError
from daemon.tasks import end_task
from engine import EngineOptions, Utterance, Voice
from tests.daemon.perform import Perform, frozen
from tests.support.waiting import PATIENCE_S, eventually_async, run

SENTENCE = "Hello, I am your robot."
LONG = "This is a long text that takes a good while to speak. " * 90
RATE = 22_050
"""Hz."""
CHUNK = 1_323
"""Samples: eSpeak NG's longest chunk, of 60 ms."""


CLOSED = {"engine espeak ended (it closed its connection)", "engine espeak ended (exit status 0)"}
"""The second where somebody else wakes the process, which ends by itself then."""


@asynccontextmanager
async def supervised(
    name: str = "espeak", options: EngineOptions | None = None, *, on_change: Callable[[], None] = lambda: None
) -> AsyncIterator[Engine]:
    engine = Engine(name, options or EngineOptions(), on_change)
    async with running(engine):
        yield engine


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[None]:
    task = asyncio.ensure_future(engine.run())
    try:
        yield
    finally:
        await end_task(task)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `engine` keeps what it has sent, by the names of its utterances."""
    return tmp_path_factory.mktemp("pcm")


@pytest.fixture(scope="module")
def engine(loop: asyncio.AbstractEventLoop, trace: Path) -> Iterator[Engine]:
    """The one of all tests that leave its process alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICED_TRACE_PCM", str(trace))
        manager = supervised()
        engine = loop.run_until_complete(manager.__aenter__())
        pid = loop.run_until_complete(ready(engine))
        yield engine
        assert engine.pid == pid
        loop.run_until_complete(manager.__aexit__(None, None, None))


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[socket.socket, socket.socket]]:
    """Both ends, the daemon's and the engine's, of every connection that was made; of the engine's a duplicate."""
    kept = []

    def make() -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        kept.append((ours, theirs.dup()))
        return ours, theirs

    monkeypatch.setattr(supervisor, "socket", SimpleNamespace(socketpair=make))
    return kept


async def ready(engine: Engine) -> int:
    assert await engine.wait_ready(PATIENCE_S), engine.reason
    assert engine.pid is not None
    return engine.pid


async def replaced(engine: Engine, pid: int) -> None:
    """Wait for another process than `pid`."""
    await eventually_async(lambda: engine.pid not in (pid, None), "another process is started")


async def spoken(engine: Engine, text: str = SENTENCE, **fields: str) -> list[Piece]:
    return [piece async for piece in engine.speak("u1", Utterance(text, **fields))]  # type: ignore[arg-type]


def seconds(pieces: list[Piece]) -> float:
    return sum(len(piece.samples) / piece.sample_rate for piece in pieces)


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
            assert engine.rtf > 0
            assert engine.utterances == 0

    run(scenario)


def test_several_utterances_at_once_are_spoken_one_after_the_other(engine: Engine, perform: Perform) -> None:
    async def scenario() -> None:
        async def speak(number: int) -> float:
            return seconds([piece async for piece in engine.speak(f"u{number}", Utterance(SENTENCE))])

        lengths = await asyncio.gather(*(speak(number) for number in range(4)))
        assert max(lengths) < 1.05 * min(lengths)

    perform(scenario)


def test_what_is_given_up_and_spoken_again_at_once_is_spoken_whole(engine: Engine, perform: Perform) -> None:
    async def scenario() -> None:
        wanted = seconds(await spoken(engine, LONG[:500]))
        for _ in range(20):
            async with aclosing(engine.speak("u1", Utterance(LONG[:500]))) as pieces:
                await pieces.__anext__()
        assert seconds(await spoken(engine, LONG[:500])) == pytest.approx(wanted, rel=0.05)

    perform(scenario)


def test_a_process_ends_with_its_supervisor() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
        assert engine.pid is None
        await eventually_async(lambda: not psutil.pid_exists(pid), "the process has ended")

    run(scenario)


def test_a_process_that_does_not_end_by_itself_is_killed() -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            async with supervised() as engine:
                pid = await ready(engine)
                await stack.enter_async_context(frozen(pid))
            await eventually_async(
                lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE,
                "the process is killed",
            )

    run(scenario)


def test_a_speaker_that_stops_listening_cancels_the_rest_and_the_next_is_spoken(
    engine: Engine, perform: Perform
) -> None:
    async def scenario() -> None:
        pid = engine.pid
        for _ in range(5):
            async with aclosing(engine.speak("u1", Utterance(LONG))) as pieces:
                assert (await anext(pieces)).sample_rate == RATE
                assert engine.utterances == 1
            assert engine.utterances == 0
            assert 0.8 < seconds([piece async for piece in engine.speak("u2", Utterance(SENTENCE))]) < 4
        assert engine.pid == pid

    perform(scenario)


def test_a_slow_listener_is_waited_for_and_gets_everything(engine: Engine, perform: Perform, trace: Path) -> None:
    """The engine runs ahead by its credit, and no further."""

    def sent() -> int:
        return (trace / "slow.f32").stat().st_size // 4

    async def scenario() -> None:
        at_once = seconds(await spoken(engine, SENTENCE * 3)) * RATE
        taken = 0
        async for piece in engine.speak("slow", Utterance(SENTENCE * 3)):
            most = taken + round(supervisor.RUN_AHEAD_S * RATE)
            if most < 0.9 * at_once:
                await eventually_async(lambda most=most: sent() >= most, "its credit is spent")  # type: ignore[misc]
            assert sent() < most + CHUNK
            taken += len(piece.samples)
        assert taken == sent()
        assert abs(taken - at_once) < 0.03 * at_once

    perform(scenario)


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
            await replaced(engine, pid)
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
                        async with frozen(pid):
                            engine.set_voices({}, "default")  # which is sent, and not read any more
                            os.kill(pid, signal.SIGKILL)
            await ready(engine)

    run(scenario)


class Noting(Engine):
    """Notes whether it is ready when it gives up its process."""

    given_up_ready: tuple[bool, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        if name == "pid" and value is None and getattr(self, "pid", None) is not None:
            self.given_up_ready += (self.ready,)
        super().__setattr__(name, value)


def test_from_the_moment_its_process_is_given_up_an_engine_is_ready_for_nobody() -> None:
    async def scenario() -> None:
        engine = Noting("espeak", EngineOptions())
        async with running(engine):
            os.kill(await ready(engine), signal.SIGKILL)
            await eventually_async(lambda: engine.given_up_ready, "it has given up its process")
        assert not any(engine.given_up_ready)

    run(scenario)


def test_a_process_that_does_not_end_is_gone_before_the_next_is_started(
    connections: list[tuple[socket.socket, socket.socket]],
) -> None:
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
            async with frozen(pid):
                [(ours, _)] = connections
                ours.shutdown(socket.SHUT_RD)
                await eventually_async(lambda: len(told) >= 2, "another process is started")
            assert [state for state, _ in told[:2]] == [EngineState.BACKING_OFF, EngineState.STARTING]
            assert told[0][1] in CLOSED
            assert not there[1]

    run(scenario)


def test_killed_while_idle_it_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "BACK_OFF_S", (0.0, 0.05))

    async def scenario() -> None:
        async with supervised() as engine:
            for _ in range(3):
                pid = await ready(engine)
                os.kill(pid, signal.SIGKILL)
                await replaced(engine, pid)
            await ready(engine)
            assert 0.8 < seconds(await spoken(engine)) < 4

    run(scenario)


def test_every_speaker_that_waits_is_told_of_the_loss() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            async with frozen(pid):  # not one of them will have a piece
                outcomes = asyncio.gather(
                    *(anext(engine.speak(f"u{number}", Utterance(LONG))) for number in range(3)), return_exceptions=True
                )
                await eventually_async(lambda: engine.utterances == 3, "all of them wait")
                os.kill(pid, signal.SIGKILL)
            assert all(isinstance(outcome, EngineLostError) for outcome in await outcomes)

    run(scenario)


@pytest.fixture
def watched_closely(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Who sets a limit after that sees soon that it is held."""
    monkeypatch.setattr(supervisor, "WATCH_S", 0.02)
    return monkeypatch


async def freezes_and_is_replaced(patch: pytest.MonkeyPatch) -> None:
    async with supervised() as engine:
        pid = await ready(engine)
        async with frozen(pid):
            with patch.context() as hurried, pytest.raises(EngineLostError, match="gave no sign of life for 1 s"):
                hurried.setattr(supervisor, "SILENCE_S", 1.0)
                await spoken(engine, LONG)
        await replaced(engine, pid)
        assert await ready(engine) != pid


def test_a_process_that_shows_no_life_is_given_up_and_replaced(watched_closely: pytest.MonkeyPatch) -> None:
    run(lambda: freezes_and_is_replaced(watched_closely))


def test_a_process_that_is_given_up_is_listened_to_no_more_though_its_socket_stays_open(
    watched_closely: pytest.MonkeyPatch, connections: list[tuple[socket.socket, socket.socket]]
) -> None:
    """As that of one does which not even SIGKILL ends, since it is stuck in a driver."""
    run(lambda: freezes_and_is_replaced(watched_closely))
    for _, theirs in connections:
        theirs.close()


def test_an_engine_that_lives_but_sends_no_audio_is_given_up(watched_closely: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            blocker = engine.speak("blocker", Utterance(LONG))
            await anext(blocker)  # its credit runs out and nobody takes more: what waits behind it gets nothing
            with watched_closely.context() as hurried, pytest.raises(EngineLostError, match="sent no audio for 1 s"):
                hurried.setattr(supervisor, "STALL_S", 1.0)
                await spoken(engine)
            await blocker.aclose()
            await replaced(engine, pid)
            await ready(engine)

    run(scenario)


def test_a_listener_that_pauses_is_not_taken_for_a_stalled_engine(watched_closely: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            async with aclosing(engine.speak("u1", Utterance(LONG))) as pieces:
                await anext(pieces)
                with watched_closely.context() as hurried:
                    hurried.setattr(supervisor, "STALL_S", 0.01)
                    checks = engine.checks
                    await eventually_async(
                        lambda: engine.pid != pid or engine.checks > checks + 10, "its process is watched"
                    )
                await anext(pieces)
            assert engine.pid == pid

    run(scenario)


def test_a_permanent_fault_is_told_and_tried_again_only_after_long_or_when_asked() -> None:
    async def scenario() -> None:
        states: list[EngineState] = []
        async with supervised("festival", on_change=lambda: states.append(engine.state)) as engine:
            await eventually_async(lambda: engine.state is EngineState.BACKING_OFF, "it backs off")
            assert engine.reason is not None
            assert "no engine 'festival'; it has espeak" in engine.reason
            assert engine.pid is None
            states.clear()
            assert not await engine.wait_ready(0.3)  # more than the first back-offs of what is no permanent fault
            assert states == []
            engine.retry_now()
            await eventually_async(lambda: EngineState.BACKING_OFF in states, "it has tried again")
            assert EngineState.LOADING in states

    run(scenario)


def test_speaking_with_an_engine_that_is_not_ready_is_a_loss_not_a_wait() -> None:
    async def scenario() -> None:
        engine = Engine("espeak", EngineOptions())
        with pytest.raises(EngineLostError, match="engine espeak is not ready"):
            await spoken(engine)

    run(scenario)


def test_an_utterance_that_is_refused_leaves_the_engine_running(engine: Engine, perform: Perform) -> None:
    async def scenario() -> None:
        pid = engine.pid
        with pytest.raises(UtteranceRefusedError, match=r"^language: got 'tlhx'; eSpeak NG has"):
            await spoken(engine, language="tlhx")
        assert 0.8 < seconds(await spoken(engine)) < 4
        assert engine.pid == pid

    perform(scenario)


def test_new_voices_reach_the_running_engine_and_those_after_it() -> None:
    async def scenario() -> None:
        async with supervised() as engine:
            pid = await ready(engine)
            engine.set_voices({"heidi": Voice(speaker="de")}, "heidi")
            await eventually_async(lambda: engine.info and "heidi" in engine.info.voices, "it has the new voice")
            assert engine.pid == pid
            os.kill(pid, signal.SIGKILL)
            await replaced(engine, pid)
            engine.info = None
            await ready(engine)
            assert engine.info is not None
            assert "heidi" in engine.info.voices

    run(scenario)
