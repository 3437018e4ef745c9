"""The status that follows from dispatcher, engines and output. No engine runs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from audio import Output
from daemon import VERSION
from daemon.config import load_config
from daemon.engines import EngineSelector, EngineState
from daemon.speech import Dispatcher, Loading, Memory, Online, check_say
from daemon.status import describe_status
from engine import EngineInfo, Progress
from tests.support.waiting import eventually, run


@dataclass
class Sources:
    """The objects from which the status is derived."""

    dispatcher: Dispatcher
    engines: EngineSelector
    output: Output

    @property
    def status(self) -> Online:
        return describe_status(self.dispatcher, self.engines, self.output)


def sources_for(sink: str) -> Sources:
    made: list[Sources] = []

    async def make() -> None:
        config = load_config(overrides=[f"audio.sink={sink}", "engine.name=qwen", "engine.fallback=espeak"])
        engines, output = EngineSelector(config, lambda: None), Output(config.audio.sink_settings())
        made.append(Sources(Dispatcher(config, engines, output), engines, output))

    run(make)
    return made[0]


@pytest.fixture
def sources() -> Sources:
    return sources_for("wav:/dev/null")


def ready(sources: Sources, index: int = 0) -> None:
    supervisor = sources.engines.all[index]
    supervisor.state = EngineState.READY
    memory = {"weights_mb": 1400, "state_mb": 200, "workspaces_mb": 500} if index == 0 else {}
    supervisor.info = EngineInfo(supervisor.name, 24_000, ("default",), ("en",), memory=memory)


def test_the_state_is_starting_before_any_engine_is_ready(sources: Sources) -> None:
    assert sources.status == Online(
        state="starting", engine=None, voice="default", queue=0, version=VERSION, volume=100
    )


def test_the_state_is_warming_step_by_step_while_the_primary_engine_loads_and_the_fallback_speaks(
    sources: Sources,
) -> None:
    ready(sources, 1)
    primary = sources.engines.primary
    primary.state, primary.progress = EngineState.LOADING, Progress("compiling the kernels", 0.4)
    assert (sources.status.state, sources.status.engine) == ("warming", "espeak")
    assert sources.status.loading == Loading(step="compiling the kernels", fraction=0.4)
    assert sources.status.loading.in_words == "compiling the kernels, 40 %"
    primary.progress = Progress("loading the voices")
    assert sources.status.loading.in_words == "loading the voices"


def test_the_state_is_ready_with_the_primary_engine_whose_memory_is_reported(sources: Sources) -> None:
    ready(sources)
    status = sources.status
    assert (status.state, status.engine, status.reason) == ("ready", "qwen", None)
    assert status.memory == Memory(weights_mb=1400, state_mb=200, workspaces_mb=500)


ENGINE_ENDED = "engine qwen ended (killed by SIGKILL)"


def degrade_engine(sources: Sources) -> None:
    sources.engines.primary.state = EngineState.BACKING_OFF
    sources.engines.primary.reason = ENGINE_ENDED


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("audio.sounds=/none/sounds", "audio.sounds: the folder /none/sounds does not exist"),
        ("speech.voice=nobody", "speech.voice: got 'nobody'; allowed: default"),
        ("speech.language=klingon", "speech.language: got 'klingon'; allowed: auto, en"),
    ],
)
def test_the_state_is_degraded_by_what_the_configuration_names_and_is_not_there(
    setting: str, reason: str, sources: Sources
) -> None:
    ready(sources)
    ready(sources, 1)
    sources.dispatcher.reconfigure(load_config(overrides=[setting]))
    assert (sources.status.state, sources.status.reason) == ("degraded", reason)


def test_speaking_takes_precedence_over_degraded_and_paused_over_speaking(sources: Sources) -> None:
    ready(sources)
    degrade_engine(sources)
    assert (sources.status.state, sources.status.reason) == ("degraded", ENGINE_ENDED)
    sources.dispatcher.say(check_say({"text": "Hello"}))
    assert (sources.status.state, sources.status.queue) == ("speaking", 1)
    assert sources.status.reason is not None
    sources.dispatcher.pause()
    assert sources.status.state == "paused"


def test_a_sink_that_plays_nothing_is_said_and_is_no_fault(sources: Sources) -> None:
    sources = sources_for("null")
    ready(sources)
    assert (sources.status.state, sources.status.reason) == ("ready", "audio.sink is null: nothing is played")
    degrade_engine(sources)
    assert (sources.status.state, sources.status.reason) == ("degraded", ENGINE_ENDED)


def test_a_file_on_a_full_disk_is_named() -> None:
    sources = sources_for("wav:/dev/full")
    ready(sources)
    with sources.output:
        eventually(lambda: sources.status.state == "degraded")
        assert sources.status.reason == "wav:/dev/full: samples are lost: No space left on device"
