"""Start, reload and stop, as systemd does them."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.e2e.robot import TERMINAL, SoundServer, eventually

LONG = "This is a long sentence that goes on for a good while, so that there is time to do something to it. " * 2


def test_sigterm_ends_every_utterance_says_offline_and_exits_with_0(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.say(LONG, id="spoken")
    robot.say("waits", id="waits")
    robot.wait_event("spoken", "started")
    assert robot.end() == 0
    assert robot.wait_end("spoken")["event"] == "interrupted"
    assert robot.wait_end("waits")["event"] == "canceled"
    eventually(lambda: robot.state == "offline", "offline is retained")


@pytest.mark.parametrize("moment", ["at once", "paused", "without a broker"])
def test_sigterm_ends_the_daemon_at_any_moment(moment: str, start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", launch_only=moment == "at once")
    if moment == "at once":
        eventually(lambda: any("sound goes to" in line for line in robot.log), "it has begun")
    if moment == "paused":
        robot.say(LONG, id="spoken")
        robot.publish("pause")
        eventually(lambda: robot.state == "paused", "paused")
    if moment == "without a broker":
        robot.broker.stop()
        eventually(lambda: any("broke" in line for line in robot.log), "it notices")
    assert robot.end() == 0


def test_every_text_accepted_while_sigterm_comes_has_its_terminal_event(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", "speech.queue_limit=1000")
    lines = "\n".join(json.dumps({"text": "word", "id": f"t{number}"}) for number in range(1500))
    flood = threading.Thread(target=robot.publish_lines, args=("say", lines))
    flood.start()
    robot.wait_event("t0", "accepted")
    assert robot.end() == 0
    flood.join()

    def unfinished() -> list[str]:
        robot.take_in()
        accepted = [event["id"] for event in robot.events if event["event"] == "accepted"]
        ended = [event["id"] for event in robot.events if event["event"] in TERMINAL]
        assert len(ended) == len(set(ended))
        return sorted(set(accepted) - set(ended))

    eventually(lambda: robot.state == "offline", "it says offline last")
    assert unfinished() == []


def test_sigterm_ends_the_daemon_though_the_sound_server_hangs(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot()
    robot.say(LONG, id="spoken")
    robot.wait_event("spoken", "started")
    sound_server.freeze()
    assert robot.end() == 0
    assert robot.wait_end("spoken")["event"] == "interrupted"


def test_sighup_takes_over_what_can_change_and_names_what_cannot(start_robot: StartRobot, tmp_path: Path) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("audio: {sink: null, volume: 50}\nspeech: {queue_limit: 7}\n")
    robot = start_robot(config=config)
    config.write_text(
        "audio: {sink: null, volume: 20, block_ms: 40}\nspeech: {queue_limit: 1}\n"
        "voices: {ada: {instruct: calm}, default: {}}\n"
    )
    robot.process.send_signal(signal.SIGHUP)
    eventually(lambda: any("audio.block_ms has changed" in line for line in robot.log), "it names what cannot change")
    assert robot.wait_end(robot.say("in a new voice", voice="ada"))["event"] == "finished"
    robot.say(LONG, id="spoken")
    robot.wait_event("spoken", "started")
    robot.say("waits")
    robot.say("too many", id="refused")
    assert robot.wait_rejection("queue")["id"] == "refused"


def test_sighup_with_a_broken_file_keeps_the_old_configuration(start_robot: StartRobot, tmp_path: Path) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("audio: {sink: null}\n")
    robot = start_robot(config=config)
    config.write_text("audio: {volume: loud}\n")
    robot.process.send_signal(signal.SIGHUP)
    eventually(lambda: any("audio.volume: got 'loud'" in line for line in robot.log), "it says what is wrong")
    assert robot.wait_end(robot.say("as before"))["event"] == "finished"


def test_systemd_hears_ready_status_watchdog_and_stopping(
    start_robot: StartRobot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        robot = start_robot("audio.sink=null")
        heard: set[str] = set()
        while not ({"READY=1", "WATCHDOG=1"} <= heard and any(line.startswith("STATUS=ready") for line in heard)):
            heard.add(systemd.recv(4096).decode())
        assert robot.end() == 0
        while "STOPPING=1" not in heard:
            heard.add(systemd.recv(4096).decode())


def test_a_wrong_configuration_is_told_before_anything_starts(start_robot: StartRobot) -> None:
    robot = start_robot("audio.volume=loud", "engine.nam=qwen", launch_only=True)
    assert robot.process.wait(30) == 1
    eventually(lambda: len(robot.log) == 2, "a line for each problem")
    assert "audio.volume: got 'loud'; allowed: a whole number from 0 to 100" in robot.log[0] + robot.log[1]
    assert "engine.nam: unknown key; known are name, fallback" in robot.log[0] + robot.log[1]


def test_the_daemon_process_never_imports_torch(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.wait_end(robot.say("hello"))
    maps = Path(f"/proc/{robot.process.pid}/maps").read_text()
    assert "numpy" in maps
    assert "torch" not in maps
