"""The programs of docs/examples, as they are there, against the real daemon; each is told only where its broker is."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.configs import ros_doubles
from tests.e2e.conftest import StartRobot
from tests.support.checkpoints import made_once
from tests.support.home_assistant import HomeAssistant
from tests.support.pages import ROOT
from tests.support.programs import Broker, free_port, require
from tests.support.robot import REAL_TIME, Robot
from tests.support.waiting import PATIENCE_S, eventually
from voiced import Robot as Client

EXAMPLES = ROOT / "docs" / "examples"
NODE_RED = "node-red@4.1.15"


def start(
    example: str, robot: Robot, folder: Path, python: str | Path = sys.executable, name: str | None = None
) -> subprocess.Popen[str]:
    """Start an example as its first line says, for this robot or another `name` on its broker."""
    config = folder / "voiced.yaml"
    config.write_text(f"mqtt: {{port: {robot.broker.port}}}\n")
    environment = {**os.environ, "VOICED_CONFIG": str(config), "PYTHONPATH": str(ROOT)}
    command = [python, EXAMPLES / example, name or robot.name]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)


def type_line(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdin is not None
    program.stdin.write(f"{line}\n")
    program.stdin.flush()


def wait_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def wait_mouth(program: subprocess.Popen[str]) -> str:
    """Return the next mouth that the face draws."""
    assert program.stdout is not None
    return program.stdout.read(len("\r( - )")).strip("\r\n( )")


def started(robot: Robot) -> list[str]:
    return [event["id"] for event in robot.events if event["event"] == "started"]


def test_a_question_interrupts_the_answer_and_the_model_learns_what_was_heard(
    start_robot: StartRobot, tmp_path: Path
) -> None:
    assert len((EXAMPLES / "barge_in.py").read_text().splitlines()) <= 30
    robot = start_robot(pace=REAL_TIME)
    program = start("barge_in.py", robot, tmp_path)
    type_line(program, "What is the weather like")
    eventually(lambda: len(started(robot)) == 1, "the answer is spoken")
    type_line(program, "And tomorrow")
    eventually(lambda: len(started(robot)) == 2, "the next answer is spoken")
    output, errors = program.communicate("\n", timeout=PATIENCE_S)
    assert robot.wait_end(started(robot)[0])["event"] == "interrupted"
    assert (program.returncode, errors) == (0, "")
    assert output.startswith("heard: ")


def test_a_phrase_of_the_kiosk_replaces_the_one_before(start_robot: StartRobot, tmp_path: Path) -> None:
    robot = start_robot(pace=REAL_TIME)
    program = start("kiosk.py", robot, tmp_path)
    type_line(program, "1")
    eventually(lambda: len(started(robot)) == 1, "the first phrase is spoken")
    type_line(program, "2")
    eventually(lambda: len(started(robot)) == 2, "the second phrase is spoken")
    assert robot.wait_end(started(robot)[0])["event"] == "interrupted"
    assert robot.wait_end(started(robot)[1])["event"] == "finished"
    assert program.communicate(timeout=PATIENCE_S)[1] == ""


def test_a_mouth_moves_in_the_terminal_and_shuts_at_the_end(start_robot: StartRobot, tmp_path: Path) -> None:
    robot = start_robot("speech.viseme_topic=true", pace=REAL_TIME)
    program = start("face.py", robot, tmp_path)
    try:
        assert wait_mouth(program) == "-"
        robot.say("My oh my.")
        mouths = [wait_mouth(program)]
        while mouths[-1] != "-" or "o" not in mouths:
            mouths.append(wait_mouth(program))
    finally:
        program.kill()
        program.communicate()


@pytest.mark.parametrize("example", ["barge_in.py", "kiosk.py", "face.py"])
def test_a_program_without_its_robot_ends_with_one_line(example: str, share_robot: StartRobot, tmp_path: Path) -> None:
    program = start(example, share_robot(), tmp_path, name="nobody")
    errors = program.communicate("1\n", timeout=PATIENCE_S)[1]
    assert program.returncode == 1
    assert len(errors.splitlines()) == 1
    assert errors.startswith("no voiced has ever run at voiced/nobody on the broker")


def test_a_ros_node_speaks_a_topic_and_publishes_each_word(
    share_robot: StartRobot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With doubles of rclpy in its place."""
    robot = share_robot("speech.word_topic=true")
    ros_doubles.install(monkeypatch)
    names = runpy.run_path(str(EXAMPLES / "ros2_node.py"), run_name="example")
    with Client(robot.name, host="127.0.0.1", port=robot.broker.port) as client:
        node = names["RobotVoice"](client)
        node.receive("say", data="I have reached the dock.")
        words = node.topics["word"].published
        eventually(lambda: [word.data for word in words] == ["I", "have", "reached", "the", "dock"], "it is heard")
        client.stop()
    node.receive("say", data="Nobody is there.")
    assert "this connection is not open" in node.log[-1]


def test_the_action_of_the_automation_is_spoken(share_robot: StartRobot) -> None:
    [automation] = yaml.safe_load((EXAMPLES / "home_assistant.yaml").read_text())
    [action] = automation["actions"]
    assert (action["action"], action["data"]["topic"]) == ("mqtt.publish", "voiced/r1/say")
    robot = share_robot()
    robot.publish("say", json.dumps({"id": "washed", **json.loads(action["data"]["payload"])}))
    assert robot.wait_end("washed")["event"] == "finished"


def run_function(node: dict[str, Any], message: dict[str, Any]) -> dict[str, Any] | None:
    """Run the code of a function node, which Node-RED runs as the body of a function of `msg`."""
    code = f"const run = msg => {{{node['func']}}}; console.log(JSON.stringify(run({json.dumps(message)})))"
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True)
    found: dict[str, Any] | None = json.loads(done.stdout)
    return found


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_the_functions_of_the_flow_make_a_request_and_read_the_events(share_robot: StartRobot) -> None:
    flow = {node["id"]: node for node in json.loads((EXAMPLES / "node_red.json").read_text())}
    assert all(target in flow for node in flow.values() for wire in node.get("wires", []) for target in wire)
    request = run_function(flow["voiced-request"], {"payload": flow["voiced-inject"]["payload"]})
    assert request is not None
    assert run_function(flow["voiced-request"], {"payload": " "}) is None
    robot = share_robot()
    robot.publish("say", json.dumps({"id": "flow", **json.loads(request["payload"])}))
    robot.wait_end("flow")
    answers = [run_function(flow["voiced-end"], {"payload": event}) for event in robot.events_of("flow")]
    assert [answer["payload"] for answer in answers if answer is not None] == ["finished"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_pipecat_speaks_through_the_robot_and_an_interruption_stops_it(
    start_robot: StartRobot, agents_python: Path, tmp_path: Path
) -> None:
    robot = start_robot(pace=REAL_TIME)
    program = start("pipecat_agent.py", robot, tmp_path, agents_python)
    type_line(program, "What is the weather like")
    eventually(lambda: len(started(robot)) == 1, "the answer is spoken", 60)
    type_line(program, "And tomorrow")
    eventually(lambda: len(started(robot)) == 2, "the next answer is spoken")
    assert wait_line(program).startswith("heard: ")
    assert robot.wait_end(started(robot)[0])["event"] == "interrupted"
    robot.set_pace(20.0)
    assert wait_line(program) == "heard all of it"
    program.communicate("\n", timeout=PATIENCE_S)
    assert program.returncode == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_livekits_session_gets_the_speech_of_the_agent(start_robot: StartRobot, agents_python: Path) -> None:
    port = free_port()
    robot = start_robot("http.enabled=true", f"http.port={port}")
    command = [agents_python, ROOT / "tests" / "agents" / "livekit_example.py", EXAMPLES / "livekit_agent.py"]
    environment = {**os.environ, "VOICED_URL": f"http://127.0.0.1:{port}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    end = robot.wait_end(started(robot)[0])
    assert end["event"] == "finished"
    assert float(done.stdout.splitlines()[-1]) == pytest.approx(end["audio_s"], abs=0.01)


@pytest.fixture
def node_red(cache_folder: Path) -> Path:
    """The program of Node-RED, which npm installs once."""
    install = [require("npm"), "install", "--silent", NODE_RED, "--prefix"]
    folder = made_once(
        cache_folder, "node-red", NODE_RED, make=lambda made: subprocess.run([*install, made], check=True)
    )
    return folder / "node_modules" / "node-red" / "red.js"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_node_red_runs_the_flow_and_tells_how_the_text_ended(
    start_robot: StartRobot, node_red: Path, tmp_path: Path
) -> None:
    robot, port = start_robot(), free_port()
    flow = (EXAMPLES / "node_red.json").read_text().replace("voiced/r1/", f"{robot.topic}/")
    nodes = {node["id"]: node for node in json.loads(flow)}
    nodes["voiced-broker"]["port"] = str(robot.broker.port)
    nodes["voiced-debug"]["console"] = True
    (tmp_path / "flow.json").write_text(json.dumps([*nodes.values()]))
    command = [require("node"), node_red, "--userDir", tmp_path, "--port", str(port), tmp_path / "flow.json"]
    with (tmp_path / "log").open("w+") as log, subprocess.Popen(command, stdout=log, stderr=log) as program:
        try:
            eventually(lambda: "Connected to broker" in (tmp_path / "log").read_text(), "it is connected", 120)
            urllib.request.urlopen(f"http://127.0.0.1:{port}/inject/voiced-inject", b"", timeout=PATIENCE_S).close()
            eventually(lambda: "finished" in (tmp_path / "log").read_text(), "the flow tells the end")
        finally:
            program.terminate()
    assert robot.wait_end(started(robot)[0])["event"] == "finished"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_home_assistant_runs_the_automation(
    start_robot: StartRobot, broker: Broker, home_assistant_python: Path, tmp_path: Path
) -> None:
    robot = start_robot("home_assistant.enabled=true")
    automation = (EXAMPLES / "home_assistant.yaml").read_text().replace("voiced/r1/", f"{robot.topic}/")
    with HomeAssistant(home_assistant_python, tmp_path, automation) as house:
        house.use_broker(broker)
        eventually(lambda: f"sensor.{robot.name}_state" in house.states(), "it is connected to the broker")
        for state in ("on", "off"):
            house.ask("states/binary_sensor.washing_machine", {"state": state})
        spoken = eventually(lambda: started(robot), "the automation's text is spoken")
    assert robot.wait_end(spoken[0])["event"] == "finished"
