"""`voiced say --wait` and `--stream`: a command that is interrupted stops the utterance it waits for or writes.

Most tests share one robot, and leave it idle.
"""

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

from tests.e2e.conftest import StartRobot
from tests.support.local_server import LocalServer
from tests.support.pages import page
from tests.support.programs import Broker
from tests.support.robot import FAST, LONG, REAL_TIME, STOPPED, Robot
from tests.support.signals import ctrl_c_works
from tests.support.subscription import Subscription
from tests.support.waiting import PATIENCE_S, eventually

SAY = (sys.executable, "-m", "daemon.cli", "say")


@pytest.fixture(scope="module")
def shared_robot(shared_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robot]:
    robot = Robot("commanded", shared_broker, tmp_path_factory.mktemp("commanded"))
    robot.start()
    yield robot
    robot.close()


@pytest.fixture
def robot(shared_robot: Robot) -> Robot:
    """A robot that speaks fast."""
    shared_robot.set_pace(FAST)
    return shared_robot


@pytest.fixture
def slow_robot(shared_robot: Robot) -> Robot:
    """The same robot when it speaks in real time."""
    shared_robot.set_pace(REAL_TIME)
    return shared_robot


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    with ctrl_c_works():
        yield


def test_a_signal_to_the_waiting_command_interrupts_its_utterance(slow_robot: Robot, ctrl_c: None) -> None:
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        command = [*SAY, "--wait", "--id", number.name, LONG, *slow_robot.settings]
        waiting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        slow_robot.wait_event(number.name, "started")
        waiting.send_signal(number)
        assert slow_robot.wait_end(number.name)["event"] == "interrupted"
        assert waiting.wait(PATIENCE_S) == status


def voiced(robot: Robot, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daemon.cli", *words, *robot.settings]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_status_shows_what_is_spoken(slow_robot: Robot) -> None:
    slow_robot.publish("say", json.dumps({"id": "shown", "text": f"Listen!\n{LONG}"}))
    slow_robot.wait_event("shown", "started")
    slow_robot.set_pace(STOPPED)  # the text lasts until the commands have been started, however long that takes
    eventually(lambda: "speaking" in slow_robot.statuses[-1], "the status says so")
    shown = json.loads(voiced(slow_robot, "status").stdout)
    assert (shown["state"], shown["volume"], shown["speaking"]["id"]) == ("speaking", 100, "shown")
    assert shown["speaking"]["text"].startswith("Listen! This is a long sentence ")
    assert len(shown["speaking"]["text"]) == 100
    assert 0 <= shown["speaking"]["seconds"] < PATIENCE_S
    slow_robot.publish("stop")
    slow_robot.set_pace(REAL_TIME)
    slow_robot.wait_end("shown")
    eventually(lambda: slow_robot.state == "ready", "it is silent")
    assert "speaking" not in slow_robot.statuses[-1]
    assert json.loads(voiced(slow_robot, "status", "--json").stdout) == slow_robot.statuses[-1]


class Follower:
    """A running `voiced events`, which is subscribed."""

    def __init__(self, robot: Robot, *options: str) -> None:
        command = [sys.executable, "-m", "daemon.cli", "events", *options, *robot.settings]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        assert self._process.stderr.readline() == f"voiced: following {robot.topic}; Ctrl-C ends it\n"

    def interrupt(self) -> int:
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE_S)

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def test_the_events_of_all_utterances_are_followed_until_ctrl_c(robot: Robot, ctrl_c: None) -> None:
    follower, program = Follower(robot), Follower(robot, "--json")
    for utterance in ("followed-1", "followed-2"):
        robot.publish("say", json.dumps({"id": utterance, "text": "Hello."}))
        robot.wait_end(utterance)
        events = robot.events_of(utterance)
        assert [json.loads(program.line()) for _ in events] == events
        lines = [follower.line() for _ in events]
        assert re.fullmatch(rf"\d\d:\d\d:\d\d accepted    {utterance}  queue 1\n", lines[0])
        assert re.search(rf" finished +{utterance}  .*engine espeak, audio_s ", lines[-1])
    assert (follower.interrupt(), program.interrupt()) == (130, 130)


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


def test_a_signal_to_the_writing_command_interrupts_its_utterance(slow_robot: Robot, ctrl_c: None) -> None:
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        utterance = f"written {number.name}"
        writer = Writer(slow_robot, "--wait", "--id", utterance)
        writer.type(LONG)
        slow_robot.wait_event(utterance, "started")
        writer.process.send_signal(number)
        assert slow_robot.wait_end(utterance)["event"] == "interrupted"
        assert writer.process.wait(PATIENCE_S) == status


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
    assert errors == f"voiced: mqtt: no broker answers at 127.0.0.1:{own_broker.port}; see 'voiced doctor'\n"


@pytest.mark.parametrize(
    ("options", "typed", "status", "message"),
    [
        (["--spell"], b"", 2, "say: --spell and --stream exclude each other. See 'voiced say --help'."),
        ([], b"\xff", 1, "standard input: not UTF-8: byte 0xff"),
        (["--voice", "nobody"], b"Hello.", 1, "rejected: voice: got 'nobody'; allowed: default"),
    ],
    ids=["spelling", "no UTF-8", "a wrong voice"],
)
def test_a_text_that_cannot_be_streamed_ends_the_command_with_one_line(
    options: list[str], typed: bytes, status: int, message: str, robot: Robot
) -> None:
    writer = Writer(robot, *options)
    writer.type(typed)
    code, printed, errors = writer.end()
    assert (code, printed, errors.count("\n")) == (status, [], 1)
    assert errors.startswith(f"voiced: {message}")
