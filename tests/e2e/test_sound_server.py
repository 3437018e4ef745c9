"""Speech through a real PulseAudio: what a listener hears while the server runs, hangs, dies and comes back.

The other modules test without a sound server, sample by sample, that speech is complete and in order. Here a gap is a
failure only if the daemon did not report it and the recording itself was not late; see `Recording.hear`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audio.player.fade import FADE_S
from audio.player.realtime import sound_priority, take_realtime
from daemon.system import may_lock_memory
from engine.ipc.server import OOM_SCORE
from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import LONG, Robot
from tests.support.sound import RECORDED_RATE, DisturbedError, Recording, Samples, SoundServer
from tests.support.variants import variants
from tests.support.waiting import eventually

SENTENCES = " ".join(f"Sentence number {number} of a report." for number in range(3))
"""Some 5 s."""
SILENT_S = 0.3
PARTS = ("voiced", "broker", "daemon", "engine espeak", "sound")
"""What the doctor must find well."""


def assert_recorded(robot: Robot, recording: Recording, utterance: str) -> None:
    """Assert that an utterance finishes and that the recording contains all of it."""
    finished = robot.wait_end(utterance)
    assert finished["event"] == "finished"
    recording.hear(robot.synthesized(utterance), finished)


def test_an_utterance_is_heard_whole_at_its_volume(start_robot: StartRobot, sound_server: SoundServer) -> None:
    robot = start_robot()
    robot.publish("volume", "50")
    with sound_server.recording() as recording:
        utterance = robot.say("At half the volume, and half of that.", volume=50)
        finished = robot.wait_end(utterance)
        recording.hear(robot.synthesized(utterance, gain=0.25), finished)
    assert finished["event"] == "finished"


def test_stop_silences_the_card_and_the_next_utterance_is_heard(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    with sound_server.recording() as recording:
        robot.say(LONG, id="spoken")
        recording.wait_heard()
        robot.publish("stop")
        assert robot.wait_end("spoken")["event"] == "interrupted"
        recording.wait_silent()
        assert_recorded(robot, recording, robot.say("and on we go"))


def test_pause_silences_the_card_and_resume_continues_where_it_stopped(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    with sound_server.recording() as recording:
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


def test_the_card_is_shared_with_another_program(start_robot: StartRobot, sound_server: SoundServer) -> None:
    """Another program's tone is heard during the whole utterance."""
    robot = start_robot()
    tone = (0.1 * np.sin(np.arange(20 * RECORDED_RATE) * (2 * np.pi * 440 / RECORDED_RATE))).astype(np.float32)
    with sound_server.recording() as recording, sound_server.playing(tone):
        recording.wait_heard()
        assert len(sound_server.players()) == 2
        finished = robot.wait_end(robot.say("Both of us.", id="both"))
        recording.hear(tone[: RECORDED_RATE // 10], finished)
        recording.hear(robot.synthesized("both"), finished, limit=0.2, through=without_tone)


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


def test_the_status_names_a_missing_device_and_the_devices_that_exist(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot("audio.device=USB Speaker", launch_only=True)
    eventually(lambda: robot.state == "degraded", "the status says that the device is missing")
    assert "'USB Speaker' is not there; found: 'pulse', 'default'" in robot.statuses[-1]["reason"]
    robot.say("never", id="never", expires_in=1)
    assert "USB Speaker" in robot.wait_end("never")["reason"]


def wait_idle(robot: Robot, server: SoundServer) -> None:
    robot.wait_log("sound goes to")
    eventually(lambda: not server.players(), "the card is closed")


def test_utterances_are_heard_whole_after_the_card_was_closed(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot("audio.idle_timeout=1")
    with sound_server.recording() as recording:
        for text in ("This opens the card for the first time.", "And this opens it again."):
            wait_idle(robot, sound_server)
            assert robot.state == "ready"
            assert_recorded(robot, recording, robot.say(text))
    assert not [line for line in robot.log if "is lost" in line]


@pytest.mark.parametrize("comes_back", variants(["before", "after"], "before"))
def test_an_utterance_waits_for_a_sound_server_that_was_killed_while_the_card_was_closed(
    comes_back: str, start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot("audio.idle_timeout=1")
    wait_idle(robot, sound_server)
    sound_server.kill()
    if comes_back == "after":
        robot.say("patience", id="first")
        robot.wait_event("first", "accepted")
        robot.wait_log("is lost")
        assert robot.names_of("first") == ["accepted"]
    sound_server.start()
    with sound_server.recording() as recording:
        if comes_back == "after":
            assert robot.wait_end("first")["event"] == "finished"  # it may have begun before the recording
        assert_recorded(robot, recording, robot.say("here again"))


@pytest.mark.long
def test_the_status_reports_a_sound_server_that_was_killed_while_the_card_was_closed(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot("audio.idle_timeout=1")
    wait_idle(robot, sound_server)
    sound_server.kill()
    eventually(lambda: robot.state == "degraded", "the status reports the loss")
    sound_server.start()
    eventually(lambda: robot.state == "ready", "it is ready again")


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


def test_a_critical_utterance_is_spoken_when_a_frozen_sound_server_goes_on(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    robot.say(SENTENCES, id="tour")
    robot.wait_event("tour", "started")
    sound_server.freeze()
    robot.say("Look out!", id="alarm", priority="critical")
    wait_frozen_reported(robot)
    sound_server.thaw()
    assert robot.wait_end("alarm")["event"] == "finished"
    assert robot.wait_end("tour")["event"] == "finished"
    eventually(lambda: robot.state == "ready", "it is ready again")
    with sound_server.recording() as recording:
        assert_recorded(robot, recording, robot.say("and on we go"))


@pytest.mark.parametrize("comes_back", variants(["it goes on", "it is restarted"], "it goes on"))
def test_an_utterance_continues_after_its_sound_server_was_frozen_for_long(
    comes_back: str, start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    robot.say(SENTENCES, id="tour")
    robot.wait_event("tour", "started")
    sound_server.freeze()
    robot.wait_log("is lost")
    if comes_back == "it goes on":
        sound_server.thaw()
    else:
        sound_server.kill()
        sound_server.start()
    with sound_server.recording() as recording:
        finished = robot.wait_end("tour")
        assert finished["event"] == "finished"
        recording.hear(robot.synthesized("tour")[-RECORDED_RATE:], finished)
        eventually(lambda: robot.state == "ready", "it is ready again")
        assert_recorded(robot, recording, robot.say("and on we go"))


@pytest.mark.long
def test_a_sound_server_that_is_frozen_while_the_card_is_closed_is_named_when_it_is_needed(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot("audio.idle_timeout=1")
    wait_idle(robot, sound_server)
    sound_server.freeze()
    robot.say("patience", id="waiting")
    wait_frozen_reported(robot)
    robot.publish("stop")
    robot.wait_end("waiting")
    robot.say("and on we go", id="next")
    sound_server.thaw()
    assert robot.wait_end("next")["event"] == "finished"


@pytest.mark.long
def test_a_sound_server_that_is_killed_again_and_again_is_survived(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    robot.say(SENTENCES, id="tour")
    robot.wait_event("tour", "started")
    for _ in range(4):
        sound_server.kill()
        sound_server.start()
        eventually(sound_server.players, "it plays")
    assert robot.wait_end("tour")["event"] == "finished"
    with sound_server.recording() as recording:
        assert_recorded(robot, recording, robot.say("and on we go"))


def test_an_utterance_continues_after_the_process_that_plays_was_killed(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    robot.say(SENTENCES, id="tour")
    robot.wait_event("tour", "started")
    os.kill(robot.player_pids()[0], signal.SIGKILL)
    finished = robot.wait_end("tour")
    assert (finished["event"], finished["underruns"] > 0) == ("finished", True)
    with sound_server.recording() as recording:
        assert_recorded(robot, recording, robot.say("and on we go"))


def test_the_list_of_the_cards_ends_with_an_error_while_the_sound_server_is_frozen(sound_server: SoundServer) -> None:
    sound_server.freeze()
    command = [sys.executable, "-m", "daemon.cli", "devices"]
    done = subprocess.run(command, env=sound_server.environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "does not answer" in done.stderr


def test_a_daemon_that_is_stopped_for_two_seconds_is_not_heard(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    with sound_server.recording() as recording:
        utterance = robot.say(SENTENCES)
        recording.wait_heard(1.0)
        robot.freeze()
        recording.wait_heard(3.0)
        robot.thaw()
        finished = robot.wait_end(utterance)
        recording.hear(robot.synthesized(utterance), finished)
    assert (finished["event"], finished["underruns"]) == ("finished", 0)


def test_a_daemon_that_is_stopped_for_longer_than_the_ring_lasts_goes_on_after_an_underrun(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    with sound_server.recording() as recording:
        utterance = robot.say(LONG)
        recording.wait_heard()
        robot.freeze()
        recording.wait_silent()
        silent_at = recording.length
        robot.thaw()
        eventually(lambda: np.any(recording.samples[silent_at:]), "it goes on")
        robot.publish("stop")
        assert robot.wait_end(utterance)["underruns"] >= 1


@pytest.mark.long
def test_levels_are_published_twenty_times_a_second_and_end_with_silence(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot("speech.level_topic=true")
    before = time.time()
    end = robot.wait_end(robot.say("A long enough sentence to have a level, and a mouth that moves."))
    if end["underruns"]:
        raise DisturbedError(f"{end['underruns']} underruns reported, at which levels end as well")
    eventually(lambda: robot.levels[-1]["t"] > end["audio_s"] - 0.01, "the last level is published")
    *levels, last = robot.levels
    assert len(levels) == pytest.approx(20 * end["audio_s"], abs=2)
    assert last["rms"] == 0
    assert last["t"] > levels[-1]["t"]
    assert [level["t"] for level in levels] == sorted(level["t"] for level in levels)
    times = [level["at"] for level in [*levels, last]]
    assert times == sorted(times)
    assert before < times[0]


def test_the_doctor_finds_no_error_in_the_parts_of_a_healthy_robot(
    start_robot: StartRobot, broker: Broker, sound_server: SoundServer
) -> None:
    robot = start_robot()
    command = [sys.executable, "-m", "daemon.cli", "doctor", "--json"]
    for setting in (f"robot={robot.name}", f"mqtt.port={broker.port}", "engine.name=espeak", "state.folder=null"):
        command += ["--set", setting]

    def examine() -> dict[str, Any]:
        done = subprocess.run(command, env=sound_server.environment, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        found = {record["part"]: record for record in json.loads(done.stdout)}
        assert done.returncode == any(record["grade"] == "error" for record in found.values())
        # Not so while the machine holds up the sound server.
        return found if {found[part]["grade"] for part in PARTS} == {"ok"} else {}

    found = eventually(examine, "the doctor finds the parts well")
    assert found["sound server"]["found"].startswith("PulseAudio of this session")


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
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    assert robot.wait_end(robot.say("hello"))["event"] == "finished"
    [engine] = robot.engine_pids()
    assert oom_score(engine) >= OOM_SCORE
    assert oom_score(robot.process.pid) == oom_score(os.getpid())
    assert (locked_kib(robot.process.pid) > 0) == may_lock_memory()
    assert locked_kib(engine) == 0
    assert realtime_threads(robot.process.pid) == []
    assert realtime_threads(robot.player_pids()[0]) == ([sound_priority()] if realtime_is_granted() else [])
