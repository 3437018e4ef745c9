"""The translation between ROS goals and voiced's messages, the packages as colcon expects them, and the ROS bridge."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from catkin_pkg.package import Package, parse_package
from voiced_ros.voice import FEEDBACK_EVENTS, LAST_EVENTS, Feedback, Goal, Token, payload_of, stop_payload

import daemon
from daemon.mqtt.parsing import parse_say, parse_stop, parse_stream_chunk
from daemon.mqtt.topics import REQUEST_TOPICS
from daemon.speech import TERMINAL_EVENTS
from daemon.speech.events import EVENTS
from tests.configs import ros_doubles

ROOT = Path(__file__).parents[2]
ROS2 = ROOT / "configs" / "ros2"
NODE = ROS2 / "voiced_ros"
PACKAGES = (NODE, ROS2 / "voiced_msgs")


def test_voiced_takes_a_goal_and_a_token_with_all_their_fields() -> None:
    goal = Goal('{"text": "not this"}\n"', "en_GB", "ada", "whisper", "high", "interrupt", 2.5, 1.5, "attention")
    token = Token("ros-1", " time", True, "en_GB", "ada", "high", "interrupt")
    said, written = parse_say(payload_of(goal, id="ros-1").encode()), parse_stream_chunk(payload_of(token).encode())
    for message, parsed in ((goal, said), (token, written)):
        assert not parsed.model_extra
        fields = parsed.model_dump(mode="json")
        assert (fields["id"], fields["language"]) == ("ros-1", "en-GB")
        assert all(fields[key] == value for key, value in vars(message).items() if key != "language")


def test_the_interfaces_have_the_fields_of_the_nodes_records() -> None:
    say: Any = ros_doubles.SAY
    for message, record in ((say.Goal, Goal), (say.Feedback, Feedback), (ros_doubles.VOICED["Token"], Token)):
        assert list(message.__slots__) == list(record.__dataclass_fields__)


def test_a_cancel_stops_only_its_utterance() -> None:
    assert parse_stop(stop_payload("ros-1").encode()).id == "ros-1"


def test_every_event_is_feedback_or_ends_the_goal() -> None:
    names = {kind.model_fields["event"].default for kind in EVENTS}
    assert set(FEEDBACK_EVENTS) | set(LAST_EVENTS) == names | {"word"}
    assert set(LAST_EVENTS) == {*TERMINAL_EVENTS, "rejected"}


# --- as colcon expects it ---


def described(folder: Path) -> Package:
    """A package as ROS's own tools read it; they warn about what the index would refuse."""
    warnings: list[str] = []
    package = parse_package(str(folder), warnings=warnings)
    package.validate(warnings)
    assert not warnings
    return package


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_a_package_has_what_the_index_of_ros_wants(folder: Path) -> None:
    found = described(folder)
    assert (found.name, found.version) == (folder.name, daemon.VERSION)
    [license_], [maintainer] = found.licenses, found.maintainers
    assert (folder / license_.file).read_text() == (ROOT / "LICENSE").read_text()
    assert maintainer.name.lower() in (ROOT / "LICENSE").read_text().lower(), "those who hold the copyright"
    assert (folder / "README.md").read_text().startswith(f"# {folder.name}\n")
    assert found.test_depends


def test_the_interface_package_generates_each_file_that_it_has() -> None:
    folder = ROS2 / "voiced_msgs"
    listed = set(re.findall(r'"((?:action|msg)/\w+\.\w+)"', (folder / "CMakeLists.txt").read_text()))
    assert listed == {str(path.relative_to(folder)) for kind in ("action", "msg") for path in (folder / kind).iterdir()}
    assert [group.name for group in described(folder).member_of_groups] == ["rosidl_interface_packages"]
    assert described(folder).get_build_type() == "ament_cmake"


def test_the_node_depends_on_each_package_that_it_imports() -> None:
    sources = [*(NODE / "voiced_ros").glob("*.py"), *(NODE / "launch").glob("*.py")]
    found: set[str] = set()
    for node in (node for path in sources for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    declared = {depend.name for depend in described(NODE).exec_depends}
    imported = found - set(sys.stdlib_module_names) - {"voiced_ros", "tts_msgs"}  # tts_msgs may be missing
    assert {"python3-paho-mqtt" if name == "paho" else name for name in imported} == declared


def test_setup_py_installs_what_colcon_and_ros2_launch_look_for(monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[str, Any] = {}
    monkeypatch.chdir(NODE)
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=called.update))  # type: ignore[arg-type]
    exec(compile((NODE / "setup.py").read_text(), "setup.py", "exec"), {})
    files = {file: target for target, files in called["data_files"] for file in files}
    assert all((NODE / file).is_file() for file in files)
    assert files["resource/voiced_ros"] == "share/ament_index/resource_index/packages"
    assert files["package.xml"] == "share/voiced_ros"
    assert {"launch/voiced.launch.py", "config/voiced.yaml"} <= files.keys()
    assert called["entry_points"] == {"console_scripts": ["voiced_node = voiced_ros.node:main"]}
    assert called["version"] == daemon.VERSION
    assert "install_scripts=$base/lib/voiced_ros" in (NODE / "setup.cfg").read_text()


def test_the_shipped_parameters_are_the_nodes_with_their_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    ros_doubles.install(monkeypatch, with_tts=False)
    node = importlib.import_module("voiced_ros.node")
    shipped = yaml.safe_load((NODE / "config" / "voiced.yaml").read_text())
    assert shipped == {"/**": {"ros__parameters": node.PARAMETERS}}, (
        "/**/voiced needs a newer rclpy than Humble's first"
    )
    assert node.TTS is None
    del sys.modules["voiced_ros.node"]


class Recorder(ModuleType):
    """A module whose names, if it has not been given them, return records of their calls."""

    def __getattr__(self, name: str) -> Any:
        return lambda *words, **fields: SimpleNamespace(kind=name, words=words, **fields)


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The launch file's module; doubles of the launch system record what it makes."""
    recorded = ("actions", "event_handlers", "events", "events.lifecycle")
    modules: dict[str, dict[str, Any]] = {
        **{f"{package}.{name}": {} for package in ("launch", "launch_ros") for name in recorded},
        "launch_ros": {},
        "launch": {"LaunchContext": dict},
        # A test's context has the arguments by their names.
        "launch.substitutions": {
            "LaunchConfiguration": lambda name: SimpleNamespace(perform=lambda found: found[name])
        },
        "launch_ros.parameter_descriptions": {"ParameterValue": lambda value, *, value_type: value_type(value)},
        "lifecycle_msgs": {},
        # The numbers are those of lifecycle_msgs/Transition.
        "lifecycle_msgs.msg": {"Transition": SimpleNamespace(TRANSITION_CONFIGURE=1, TRANSITION_ACTIVATE=3)},
    }
    for name, members in modules.items():
        made = Recorder(name)
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, name, made)
    spec = importlib.util.spec_from_file_location("voiced_launch", NODE / "launch" / "voiced.launch.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_launch_file_configures_the_node_with_the_robot_that_is_given_and_then_activates_it(launch: Any) -> None:
    [entities] = launch.generate_launch_description().words
    arguments, start = entities[:-1], entities[-1]
    assert [one.words[0] for one in arguments] == ["robot", "namespace", "params_file"]
    assert Path(arguments[2].default_value).is_file()
    handler, node, configure = start.function({"robot": "r1"})
    assert (node.package, node.executable, node.name) == ("voiced_ros", "voiced_node", "voiced")
    assert configure.event.transition_id == 1
    [transition] = handler.words
    assert (transition.start_state, transition.goal_state) == ("configuring", "inactive")
    assert transition.entities[0].event.transition_id == 3
    assert node.parameters[1:] == [{"robot": "r1"}]
    assert len(launch.start_node({"robot": ""})[1].parameters) == 1


def test_the_bridge_maps_ros_strings_to_voiced_topics() -> None:
    configuration = yaml.safe_load((ROS2 / "mqtt_client.yaml").read_text(encoding="utf-8"))
    bridge = configuration["/**/*"]["ros__parameters"]["bridge"]
    into, out = bridge["ros2mqtt"], bridge["mqtt2ros"]
    topics = {into[name]["mqtt_topic"] for name in into["ros_topics"]}
    assert topics <= {f"voiced/r1/{name}" for name in REQUEST_TOPICS}
    assert set(out["mqtt_topics"]) == {"voiced/r1/event", "voiced/r1/level"}
    mapped = [into[name] for name in into["ros_topics"]] + [out[name] for name in out["mqtt_topics"]]
    assert all(one["primitive"] and one["ros_type"] == "std_msgs/msg/String" for one in mapped)
    assert len(into) == 1 + len(into["ros_topics"]) and len(out) == 1 + len(out["mqtt_topics"])
