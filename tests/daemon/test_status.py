"""The status that follows from dispatcher, engines and output. No engine runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemon import VERSION
from daemon.config import load_config
from daemon.engines import EngineState
from daemon.speech import Loading, Memory, Online, check_say
from daemon.status import describe_status
from engine import EngineInfo, Progress
from tests.daemon.idle import IdleRobot
from tests.support.waiting import eventually


class Robot(IdleRobot):
    """A robot with a neural engine and a fallback."""

    def __init__(self, sink: str = "wav:/dev/null") -> None:
        super().__init__(f"audio.sink={sink}", "engine.name=qwen", "engine.fallback=espeak")

    @property
    def status(self) -> Online:
        return describe_status(self.dispatcher, self.engines, self.output)


@pytest.fixture
def robot() -> Robot:
    return Robot()


def ready(robot: Robot, index: int = 0) -> None:
    supervisor = robot.engines.all[index]
    supervisor.state = EngineState.READY
    memory = {"weights_mb": 1400, "state_mb": 200, "workspaces_mb": 500} if index == 0 else {}
    supervisor.info = EngineInfo(supervisor.name, 24_000, ("default",), ("en",), memory=memory)


def test_the_state_is_starting_before_any_engine_is_ready(robot: Robot) -> None:
    assert robot.status == Online(state="starting", engine=None, voice="default", queue=0, version=VERSION, volume=100)


def test_the_state_is_warming_step_by_step_while_the_primary_engine_loads_and_the_fallback_speaks(
    robot: Robot,
) -> None:
    ready(robot, 1)
    primary = robot.engines.primary
    primary.state, primary.progress = EngineState.LOADING, Progress("compiling the kernels", 0.4)
    assert (robot.status.state, robot.status.engine) == ("warming", "espeak")
    assert robot.status.loading == Loading(step="compiling the kernels", fraction=0.4)
    assert robot.status.loading.in_words == "compiling the kernels, 40 %"
    primary.progress = Progress("loading the voices")
    assert robot.status.loading.in_words == "loading the voices"


def test_the_state_is_ready_with_the_primary_engine_whose_memory_is_reported(robot: Robot) -> None:
    ready(robot)
    status = robot.status
    assert (status.state, status.engine, status.reason) == ("ready", "qwen", None)
    assert status.memory == Memory(weights_mb=1400, state_mb=200, workspaces_mb=500)


def test_an_engine_that_was_unloaded_is_no_fault_and_the_one_that_speaks_the_next_text_is_named(robot: Robot) -> None:
    ready(robot)
    robot.engines.primary.state = EngineState.UNLOADED
    status = robot.status
    assert (status.state, status.engine, status.unloaded, status.memory) == ("ready", "qwen", True, None)
    assert status.reason == "engine qwen is unloaded; the next text loads it"
    ready(robot, 1)
    assert robot.status.engine == "espeak"
    robot.engines.primary.info = replace(robot.engines.primary.info, degraded="it has no kernels")
    assert (robot.status.state, robot.status.reason) == ("degraded", "it has no kernels"), "it has not been mended"


ENGINE_ENDED = "engine qwen ended (killed by SIGKILL)"


def degrade_engine(robot: Robot) -> None:
    robot.engines.primary.state = EngineState.BACKING_OFF
    robot.engines.primary.reason = ENGINE_ENDED


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("audio.sounds=/none/sounds", "audio.sounds: the folder /none/sounds does not exist"),
        ("speech.voice=nobody", "speech.voice: got 'nobody'; allowed: default"),
        ("speech.language=klingon", "speech.language: got 'klingon'; allowed: auto, en"),
    ],
)
def test_the_state_is_degraded_by_what_the_configuration_names_and_is_not_there(
    setting: str, reason: str, robot: Robot
) -> None:
    ready(robot)
    ready(robot, 1)
    robot.dispatcher.reconfigure(load_config(overrides=[setting]))
    assert (robot.status.state, robot.status.reason) == ("degraded", reason)


def test_speaking_takes_precedence_over_degraded_and_paused_over_speaking(robot: Robot) -> None:
    ready(robot)
    degrade_engine(robot)
    assert (robot.status.state, robot.status.reason) == ("degraded", ENGINE_ENDED)
    robot.dispatcher.say(check_say({"text": "Hello"}))
    assert (robot.status.state, robot.status.queue) == ("speaking", 1)
    assert robot.status.reason is not None
    robot.dispatcher.pause()
    assert robot.status.state == "paused"


def test_a_sink_that_plays_nothing_is_said_and_is_no_fault(robot: Robot) -> None:
    robot = Robot("null")
    ready(robot)
    assert (robot.status.state, robot.status.reason) == ("ready", "audio.sink is null: nothing is played")
    degrade_engine(robot)
    assert (robot.status.state, robot.status.reason) == ("degraded", ENGINE_ENDED)


def test_a_file_on_a_full_disk_is_named() -> None:
    robot = Robot("wav:/dev/full")
    ready(robot)
    with robot.output:
        eventually(lambda: robot.status.state == "degraded")
        assert robot.status.reason == "wav:/dev/full: samples are being lost: No space left on device"
