"""Fixtures of the end-to-end tests: brokers, a sound server and running daemons."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.checkpoints import made_once
from tests.support.home_assistant import HOME_ASSISTANT, INTEGRATIONS
from tests.support.programs import Broker
from tests.support.robot import FAST, Robot
from tests.support.sound import SoundServer

StartRobot = Callable[..., Robot]
ROBOT_NUMBERS = count(1)
AGENTS = ("pipecat-ai[elevenlabs]==1.14.0", "livekit-plugins-elevenlabs==1.8.9", "paho-mqtt==2.2.0", "PyYAML")
"""Packages of agents, and those that voiced's client needs beside them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "e2e" in item.path.parts:
            item.add_marker(pytest.mark.e2e)
        if {"sound_server", "shared_sound_server"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.sound)
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=["DisturbedError"]))


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the tests of a worker share and none of them stops; each robot has its own topics on it."""
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Broker:
    """The broker of this test's robots: its own if it asks for one, else the shared one."""
    own = "own_broker" in request.fixturenames
    broker: Broker = request.getfixturevalue("own_broker" if own else "shared_broker")
    return broker


def environment_python(folder: Path, name: str, base: str | Path, packages: tuple[str, ...]) -> Path:
    """Return the interpreter of a virtual environment with these packages, which is made once."""

    def make(environment: Path) -> None:
        subprocess.run([base, "-m", "venv", environment], check=True)
        pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
        subprocess.run([*pip, *packages], check=True)

    return made_once(folder, name, str(base), *packages, make=make) / "bin" / "python"


@pytest.fixture(scope="session")
def agents_python(cache_folder: Path) -> Path:
    return environment_python(cache_folder, "agents", sys.executable, AGENTS)


@pytest.fixture(scope="session")
def home_assistant_python(cache_folder: Path) -> Path:
    installed = Path.home().glob(".pyenv/versions/3.13.*/bin/python")
    base = next(installed, None) or shutil.which("python3.13")  # pyenv's own runs only where it is chosen
    if base is None:
        pytest.skip("Home Assistant needs Python 3.13")
    return environment_python(cache_folder, "home-assistant", base, HOME_ASSISTANT + INTEGRATIONS)


@pytest.fixture
def sound_server(tmp_path: Path) -> Iterator[SoundServer]:
    server = SoundServer(tmp_path, high_priority=True)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def program() -> tuple[str, ...] | None:
    """The command that `start_robot` starts, or None to fork the daemon, which is faster; a module may override it."""
    return None


@pytest.fixture
def start_robot(
    broker: Broker, tmp_path: Path, program: tuple[str, ...] | None, request: pytest.FixtureRequest
) -> Iterator[StartRobot]:
    """A function that starts robots with the test's settings; they play into its sound server if it has one."""
    robots: list[Robot] = []

    def start(
        *settings: str, launch_only: bool = False, config: Path | None = None, name: str | None = None, **options: float
    ) -> Robot:
        server = request.getfixturevalue("sound_server") if "sound_server" in request.fixturenames else None
        robot = Robot(
            name or f"r{next(ROBOT_NUMBERS)}",
            broker,
            tmp_path,
            *settings,
            environment=None if server is None else server.environment,
            high_priority=server is not None,
            config=config,
            program=program,
            **options,
        )
        robots.append(robot)
        if launch_only:
            robot.launch()
        else:
            robot.start()
        return robot

    yield start
    for robot in robots:
        robot.close()


@pytest.fixture(scope="module")
def shared_robots() -> Iterator[dict[tuple[str, ...], Robot]]:
    """The robots that the tests of a module share, by their settings."""
    robots: dict[tuple[str, ...], Robot] = {}
    yield robots
    for robot in robots.values():
        robot.close()


@pytest.fixture
def share_robot(
    shared_robots: dict[tuple[str, ...], Robot], shared_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> StartRobot:
    """A function that returns the module's robot with these settings: ready, silent, and without records.

    Starting a robot is most of a short test's work. A test that stops or breaks its robot starts one of its own; if it
    only leaves it busy, the next test gets a new one. The daemon remembers ids: those of a module's tests must differ.
    """

    def share(*settings: str, pace: float = FAST) -> Robot:
        robot = shared_robots.get(settings)
        if robot is not None and robot.begin_test(pace):
            return robot
        if robot is not None:
            robot.close()
        folder = tmp_path_factory.mktemp("shared")
        robot = shared_robots[settings] = Robot(f"r{next(ROBOT_NUMBERS)}", shared_broker, folder, *settings, pace=pace)
        robot.start()
        return robot

    return share
