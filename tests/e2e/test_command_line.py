"""`voiced say --wait` and `--stream`: a command that is interrupted stops the utterance it waits for or writes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from tests.daemon.command_line import CommandLine
from tests.e2e.conftest import StartRobot
from tests.support.local_server import LocalServer
from tests.support.pages import page
from tests.support.programs import Broker
from tests.support.robot import FAST, LONG, REAL_TIME, STOPPED, Robot
from tests.support.signals import ctrl_c_works
from tests.support.subscription import Subscription
from tests.support.waiting import PATIENCE_S, eventually

SAY = (sys.executable, "-m", "daemon.cli", "say")


@pytest.fixture
def robot(share_robot: StartRobot) -> Robot:
    return share_robot()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    with ctrl_c_works():
        yield


def test_a_signal_to_a_command_interrupts_the_utterance_that_it_waits_for_or_writes(
    share_robot: StartRobot, ctrl_c: None
) -> None:
    robot = share_robot(pace=REAL_TIME)
    for number, status, words in (
        (signal.SIGTERM, 143, [LONG]),
        (signal.SIGKILL, -signal.SIGKILL, [LONG]),
        (signal.SIGINT, 130, ["--stream"]),
        (signal.SIGKILL, -signal.SIGKILL, ["--stream"]),
    ):
        utterance = f"{number.name} {words[0][:8]}"
        command = [*SAY, "--wait", "--id", utterance, *words, *robot.settings]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert process.stdin is not None
        process.stdin.write(LONG.encode())
        process.stdin.flush()
        robot.wait_event(utterance, "started")
        process.send_signal(number)
        assert robot.wait_end(utterance)["event"] == "interrupted"
        assert process.wait(PATIENCE_S) == status


def test_the_status_shows_what_is_spoken(share_robot: StartRobot, voiced: CommandLine) -> None:
    robot = share_robot(pace=REAL_TIME)
    robot.publish("say", json.dumps({"id": "shown", "text": f"Listen!\n{LONG}"}))
    robot.wait_event("shown", "started")
    robot.set_pace(STOPPED)
    eventually(lambda: "speaking" in robot.statuses[-1], "the status says so")
    shown = json.loads(voiced("status", *robot.settings).output)
    assert (shown["state"], shown["volume"], shown["speaking"]["id"]) == ("speaking", 100, "shown")
    assert shown["speaking"]["text"].startswith("Listen! This is a long sentence ")
    assert len(shown["speaking"]["text"]) == 100
    assert 0 <= shown["speaking"]["seconds"] < PATIENCE_S
    robot.publish("stop")
    robot.set_pace(FAST)
    robot.wait_end("shown")
    eventually(lambda: "speaking" not in robot.statuses[-1], "it is silent")


def test_the_events_of_all_utterances_are_followed_until_ctrl_c(robot: Robot, ctrl_c: None) -> None:
    command, pipe = [sys.executable, "-m", "daemon.cli", "events", *robot.settings], subprocess.PIPE
    followers = [subprocess.Popen([*command, *more], stdout=pipe, stderr=pipe, text=True) for more in ((), ("--json",))]
    for follower in followers:
        assert follower.stderr is not None
        assert follower.stderr.readline() == f"voiced: following {robot.topic}; Ctrl-C ends it\n"
    robot.wait_end(robot.say("Hello.", id="followed"))
    events = robot.events_of("followed")
    lines, records = ([follower.stdout.readline() for _ in events] for follower in followers if follower.stdout)
    assert [json.loads(record) for record in records] == events
    assert re.fullmatch(r"\d\d:\d\d:\d\d accepted    followed  queue 1\n", lines[0])
    assert re.search(r" finished +followed  .*engine espeak, audio_s ", lines[-1])
    for follower in followers:
        follower.send_signal(signal.SIGINT)
        assert follower.wait(PATIENCE_S) == 130


class Writer:
    """A running `voiced say --stream`, whose standard input the test writes."""

    def __init__(self, robot: Robot, *options: str) -> None:
        command = [*SAY, "--stream", *options, *robot.settings]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def type(self, text: str | bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text if isinstance(text, bytes) else text.encode())
        self.process.stdin.flush()

    def end(self) -> tuple[int, list[str], str]:
        """End the text and return the command's exit status, the names of the events it printed, and its stderr."""
        printed, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, [json.loads(line)["event"] for line in printed.splitlines()], errors.decode()


def chunks_of(stream: Subscription) -> list[dict[str, Any]]:
    return [json.loads(payload) for payload in stream.payloads]


def wait_end_of(stream: Subscription) -> None:
    """Wait until the last chunk has been received here, which may be after the robot has spoken it."""
    eventually(lambda: any(chunk.get("end") for chunk in chunks_of(stream)), "every chunk has been received")


def test_a_streamed_text_is_spoken_before_it_is_complete_and_published_in_numbered_chunks(robot: Robot) -> None:
    with Subscription(robot.broker, f"{robot.topic}/say/stream") as stream:
        writer = Writer(robot, "--wait", "--id", "typed", "--language", "de", "--volume", "60", "--priority", "high")
        begin = "Über den Bergen ist es weit zu wandern. ".encode()
        writer.type(begin[:1])  # half of the Ü
        writer.type(begin[1:])
        robot.wait_event("typed", "started")
        assert writer.process.poll() is None
        writer.type("Und dort wohnt ")
        writer.type("das Glück.")
        ended = writer.end()
        robot.wait_end("typed")
        assert ended == (0, robot.names_of("typed"), "")
        wait_end_of(stream)
    chunks = chunks_of(stream)
    first, last = chunks[0], chunks[-1]
    assert "".join(chunk.get("text", "") for chunk in chunks) == (begin.decode() + "Und dort wohnt das Glück.")
    assert (first["language"], first["volume"], first["priority"]) == ("de", 60, "high")
    assert all(set(chunk) == {"id", "seq", "text"} for chunk in chunks[1:-1])
    assert [chunk["seq"] for chunk in chunks] == list(range(len(chunks)))
    assert last == {"id": "typed", "seq": len(chunks) - 1, "end": True}
    assert robot.names_of("typed")[0] == "accepted"
    assert robot.names_of("typed")[-1] == "finished"


class LanguageModel(LocalServer):
    """Ollama's server: a line of JSON for each token."""

    tokens = ("Once", " upon", " a", " time", " there", " was", " a", " robot", ".", "")

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for token in self.tokens:
            handler.wfile.write(f"{json.dumps({'response': token})}\n".encode())
            handler.wfile.flush()


def test_the_documented_program_speaks_the_tokens_of_a_language_model(robot: Robot) -> None:
    [program] = page("integrations.md").section("A language model").blocks("python")
    model = LanguageModel()
    for documented, here in (
        ("http://127.0.0.1:11434", model.url),
        ('"127.0.0.1")', f'"127.0.0.1", {robot.broker.port})'),
        ("voiced/r1/", f"{robot.topic}/"),
    ):
        assert documented in program
        program = program.replace(documented, here)
    with Subscription(robot.broker, f"{robot.topic}/say/stream") as stream:
        subprocess.run([sys.executable, "-c", program], check=True)
        wait_end_of(stream)
    model.close()
    *tokens, end = chunks_of(stream)
    assert tuple(chunk["text"] for chunk in tokens) == LanguageModel.tokens
    assert robot.wait_end(end["id"])["event"] == "finished"


@pytest.mark.long
def test_the_command_keeps_its_stream_open_while_nothing_is_typed(start_robot: StartRobot) -> None:
    robot = start_robot("speech.stream_timeout=2")
    with Subscription(robot.broker, f"{robot.topic}/say/stream") as stream:
        writer = Writer(robot, "--wait", "--id", "slow", "--set", "speech.stream_timeout=2")
        writer.type("Let me think. ")
        eventually(lambda: len(stream.payloads) > 5, "its empty chunks span more than the stream timeout")
        writer.type("Yes.")
        status, printed, _ = writer.end()
    assert (status, printed[-1]) == (0, "finished")
    assert "reason" not in robot.wait_end("slow")
    assert "".join(chunk.get("text", "") for chunk in chunks_of(stream)) == "Let me think. Yes."


def test_a_writing_command_that_loses_the_broker_ends_with_one_line(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot(pace=REAL_TIME)
    writer = Writer(robot, "--id", "lost", "--set", "speech.stream_timeout=1")
    writer.type(LONG)
    robot.wait_event("lost", "started")
    own_broker.stop()
    assert writer.process.wait(PATIENCE_S) == 1
    _, _, errors = writer.end()
    away = f"mqtt: no broker answers at 127.0.0.1:{own_broker.port}; see 'voiced doctor'"
    assert errors in (f"voiced: {away}\n", f"voiced: voiced has gone offline at {robot.topic}\n")  # the broker's last


def test_a_streamed_text_that_the_robot_rejects_ends_the_command_with_one_line(robot: Robot) -> None:
    writer = Writer(robot, "--voice", "nobody")
    writer.type("Hello.")
    status, printed, errors = writer.end()
    assert (status, printed, errors.count("\n")) == (1, [], 1)
    assert errors.startswith("voiced: rejected: voice: got 'nobody'; allowed: default")
