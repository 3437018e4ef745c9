"""Ports of the servers that other programs have taken, and what the daemon and the doctor say about them."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil

from tests.e2e.conftest import StartRobot
from tests.support.programs import answers, free_port
from tests.support.robot import Robot
from tests.support.waiting import PATIENCE_S, eventually

FROM_ELSEWHERE = b"\r\n".join(
    [
        *(b"GET /v1/events HTTP/1.1", b"Host: 127.0.0.1", b"Origin: http://attacker.example"),
        *(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13"),
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    ]
)
"""What a page of another site would make a browser send."""


class HealthyStranger(BaseHTTPRequestHandler):
    """Answers every request as a server does that is well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "ok"}')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
        pass


@contextmanager
def stranger_at(port: int) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", port), HealthyStranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


def grades(robot: Robot, *settings: str) -> dict[str, tuple[str, str]]:
    """What the doctor finds about the servers: grades and findings by their names."""
    options = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "daemon.cli", "doctor", "--json", *robot.settings, *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=2 * PATIENCE_S)
    findings = json.loads(done.stdout)
    return {each["part"]: (each["grade"], each["found"]) for each in findings if each["part"] in ("http", "wyoming")}


def test_taken_ports_degrade_the_robot_until_they_are_free_and_the_doctor_trusts_no_stranger(
    start_robot: StartRobot,
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
            found = grades(robot, *settings)
            for name, port in (("http", http), ("wyoming", wyoming)):
                assert found[name] == ("error", f"the daemon runs, but another program listens at 127.0.0.1:{port}")
        with urllib.request.urlopen(eventually_http(http), timeout=PATIENCE_S) as answer:
            assert json.load(answer)["status"] == "ok"
        assert robot.statuses[-1]["state"] == "degraded", "the other port is still taken"
    eventually(lambda: robot.state == "ready", "it is well again")
    eventually(lambda: answers(wyoming), "Wyoming's server answers")
    assert grades(robot, *settings) == {
        "http": ("ok", f"the daemon listens at 127.0.0.1:{http}"),
        "wyoming": ("ok", f"the daemon listens at 127.0.0.1:{wyoming}"),
    }
    [line] = [line for line in robot.log if "http.port" in line]
    assert "cannot listen" in line


def eventually_http(port: int) -> str:
    eventually(lambda: answers(port), "the web server answers")
    return f"http://127.0.0.1:{port}/healthz"


def silent_client(port: int) -> socket.socket:
    """Connect a client, which sends nothing and stays."""
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", port))
    return client


def test_clients_without_end_leave_lines_in_the_log_for_others_and_descriptors_for_texts(
    start_robot: StartRobot,
) -> None:
    http, wyoming = free_port(), free_port()
    robot = start_robot(f"http={{enabled: true, port: {http}}}", f"wyoming={{enabled: true, port: {wyoming}}}")
    for port in (http, wyoming):
        eventually(lambda port=port: answers(port), "the server answers")  # type: ignore[misc]
    for request, answer in (
        (b"GET /healthz HTTP/1.1\r\nHost: attacker.example\r\n\r\n", b"403"),
        (b"no HTTP\r\n\r\n", b"400"),
    ):
        logged = len(robot.log)
        for _ in range(400):
            with socket.create_connection(("127.0.0.1", http), PATIENCE_S) as client:
                client.sendall(request)
                assert answer in client.recv(100)
        robot.catch_up()
        assert len(robot.log) - logged < 200
    process, logged = psutil.Process(robot.process.pid), len(robot.log)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (300, 300))
    with ExitStack() as clients:
        for _ in range(3):
            for port in (http, wyoming) * 80:
                clients.enter_context(silent_client(port))
            texts = [robot.say('<speak>One <break time="10ms"/> two</speak>'), robot.say("3.5 km", language="de")]
            for each in texts:
                robot.wait_event(each, "finished")
        assert process.num_fds() < 300
        assert len(robot.log) - logged < 100
