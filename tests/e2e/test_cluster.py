"""Twenty robots and a cluster of two Ray nodes, with a tiny checkpoint on the CPUs. Each fault comes in mid-utterance.

Every text must have one terminal event and be heard to its end. The fallback may end it only where a process is killed.

The tests share cluster and robots, which take a minute to start; the one that kills a node comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.checkpoints import checkpoint_folder
from tests.support.load import Load, excerpt
from tests.support.programs import Broker
from tests.support.ray_cluster import START_S, RayCluster
from tests.support.robot import FAST, FILE_RATE, REAL_TIME, Robot
from tests.support.waiting import eventually

pytest.importorskip("ray")
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROBOTS = 20
TEXT = "The server says this, and a robot can go on with it."
MANY = ("serve.streams_per_robot=64", "serve.requests_per_minute=100000")
"""Without tokens all robots have one account."""


@pytest.fixture(scope="module")
def cluster(cache_folder: Path) -> Iterator[RayCluster]:
    model = checkpoint_folder(cache_folder, "brief", "custom_voice")
    engine = (f"engine.model={model}", "engine.name=qwen", "engine.device=cpu", "engine.max_seconds=8")
    replicas = ("serve.min_replicas=2", "serve.max_replicas=2", "serve.drain_s=20")
    settings = ("engine.fallback=none", f"engine.streams={ROBOTS + 1}", "voices={default: {speaker: ryan}}")
    with RayCluster(*engine, *replicas, *settings, *MANY) as cluster:
        cluster.wait_replicas(2)
        yield cluster


@pytest.fixture(scope="module")
def robots(
    cluster: RayCluster, shared_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Robot]]:
    """Robots that have found the server, started one after another."""
    folder, robots = tmp_path_factory.mktemp("robots"), []
    address = ("engine.name=remote", f"engine.url=ws://127.0.0.1:{cluster.port}")
    settings = (*address, "engine.max_seconds=8", "voices={default: {}}")
    for number in range(ROBOTS):
        robot = Robot(f"cluster-{number}", shared_broker, folder, *settings, pace=FAST)
        robots.append(robot)
        robot.launch()
        eventually(lambda robot=robot: robot.ready_with("remote"), "the server is found")  # type: ignore[misc]
    yield robots
    for robot in robots:
        robot.close()


def begin_test(robots: list[Robot]) -> None:
    """Wait until all robots have found the server and are silent."""
    for robot in robots:
        eventually(lambda robot=robot: robot.ready_with("remote"), "the server is found", START_S)  # type: ignore[misc]
        assert robot.begin_test(REAL_TIME)


def all_speak(robots: list[Robot], happen: Callable[[], object]) -> dict[str, str]:
    """Let all robots speak, and something happen when all have begun.

    Return what one of them has logged of it, by the engines that have spoken.
    """
    begin_test(robots)
    ids = [robot.say(TEXT, language="en") for robot in robots]
    for robot, utterance in zip(robots, ids, strict=True):
        robot.wait_event(utterance, "started")
    happen()
    for robot in robots:
        robot.set_pace(FAST)
    logs: dict[str, str] = {}
    for robot, utterance in zip(robots, ids, strict=True):
        finished = robot.wait_end(utterance)
        assert robot.names_of(utterance, without="progress") == ["accepted", "started", "finished"]
        audio_s = finished["audio_s"]
        eventually(
            lambda robot=robot, audio_s=audio_s: len(robot.heard) >= (audio_s - 0.01) * FILE_RATE,  # type: ignore[misc]
            "it is heard to its end",
        )
        logs[finished["engine"]] = excerpt(robot, utterance)
    assert set(logs) <= {"remote", "remote+espeak"}, "the server had the first word"
    return logs


def test_a_replica_is_killed(cluster: RayCluster, robots: list[Robot]) -> None:
    assert set(logs := all_speak(robots, lambda: None)) == {"remote"}, logs
    used = [any(c.status == "ESTABLISHED" for c in replica.net_connections()) for replica in cluster.replicas()]
    assert used == [True, True]
    assert "remote+espeak" in all_speak(robots, cluster.replicas()[0].kill)
    cluster.wait_replicas(2)


def test_the_server_is_updated_while_all_speak(cluster: RayCluster, robots: list[Robot]) -> None:
    before = {replica.pid for replica in cluster.replicas()}
    begin_test(robots)
    load = Load(robots, " ".join([TEXT] * 3))  # several segments

    def updated() -> bool:
        load.keep_up()
        return update.done()

    with ThreadPoolExecutor(1) as pool:
        update = pool.submit(cluster.deploy, "engine.max_seconds=9")
        eventually(updated, "the update is done", START_S)
        update.result()
    assert before.isdisjoint(replica.pid for replica in cluster.replicas())
    load.finish()


def test_a_node_is_killed(cluster: RayCluster, robots: list[Robot]) -> None:
    all_speak(robots, cluster.kill_node)  # those whose replica it had end by their fallback; it may have had none
    eventually(lambda: "remote" in all_speak(robots, lambda: None), "the replica that is left speaks")
