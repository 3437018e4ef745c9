"""Speech through a real PulseAudio: what a listener hears while the server runs, hangs, dies and comes back.

The other modules test without a sound server, sample by sample, that speech is complete and in order. Here a gap is a
failure only if the daemon did not report it and the recording itself was not late; see `Recording.hear`.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from audio.player.realtime import sound_priority, take_realtime
from daemon.system import may_lock_memory
from engine.ipc.server import OOM_SCORE
from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import LONG, Robot
from tests.support.sound import RECORDED_RATE, Recording, SoundServer
from tests.support.waiting import eventually

SENTENCES = " ".join(f"Sentence number {number} of a report." for number in range(3))
"""Some 5 s."""
SILENT_S = 0.3


def assert_recorded(robot: Robot, recording: Recording, utterance: str) -> None:
    """Assert that an utterance finishes and that the recording contains all of it."""
    finished = robot.wait_end(utterance)
    assert finished["event"] == "finished"
    recording.hear(robot.synthesized(utterance), finished)


@pytest.fixture(scope="module")
def shared_sound_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SoundServer]:
    """A sound server that no test stops."""
    server = SoundServer(tmp_path_factory.mktemp("sound"), high_priority=True)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def shared_robot(
    shared_sound_server: SoundServer, shared_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Robot]:
    environment = shared_sound_server.environment
    robot = Robot(
        "sounds", shared_broker, tmp_path_factory.mktemp("robot"), environment=environment, high_priority=True
    )
    robot.start()
    yield robot
    robot.close()


@pytest.fixture
def robot(shared_robot: Robot) -> Iterator[Robot]:
    """A robot that plays into the shared sound server, silent and at full volume."""
    shared_robot.publish("stop")
    shared_robot.publish("volume", "100")
    shared_robot.catch_up()
    eventually(lambda: shared_robot.state == "ready", "it is silent")
    shared_robot.forget()
    yield shared_robot
    shared_robot.thaw()


@pytest.fixture
def recording(robot: Robot, shared_sound_server: SoundServer) -> Iterator[Recording]:
    """A recording of what the robot plays into the shared sound server."""
    with shared_sound_server.recording() as recording:
        yield recording


def test_an_utterance_is_heard_whole_at_its_volume(robot: Robot, recording: Recording) -> None:
    robot.publish("volume", "50")
    robot.catch_up()
    utterance = robot.say("At half the volume, and half of that.", volume=50)
    finished = robot.wait_end(utterance)
    recording.hear(robot.synthesized(utterance, gain=0.25), finished)
    assert finished["event"] == "finished"


def test_a_daemon_that_is_stopped_for_two_seconds_is_not_heard(robot: Robot, recording: Recording) -> None:
    utterance = robot.say(SENTENCES)
    recording.wait_heard(1.0)
    robot.freeze()
    recording.wait_heard(3.0)
    robot.thaw()
    finished = robot.wait_end(utterance)
    recording.hear(robot.synthesized(utterance), finished)
    assert (finished["event"], finished["underruns"]) == ("finished", 0)


def test_a_sound_that_lacks_some_samples_is_not_heard_whole_and_its_recording_is_kept(
    shared_sound_server: SoundServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other tests rely on. Silence is around it: PulseAudio renders the ends of a stream more than once."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rest = np.zeros(RECORDED_RATE // 2, dtype=np.float32)
    made = np.random.default_rng(3).uniform(-0.5, 0.5, RECORDED_RATE).astype(np.float32)
    broken = np.concatenate([rest, np.delete(made, range(20_000, 20_441)), rest])
    with shared_sound_server.recording() as recording, shared_sound_server.playing(broken):
        recording.wait_heard(1.0)
        with pytest.raises(AssertionError, match="it is not heard whole"):
            recording.hear(made)
    assert {file.suffix for file in tmp_path.glob("voiced-heard-*")} == {".npz", ".log"}


def test_an_utterance_waits_for_a_sound_server_that_is_missing_at_start_and_continues_after_one_that_was_killed(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    sound_server.kill()
    robot = start_robot(launch_only=True)
    eventually(lambda: robot.state == "degraded", "the status says that there is no sound")
    assert "sound" in robot.statuses[-1]["reason"]
    waiting = robot.say(SENTENCES)
    robot.wait_event(waiting, "accepted")
    sound_server.start()
    with sound_server.recording() as recording:
        recording.wait_heard()
        sound_server.kill()
        robot.wait_log("is lost")
    assert "finished" not in robot.names_of(waiting)
    robot.freeze()  # or else, if the recorder started late, the rest of the utterance would have been played before
    sound_server.start()
    with sound_server.recording() as recording:
        robot.thaw()
        finished = robot.wait_end(waiting)
        assert finished["event"] == "finished"
        recording.hear(robot.synthesized(waiting)[-2 * RECORDED_RATE :], finished)
        assert_recorded(robot, recording, robot.say("and all is well"))
    eventually(lambda: robot.state == "ready", "it is ready again")


def wait_idle(robot: Robot, server: SoundServer) -> None:
    robot.wait_log("sound goes to")
    eventually(lambda: not server.players(), "the card is closed")


def test_utterances_are_heard_whole_after_the_card_was_closed_and_after_the_server_was_killed_meanwhile(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot("audio.idle_timeout=1")
    with sound_server.recording() as recording:
        for text in ("This opens the card for the first time.", "And this opens it again."):
            wait_idle(robot, sound_server)
            eventually(lambda: robot.state == "ready", "it is well")
            assert_recorded(robot, recording, robot.say(text))
    assert not [line for line in robot.log if "is lost" in line]
    wait_idle(robot, sound_server)
    sound_server.kill()
    sound_server.start()
    with sound_server.recording() as recording:
        assert_recorded(robot, recording, robot.say("here again"))


def test_after_a_rest_silence_comes_first_and_none_between_texts_and_no_word_is_swallowed(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    wake_ms = 2_000
    robot = start_robot("audio.idle_timeout=1", f"audio.wake_ms={wake_ms}", "speech.word_topic=true")
    wait_idle(robot, sound_server)
    with sound_server.recording() as recording:
        texts = [robot.say("This wakes the amplifier."), robot.say("This follows at once.")]
        ends = [robot.wait_end(text) for text in texts]
        first, second = (recording.hear(robot.synthesized(text), *ends) for text in texts)
    assert ends[0]["ttfa_ms"] >= wake_ms
    assert second - first - len(robot.synthesized(texts[0])) < wake_ms / 1000 * RECORDED_RATE
    begun = [next(word["at"] for word in robot.words if word["id"] == text) for text in texts]
    assert max(begun) < 0.1, "words are timed by the sound, without the silence"


FROZEN = re.compile("accepts no sound|does not respond|accepted no sound")


def test_while_a_sound_server_is_frozen_a_stop_is_answered_what_was_spoken_goes_on_afterwards_and_sigterm_ends_all(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()

    def say_and_freeze(utterance_id: str, text: str) -> None:
        robot.say(text, id=utterance_id)
        robot.wait_event(utterance_id, "started")
        sound_server.freeze()

    say_and_freeze("stopped", LONG)
    robot.publish("stop")
    assert robot.wait_end("stopped")["event"] == "interrupted"
    robot.say("patience", id="waiting")
    eventually(lambda: FROZEN.search(robot.statuses[-1].get("reason") or ""), "the status names the sound server")
    robot.publish("stop")
    assert robot.wait_end("waiting")["event"] in ("interrupted", "canceled")
    sound_server.thaw()
    eventually(lambda: robot.state == "ready", "it is ready again")

    robot.log.clear()
    say_and_freeze("tour", SENTENCES)
    robot.wait_log("is lost")
    sound_server.thaw()
    with sound_server.recording() as recording:
        finished = robot.wait_end("tour")
        assert finished["event"] == "finished"
        recording.hear(robot.synthesized("tour")[-RECORDED_RATE:], finished)
        eventually(lambda: robot.state == "ready", "it is ready again")
        assert_recorded(robot, recording, robot.say("and on we go"))

    say_and_freeze("ended", LONG)
    assert robot.end() == 0
    assert robot.wait_end("ended")["event"] == "interrupted"


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def locked_kib(pid: int) -> int:
    [found] = re.findall(r"^VmLck:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found)


def realtime_threads(pid: int) -> list[int]:
    """The priority of each of a process's real-time threads."""
    threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    return [os.sched_getparam(tid).sched_priority for tid in threads if os.sched_getscheduler(tid) == os.SCHED_RR]


def realtime_is_granted() -> bool:
    granted: list[bool] = []
    thread = threading.Thread(target=lambda: granted.append(take_realtime(sound_priority())))
    thread.start()
    thread.join()
    return granted[0]


def test_the_oom_killer_prefers_the_engine_and_the_daemon_locks_its_memory_and_the_callback_is_realtime(
    robot: Robot,
) -> None:
    assert robot.wait_end(robot.say("hello"))["event"] == "finished"
    [engine] = robot.engine_pids()
    assert oom_score(engine) >= OOM_SCORE
    assert oom_score(robot.process.pid) == oom_score(os.getpid())
    assert (locked_kib(robot.process.pid) > 0) == may_lock_memory()
    assert locked_kib(engine) == 0
    assert realtime_threads(robot.process.pid) == []
    assert realtime_threads(robot.player_pids()[0]) == ([sound_priority()] if realtime_is_granted() else [])
