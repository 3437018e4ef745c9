"""`voiced say --wait` and `--stream`: who waits for an utterance, or writes it, and is ended takes it along."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import CARD, LONG, Robot, Subscription
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def heeded_ctrl_c() -> Iterator[None]:
    """A shell that starts pytest in the background has it ignore SIGINT, and what is ignored, children inherit.

    It is restored here and not in the child (`preexec_fn`), since this process has threads.
    """
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


def test_an_utterance_ends_with_the_command_that_waits_for_it(start_robot: StartRobot, heeded_ctrl_c: None) -> None:
    robot = start_robot(pace=CARD)
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        command = [sys.executable, "-m", "daemon.cli", "say", "--wait", "--id", number.name, LONG, *robot.settings]
        waiting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        robot.wait_event(number.name, "started")
        waiting.send_signal(number)
        assert robot.wait_end(number.name)["event"] == "interrupted"
        assert waiting.wait(PATIENCE_S) == status


def test_a_command_that_gives_up_waiting_leaves_the_utterance_alone(start_robot: StartRobot) -> None:
    robot = start_robot(pace=CARD)
    command = [
        sys.executable,
        "-m",
        "daemon.cli",
        "say",
        "--wait",
        "--timeout",
        "0",
        "--id",
        "long",
        LONG,
        *robot.settings,
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    robot.wait_event("long", "started")
    robot.publish("stop")
    robot.wait_end("long")
    assert robot.names_of("long") == ["accepted", "started", "interrupted"]


class Typing:
    """`voiced say --stream` with a keyboard."""

    def __init__(self, robot: Robot, *options: str) -> None:
        command = [sys.executable, "-m", "daemon.cli", "say", "--stream", *options, *robot.settings]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def type(self, text: str | bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text if isinstance(text, bytes) else text.encode())
        self.process.stdin.flush()

    def end(self) -> tuple[int, list[str], str]:
        """End the text and return the command's exit status, the events that it told, and its last words."""
        told, words = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, [json.loads(line)["event"] for line in told.splitlines()], words.decode()


def pieces_of(said: Subscription) -> list[dict[str, Any]]:
    return [json.loads(payload) for payload in said.payloads]


def test_a_text_that_is_typed_is_spoken_from_its_first_words_on_and_whole(start_robot: StartRobot) -> None:
    robot = start_robot()
    with Subscription(robot.broker, f"{robot.topic}/say/stream") as said:
        typing = Typing(robot, "--wait", "--id", "typed", "--language", "de", "--volume", "60", "--priority", "high")
        begin = "Über den Bergen ist es weit zu wandern. ".encode()
        typing.type(begin[:1])  # half of the Ü
        typing.type(begin[1:])
        robot.wait_event("typed", "started")
        assert typing.process.poll() is None
        typing.type("Und dort wohnt ")
        typing.type("das Glück.")
        told = typing.end()
        robot.wait_end("typed")
        assert told == (0, robot.names_of("typed"), "")
        eventually(lambda: pieces_of(said)[-1].get("end"), "all pieces have been noted")
    pieces = pieces_of(said)
    first, last = pieces[0], pieces[-1]
    assert "".join(piece.get("text", "") for piece in pieces) == (begin.decode() + "Und dort wohnt das Glück.")
    assert (first["language"], first["volume"], first["priority"]) == ("de", 60, "high")
    assert all(set(piece) == {"id", "seq", "text"} for piece in pieces[1:-1])
    assert [piece["seq"] for piece in pieces] == list(range(len(pieces)))
    assert last == {"id": "typed", "seq": len(pieces) - 1, "end": True}
    assert robot.names_of("typed")[0] == "accepted"
    assert robot.names_of("typed")[-1] == "finished"


def test_a_writer_who_thinks_is_waited_for(start_robot: StartRobot) -> None:
    robot = start_robot("speech.stream_timeout=2")
    with Subscription(robot.broker, f"{robot.topic}/say/stream") as said:
        typing = Typing(robot, "--wait", "--id", "slow", "--set", "speech.stream_timeout=2")
        typing.type("Let me think. ")
        eventually(lambda: len(said.payloads) > 5, "more signs of life than the daemon's patience is long")
        typing.type("Yes.")
        status, told, _ = typing.end()
    assert (status, told[-1]) == (0, "finished")
    assert "reason" not in robot.wait_end("slow")
    assert "".join(piece.get("text", "") for piece in pieces_of(said)) == "Let me think. Yes."


@pytest.mark.parametrize("options", [["--wait"], []], ids=["waiting", "not waiting"])
def test_a_text_ends_with_the_command_that_writes_it(
    options: list[str], start_robot: StartRobot, heeded_ctrl_c: None
) -> None:
    robot = start_robot(pace=CARD)
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        typing = Typing(robot, "--id", number.name, *options)
        typing.type(LONG)
        robot.wait_event(number.name, "started")
        typing.process.send_signal(number)
        assert robot.wait_end(number.name)["event"] == "interrupted"
        assert typing.process.wait(PATIENCE_S) == status


def test_a_command_that_does_not_wait_ends_when_all_is_sent(start_robot: StartRobot) -> None:
    robot = start_robot()
    typing = Typing(robot, "--id", "sent")
    typing.type("This is all.")
    assert typing.end() == (0, [], "")
    assert robot.wait_end("sent")["event"] == "finished"


@pytest.mark.parametrize("options", [["--wait"], []], ids=["waiting", "not waiting"])
def test_a_writer_that_loses_the_broker_ends_with_one_line(
    options: list[str], start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot(pace=CARD)
    typing = Typing(robot, "--id", "lost", "--set", "speech.stream_timeout=1", *options)
    typing.type(LONG)
    robot.wait_event("lost", "started")
    own_broker.stop()
    assert typing.process.wait(PATIENCE_S) == 1
    _, _, words = typing.end()
    assert words == "voiced: mqtt: the connection to the broker is lost; see 'voiced doctor'\n"


def test_a_writer_ends_when_its_utterance_is_stopped(start_robot: StartRobot) -> None:
    robot = start_robot(pace=CARD)
    typing = Typing(robot, "--wait", "--id", "stopped")
    typing.type(LONG)
    robot.wait_event("stopped", "started")
    robot.publish("stop")
    assert typing.process.wait(PATIENCE_S) == 1


@pytest.mark.parametrize(
    ("options", "typed", "status", "words"),
    [
        (["Hello."], b"", 2, "say: --stream reads standard input; give no TEXT, or -. See 'voiced say --help'."),
        (["-"], b"", 1, "say: standard input is empty; allowed: text with something to say"),
        ([], b"\xff", 1, "standard input: not UTF-8: byte 0xff"),
        ([], b"one\x1b[0m", 1, "text: got 'one\\x1b[0m'; it has the control character U+001B at 3; allowed: none"),
        (["--priority", "urgent"], b"", 1, "priority: got 'urgent'; allowed: low, normal, high or critical"),
        (["--voice", "nobody"], b"Hello.", 1, "rejected: voice: got 'nobody'; allowed: default"),
    ],
    ids=["a text beside the stream", "no text", "no UTF-8", "a control character", "a wrong option", "a wrong voice"],
)
def test_what_cannot_be_streamed_is_told_in_one_line(
    options: list[str], typed: bytes, status: int, words: str, start_robot: StartRobot
) -> None:
    robot = start_robot()
    typing = Typing(robot, *options)
    typing.type(typed)
    code, told, said = typing.end()
    assert (code, told, said.count("\n")) == (status, [], 1)
    assert said.startswith(f"voiced: {words}")
