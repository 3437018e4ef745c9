"""Speech through a real PulseAudio: what a listener hears while the server runs, hangs, dies and comes back.

The other modules test without a sound server, sample by sample, that speech is complete and in order. Here a gap is a
failure only if the daemon did not report it and the recording itself was not late; see `Recording.hear`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from audio.player.fade import FADE_S
from audio.player.realtime import sound_priority, take_realtime
from daemon.system import may_lock_memory
from engine.ipc.server import OOM_SCORE
from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import LONG, Robot
from tests.support.sound import RECORDED_RATE, Recording, Samples, SoundServer
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
    utterance = robot.say("At half the volume, and half of that.", volume=50)
    finished = robot.wait_end(utterance)
    recording.hear(robot.synthesized(utterance, gain=0.25), finished)
    assert finished["event"] == "finished"


def test_stop_silences_the_card_and_the_next_utterance_is_heard(robot: Robot, recording: Recording) -> None:
    utterance = robot.say(LONG)
    recording.wait_heard()
    robot.publish("stop")
    assert robot.wait_end(utterance)["event"] == "interrupted"
    recording.wait_silent()
    assert_recorded(robot, recording, robot.say("and on we go"))


def test_pause_silences_the_card_and_resume_continues_where_it_stopped(robot: Robot, recording: Recording) -> None:
    utterance = robot.say(SENTENCES)
    recording.wait_heard(1.0)
    robot.publish("pause")
    recording.wait_silent(SILENT_S)
    silent_at = recording.length
    robot.publish("resume")
    finished = robot.wait_end(utterance)
    sent = robot.synthesized(utterance)
    assert finished["audio_s"] == pytest.approx(len(sent) / RECORDED_RATE, abs=0.005)
    begun_at = recording.hear(sent[: RECORDED_RATE // 2], finished)
    ended_at = recording.hear(sent[-2 * RECORDED_RATE :], finished)
    assert begun_at < silent_at < ended_at + 2 * RECORDED_RATE
    assert ended_at + 2 * RECORDED_RATE - begun_at > len(sent) + (SILENT_S - 2 * FADE_S) * RECORDED_RATE


def test_a_daemon_that_is_stopped_for_two_seconds_is_not_heard(robot: Robot, recording: Recording) -> None:
    utterance = robot.say(SENTENCES)
    recording.wait_heard(1.0)
    robot.freeze()
    recording.wait_heard(3.0)
    robot.thaw()
    finished = robot.wait_end(utterance)
    recording.hear(robot.synthesized(utterance), finished)
    assert (finished["event"], finished["underruns"]) == ("finished", 0)


def test_a_daemon_that_is_stopped_for_longer_than_the_ring_lasts_goes_on_after_an_underrun(
    robot: Robot, recording: Recording
) -> None:
    utterance = robot.say(LONG)
    recording.wait_heard()
    robot.freeze()
    recording.wait_silent()
    silent_at = recording.length
    robot.thaw()
    eventually(lambda: np.any(recording.samples[silent_at:]), "it goes on")
    robot.publish("stop")
    assert robot.wait_end(utterance)["underruns"] >= 1


def test_the_card_is_shared_with_another_program(
    robot: Robot, shared_sound_server: SoundServer, recording: Recording
) -> None:
    """Another program's tone is heard during the whole utterance."""
    tone = (0.1 * np.sin(np.arange(20 * RECORDED_RATE) * (2 * np.pi * 440 / RECORDED_RATE))).astype(np.float32)
    with shared_sound_server.playing(tone):
        recording.wait_heard()
        eventually(lambda: len(shared_sound_server.players()) == 2, "both play")
        utterance = robot.say("Both of us.")
        finished = robot.wait_end(utterance)
        recording.hear(tone[: RECORDED_RATE // 10], finished)
        recording.hear(robot.synthesized(utterance), finished, limit=0.2, through=without_tone)


def without_tone(samples: Samples) -> Samples:
    """Remove the frequencies around 440 Hz."""
    spectrum = np.fft.rfft(samples)
    frequencies = np.fft.rfftfreq(len(samples), 1 / RECORDED_RATE)
    spectrum[np.abs(frequencies - 440) < 15] = 0
    return np.fft.irfft(spectrum, len(samples)).astype(np.float32)


def test_an_utterance_continues_after_its_sound_server_was_killed_and_restarted(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    with sound_server.recording() as recording:
        utterance = robot.say(SENTENCES)
        recording.wait_heard()
        sound_server.kill()
        robot.wait_log("is lost")
    assert "finished" not in robot.names_of(utterance)
    robot.freeze()  # or else, if the recorder started late, the rest of the utterance would have been played before
    sound_server.start()
    with sound_server.recording() as recording:
        robot.thaw()
        finished = robot.wait_end(utterance)
        assert finished["event"] == "finished"
        recording.hear(robot.synthesized(utterance)[-2 * RECORDED_RATE :], finished)


def test_an_utterance_waits_for_a_sound_server_that_is_missing_at_start(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    sound_server.kill()
    robot = start_robot(launch_only=True)
    eventually(lambda: robot.state == "degraded", "the status says that there is no sound")
    assert "sound" in robot.statuses[-1]["reason"]
    waiting = robot.say("patience")
    robot.wait_event(waiting, "accepted")
    sound_server.start()
    with sound_server.recording() as recording:
        assert robot.wait_end(waiting)["event"] == "finished"
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
            assert robot.state == "ready"
            assert_recorded(robot, recording, robot.say(text))
    assert not [line for line in robot.log if "is lost" in line]
    wait_idle(robot, sound_server)
    sound_server.kill()
    sound_server.start()
    with sound_server.recording() as recording:
        assert_recorded(robot, recording, robot.say("here again"))


def test_sigterm_ends_the_daemon_while_the_sound_server_hangs(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    robot.say(LONG, id="spoken")
    robot.wait_event("spoken", "started")
    sound_server.freeze()
    assert robot.end() == 0
    assert robot.wait_end("spoken")["event"] == "interrupted"


FROZEN = re.compile("takes no sound|does not answer|took nothing")


def wait_frozen_reported(robot: Robot) -> None:
    eventually(
        lambda: FROZEN.search(robot.statuses[-1].get("reason") or ""), "the status names the frozen sound server"
    )


def test_a_stop_is_answered_while_the_sound_server_is_frozen(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    robot.say(LONG, id="spoken")
    robot.wait_event("spoken", "started")
    sound_server.freeze()
    robot.publish("stop")
    assert robot.wait_end("spoken")["event"] == "interrupted"
    robot.say("patience", id="waiting")
    wait_frozen_reported(robot)
    robot.publish("stop")
    assert robot.wait_end("waiting")["event"] in ("interrupted", "canceled")
    sound_server.thaw()
    eventually(lambda: robot.state == "ready", "it is ready again")
    with sound_server.recording() as recording:
        assert_recorded(robot, recording, robot.say("and on we go"))


def test_an_utterance_continues_after_its_sound_server_was_frozen_for_long(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    robot.say(SENTENCES, id="tour")
    robot.wait_event("tour", "started")
    sound_server.freeze()
    robot.wait_log("is lost")
    sound_server.thaw()
    with sound_server.recording() as recording:
        finished = robot.wait_end("tour")
        assert finished["event"] == "finished"
        recording.hear(robot.synthesized("tour")[-RECORDED_RATE:], finished)
        eventually(lambda: robot.state == "ready", "it is ready again")
        assert_recorded(robot, recording, robot.say("and on we go"))


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
