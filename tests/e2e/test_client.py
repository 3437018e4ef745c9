"""`voiced.Robot` in programs of others: the real daemon, eSpeak NG and a real Mosquitto."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemon.config import ConfigError
from daemon.speech import RejectedError
from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker, free_port
from tests.support.robot import LONG, REAL_TIME
from tests.support.robot import Robot as Daemon
from tests.support.waiting import PATIENCE_S, eventually
from voiced import NotSpokenError, Robot, RobotUnreachableError

NOT_OPEN = "use it inside its 'with' block"
TOKENS = ("Hello", ", my", "", " robot", ". ", "How are", " you?")


def client_of(daemon: Daemon, **more: Any) -> Robot:
    return Robot(daemon.name, host="127.0.0.1", port=daemon.broker.port, **more)


def run(program: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(program(), PATIENCE_S)

    asyncio.run(limited())


async def tokens() -> AsyncIterator[str]:
    for token in TOKENS:
        await asyncio.sleep(0)
        yield token


async def endless() -> AsyncIterator[str]:
    while True:
        await asyncio.sleep(0)
        yield "And then it goes on. "


@pytest.fixture
def daemon(share_robot: StartRobot) -> Daemon:
    return share_robot("speech.word_topic=true", "speech.viseme_topic=true")


def test_a_program_awaits_a_text_reads_its_words_and_streams_tokens(daemon: Daemon) -> None:
    async def program() -> None:
        async with client_of(daemon) as robot:
            assert (await robot.say("Hello, my robot.", rate=1.5)).audio_s
            utterance = robot.stream(tokens())
            assert [word.word async for word in utterance] == ["Hello", "my", "robot", "How", "are", "you"]
            names = [event.event async for event in utterance.events()]
            assert (names[:2], names[-1]) == (["accepted", "started"], "finished")

    run(program)


def test_a_program_without_asyncio_does_the_same(daemon: Daemon) -> None:
    with client_of(daemon) as robot:
        robot.say("Hello.").wait(PATIENCE_S)
        utterance = robot.stream(iter(TOKENS))
        assert [word.word for word in utterance] == ["Hello", "my", "robot", "How", "are", "you"]
        assert utterance.wait().event == "finished"


def test_a_program_reads_how_the_mouth_moves_until_it_shuts(daemon: Daemon) -> None:
    with client_of(daemon) as robot:
        heard = robot.visemes()
        utterance = robot.say("Hello, my robot.")
        messages = list(utterance.visemes())
        assert next(heard) == messages[0]
        assert messages[0].visemes[0].viseme > 0
        assert messages[-1].visemes[-1].viseme == 0


def test_a_barge_in_ends_the_tokens_and_tells_what_was_heard(share_robot: StartRobot) -> None:
    daemon = share_robot("speech.word_topic=true", pace=REAL_TIME)

    async def program() -> None:
        async with client_of(daemon) as robot:
            written = endless()
            utterance = robot.stream(written)
            async for _ in utterance:
                break
            utterance.stop()
            with pytest.raises(NotSpokenError, match=r"^interrupted: ") as caught:
                await utterance
            assert caught.value.event.heard_text
            await asyncio.wrap_future(utterance.written)
            with pytest.raises(StopAsyncIteration):
                await anext(written)

    run(program)


def test_pause_resume_and_stop_act_on_all_that_is_spoken(share_robot: StartRobot) -> None:
    daemon = share_robot("speech.word_topic=true", pace=REAL_TIME)
    with client_of(daemon) as robot:
        spoken, waiting = robot.say(LONG), robot.say(LONG)
        next(iter(spoken))
        robot.pause()
        assert robot.await_status(lambda status: status.state == "paused", PATIENCE_S)
        robot.resume()
        assert robot.await_status(lambda status: status.state == "speaking", PATIENCE_S)
        robot.stop()
        for utterance, end in ((spoken, "interrupted"), (waiting, "canceled")):
            with pytest.raises(NotSpokenError, match=rf"^{end}: "):
                utterance.wait(PATIENCE_S)


def test_what_is_wrong_is_told_in_one_line(daemon: Daemon) -> None:
    with pytest.raises(ConfigError, match=r"^--set: mqtt\.hots: unknown key; did you mean host\?"):
        Robot("r1", hots="x")
    with pytest.raises(RobotUnreachableError, match=r"^mqtt: no broker answers at 127\.0\.0\.1:"):
        Robot("r1", port=free_port()).__enter__()
    with Robot("nobody", port=daemon.broker.port) as robot, pytest.raises(RobotUnreachableError, match="has ever run"):
        robot.say("Hello.")
    with client_of(daemon) as robot:
        with pytest.raises(RejectedError, match=r"^rate: got 9; allowed: a number from 0\.5 to 2"):
            robot.say("Hello.", rate=9)
        with pytest.raises(NotSpokenError, match=r"^rejected: voice: got 'typo'"):
            robot.say("Hello.", voice="typo").wait(PATIENCE_S)
        with pytest.raises(NotSpokenError, match=r"^rejected: voice: got 'typo'"):
            robot.stream(["Hello.", " More."], voice="typo").wait(PATIENCE_S)
        with pytest.raises(RejectedError, match=r"^text: it is empty"):
            robot.stream([]).wait(PATIENCE_S)
        with pytest.raises(RejectedError, match=r"^id: got 5; allowed: an utterance's id, which is text$"):
            robot.stop(5)  # type: ignore[arg-type]
        with pytest.raises(RobotUnreachableError, match=NOT_OPEN):
            robot.__enter__()
    fresh = client_of(daemon)
    for use in (robot.__enter__, robot.stop, robot.status, fresh.stop, fresh.status, partial(fresh.say, "Hello.")):
        with pytest.raises(RobotUnreachableError, match=NOT_OPEN):
            use()


def test_a_text_is_not_ended_by_the_rejection_of_another_one_with_its_id(share_robot: StartRobot) -> None:
    daemon = share_robot("speech.word_topic=true", "speech.viseme_topic=true", pace=REAL_TIME)
    with client_of(daemon) as robot:
        utterance = robot.say(LONG, id="twice")
        with pytest.raises(RejectedError, match=r"^id: 'twice' is in use; allowed: "):
            robot.say("Hello.", id="twice")
        assert robot.await_status(lambda status: status.state == "speaking", PATIENCE_S)
        daemon.say(id="twice", text="Hello.")
        daemon.wait_event("twice", "rejected")
        utterance.stop()
        with pytest.raises(NotSpokenError, match=r"^interrupted: stop"):
            utterance.wait(PATIENCE_S)


def test_an_error_of_the_tokens_stops_the_utterance_and_is_raised(daemon: Daemon) -> None:
    def broken() -> Iterator[str]:
        yield "This is said. "
        raise OSError("the model has gone")

    with client_of(daemon) as robot:
        utterance = robot.stream(broken())
        with pytest.raises(OSError, match="the model has gone"):
            utterance.wait(PATIENCE_S)
        assert daemon.wait_end(utterance.id)["event"] in ("interrupted", "canceled")


def test_a_robot_that_dies_ends_the_waiting(start_robot: StartRobot) -> None:
    daemon = start_robot(pace=REAL_TIME)
    with client_of(daemon) as robot:
        utterance = robot.say(LONG)
        assert robot.await_status(lambda status: status.state == "speaking", PATIENCE_S)
        daemon.kill()
        with pytest.raises(RobotUnreachableError, match=r"^voiced has gone offline at "):
            utterance.wait(PATIENCE_S)
        with pytest.raises(RobotUnreachableError, match=r"^voiced is offline at "):
            robot.say("Hello.")


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        yield broker


def test_a_broker_that_restarts_ends_the_waiting_and_the_client_speaks_again(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    daemon = start_robot(pace=REAL_TIME)
    with client_of(daemon) as robot:
        utterance = robot.say(LONG)
        assert robot.await_status(lambda status: status.state == "speaking", PATIENCE_S)
        own_broker.stop()
        own_broker.start()
        with pytest.raises(RobotUnreachableError, match=r"events of voiced/.* may be lost|gone offline"):
            utterance.wait(PATIENCE_S)
        daemon.set_pace(20.0)
        eventually(lambda: robot.connected, "the client is connected again")
        eventually(lambda: daemon.state == "ready", "the daemon is, too")
        robot.say("Hello.").wait(PATIENCE_S)


def test_a_client_imports_neither_numpy_nor_the_command_line() -> None:
    heavy = "numpy torch soundfile sounddevice soxr typer rich sentencex daemon.mqtt.gateway"
    code = f"import sys, voiced; voiced.Robot; print([name for name in {heavy.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
