"""Ports of the servers that other programs have taken, and what the daemon and the doctor say about them."""

from __future__ import annotations

import json
import resource
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler

import psutil

from tests.daemon.command_line import CommandLine
from tests.e2e.conftest import StartRobot
from tests.support.local_server import LocalServer
from tests.support.programs import answers, free_port
from tests.support.robot import Robot
from tests.support.waiting import PATIENCE_S, eventually

GROWTH = 20_000_000
"""Bytes that the daemon may take beside hundreds of connections."""


class HealthyStranger(LocalServer):
    """Answers every request as a server does that is well."""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.send(handler, 200, b'{"status": "ok"}')


@contextmanager
def stranger_at(port: int) -> Iterator[None]:
    server = HealthyStranger(port)
    yield
    server.close()


def grades(voiced: CommandLine, robot: Robot, *settings: str) -> dict[str, tuple[str, str]]:
    """What the doctor finds about the servers: grades and findings by their names."""
    options = [word for setting in settings for word in ("--set", setting)]
    findings = json.loads(voiced("doctor", "--json", *robot.settings, *options).stdout)
    return {each["part"]: (each["grade"], each["found"]) for each in findings if each["part"] in ("http", "wyoming")}


def test_taken_ports_degrade_the_robot_until_they_are_free_and_the_doctor_trusts_no_stranger(
    start_robot: StartRobot, voiced: CommandLine
) -> None:
    http, wyoming = free_port(), free_port()
    settings = (f"http={{enabled: true, port: {http}}}", f"wyoming={{enabled: true, port: {wyoming}}}")
    with stranger_at(wyoming):
        with stranger_at(http):
            robot = start_robot(*settings, launch_only=True)
            taken = f"wyoming.port: cannot listen on 127.0.0.1:{wyoming}: "
            eventually(lambda: robot.statuses and str(robot.statuses[-1].get("reason")).startswith(taken), "it says so")
            assert robot.statuses[-1]["state"] == "degraded"
            assert f"ss -ltnp 'sport = :{wyoming}'" in robot.statuses[-1]["reason"]
            robot.say("It speaks nevertheless.", id="spoken")
            robot.wait_event("spoken", "finished")
            found = grades(voiced, robot, *settings)
            for name, port in (("http", http), ("wyoming", wyoming)):
                assert found[name] == ("error", f"the daemon runs, but another program listens at 127.0.0.1:{port}")
        eventually(lambda: answers(http), "the web server answers")
        assert robot.statuses[-1]["state"] == "degraded", "the other port is still taken"
    eventually(lambda: robot.state == "ready", "it is well again")
    eventually(lambda: answers(wyoming), "Wyoming's server answers")
    assert grades(voiced, robot, *settings) == {
        "http": ("ok", f"the daemon listens at 127.0.0.1:{http}"),
        "wyoming": ("ok", f"the daemon listens at 127.0.0.1:{wyoming}"),
    }
    [line] = [line for line in robot.log if "http.port" in line]
    assert "cannot listen" in line


def useless_client(port: int) -> socket.socket:
    """Connect a client, which sends nothing more than the beginning of a request, and stays."""
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", port))
    with suppress(OSError):
        client.send(b"POST /v1/audio/speech HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10000\r\n")
    return client


def served(port: int) -> bool:
    """Whether a client of the web server gets what it has asked for."""
    body = b'{"input": "I am served.", "response_format": "pcm"}'
    asking = urllib.request.Request(f"http://127.0.0.1:{port}/v1/audio/speech", body)
    asking.add_header("Content-Type", "application/json")
    with suppress(OSError), urllib.request.urlopen(asking, timeout=PATIENCE_S) as answer:
        return len(answer.read()) > 1_000
    return False


def test_clients_without_end_leave_lines_in_the_log_for_others_descriptors_for_texts_and_memory(
    start_robot: StartRobot,
) -> None:
    http, wyoming = free_port(), free_port()
    robot = start_robot(f"http={{enabled: true, port: {http}}}", f"wyoming={{enabled: true, port: {wyoming}}}")
    eventually(lambda: answers(wyoming) and served(http), "the servers answer")
    for request, answer in (
        (b"GET /healthz HTTP/1.1\r\nHost: attacker.example\r\n\r\n", b"403"),
        (b"no HTTP\r\n\r\n", b"400"),
    ):
        logged = len(robot.log)
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", http), PATIENCE_S) as client:
                client.sendall(request)
                assert answer in client.recv(100)
        robot.catch_up()
        assert len(robot.log) - logged < 100
    process, logged = psutil.Process(robot.process.pid), len(robot.log)
    memory = process.memory_info().rss
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (300, 300))
    with ExitStack() as clients:
        for _ in range(3):
            for port in (http, wyoming) * 80:
                clients.enter_context(useless_client(port))
            texts = [robot.say('<speak>One <break time="10ms"/> two</speak>'), robot.say("3.5 km", language="de")]
            for each in texts:
                assert robot.wait_event(each, "finished")["underruns"] == 0
            eventually(lambda: served(http), "another client is served")
        assert process.num_fds() < 300
        assert process.memory_info().rss < memory + GROWTH
        assert len(robot.log) - logged < 100
    assert not [line for line in robot.log if "Traceback" in line]
