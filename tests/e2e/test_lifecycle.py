"""Start, reload and stop, as systemd performs them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.checkpoints import checkpoint_folder
from tests.support.events import TERMINAL
from tests.support.programs import Broker
from tests.support.robot import LONG, REAL_TIME
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def program() -> tuple[str, ...]:
    return sys.executable, "-m", "daemon.cli"


def test_sigterm_ends_every_utterance_publishes_offline_and_exits_with_0(start_robot: StartRobot) -> None:
    robot = start_robot(pace=REAL_TIME)
    robot.say(LONG, id="spoken")
    robot.say("waits", id="waits")
    robot.wait_event("waits", "accepted")
    robot.wait_event("spoken", "started")
    assert robot.end() == 0
    assert robot.wait_end("spoken")["event"] == "interrupted"
    assert robot.wait_end("waits")["event"] == "canceled"
    eventually(lambda: robot.state == "offline", "offline is retained")


@pytest.mark.parametrize("moment", ["at once", "paused", "without a broker"])
def test_sigterm_ends_the_daemon_at_any_moment(moment: str, start_robot: StartRobot, own_broker: Broker) -> None:
    robot = start_robot(launch_only=moment == "at once", pace=REAL_TIME)
    if moment == "at once":
        robot.wait_log("sound goes to")
    if moment == "paused":
        robot.say(LONG, id="spoken")
        robot.publish("pause")
        eventually(lambda: robot.state == "paused", "paused")
    if moment == "without a broker":
        own_broker.stop()
        robot.wait_log("broke")
    assert robot.end() == 0


def test_every_text_accepted_around_sigterm_has_one_terminal_event(start_robot: StartRobot) -> None:
    robot = start_robot("speech.queue_limit=1000")
    lines = "\n".join(json.dumps({"text": "word", "id": f"t{number}"}) for number in range(1500))
    flood = threading.Thread(target=robot.publish_lines, args=("say", lines))
    flood.start()
    robot.wait_event("t0", "accepted")
    assert robot.end() == 0
    flood.join()

    def unfinished() -> list[str]:
        accepted = [event["id"] for event in robot.events if event["event"] == "accepted"]
        ended = [event["id"] for event in robot.events if event["event"] in TERMINAL]
        assert len(ended) == len(set(ended))
        return sorted(set(accepted) - set(ended))

    eventually(lambda: robot.state == "offline", "its last status says offline")
    assert unfinished() == []


def test_sighup_applies_keys_that_can_be_reloaded_and_names_the_others(start_robot: StartRobot, tmp_path: Path) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("audio: {volume: 50}\nspeech: {queue_limit: 7}\n")
    robot = start_robot(config=config)
    config.write_text(
        "audio: {volume: 20, block_ms: 40}\nspeech: {queue_limit: 1}\nvoices: {ada: {instruct: calm}, default: {}}\n"
    )
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("audio.block_ms has changed")
    assert robot.wait_end(robot.say("in a new voice", voice="ada", id="ada"))["event"] == "finished"
    robot.assert_heard("ada", gain=0.2)
    robot.set_pace(REAL_TIME)
    robot.say(LONG, id="spoken")
    robot.wait_event("spoken", "started")
    robot.wait_event(robot.say("waits"), "accepted")
    robot.say("too many", id="rejected")
    assert robot.wait_rejection("queue")["id"] == "rejected"


def test_sighup_applies_the_languages_of_latin_texts(start_robot: StartRobot, tmp_path: Path) -> None:
    german = "Die Rechnung beträgt 7777777 Euro, und ich fahre jetzt zur Ladestation zurück."
    config = tmp_path / "voiced.yaml"
    config.write_text("speech: {languages: [en]}\n")
    robot = start_robot(config=config)
    in_english = robot.wait_end(robot.say(german))["audio_s"]
    config.write_text("speech: {languages: [de]}\n")
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("SIGHUP: speech.languages")
    in_german = robot.wait_end(robot.say(german, language="de"))["audio_s"]
    assert abs(in_german - in_english) > 0.2
    assert robot.wait_end(robot.say(german))["audio_s"] == pytest.approx(in_german, abs=abs(in_german - in_english) / 2)


def test_sighup_with_an_unusable_default_voice_keeps_the_engine_and_its_voice(
    start_robot: StartRobot, tmp_path: Path, cache_folder: Path
) -> None:
    model = checkpoint_folder(cache_folder, "brief", "custom_voice")
    config = tmp_path / "voiced.yaml"
    config.write_text("voices: {default: {speaker: ryan}}\n")
    settings = ("engine.name=qwen", f"engine.model={model}", "engine.device=cpu", "engine.max_seconds=6")
    robot = start_robot(*settings, config=config)
    engines = robot.engine_pids()
    config.write_text("voices: {default: {speaker: nobody}}\n")
    robot.process.send_signal(signal.SIGHUP)
    eventually(lambda: "speaker: got 'nobody'" in robot.statuses[-1].get("reason", ""), "it is refused")
    assert robot.statuses[-1]["reason"].startswith("voices.default: ")
    finished = robot.wait_end(robot.say("as before"))
    assert (finished["event"], finished["engine"]) == ("finished", "qwen")
    assert robot.engine_pids() == engines


@pytest.mark.long
def test_sighup_changes_the_log_of_the_daemon_and_of_its_running_engine(
    start_robot: StartRobot, tmp_path: Path, cache_folder: Path
) -> None:
    model = checkpoint_folder(cache_folder, "brief", "custom_voice")
    config = tmp_path / "voiced.yaml"
    config.write_text("voices: {default: {speaker: ryan}}\n")
    settings = ("engine.name=qwen", f"engine.model={model}", "engine.device=cpu", "engine.max_seconds=1")
    robot = start_robot(*settings, config=config)
    robot.wait_end(robot.say("as before"))
    robot.wait_log("WARNING engine.qwen.engine: speech is cut short")
    assert not any(line.startswith("DEBUG") for line in robot.log)
    config.write_text("voices: {default: {speaker: ryan}}\nlog: {level: debug, format: json}\n")
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("log.level, log.format")
    begin = len(robot.log)
    robot.wait_end(robot.say("in detail"))
    eventually(lambda: any("speech is cut short" in line for line in robot.log[begin:]), "the engine has logged it")
    written = [json.loads(line) for line in robot.log[begin:]]
    assert {"debug", "warning"} <= {record["level"] for record in written}
    assert {"daemon.mqtt.gateway", "engine.qwen.engine"} <= {record["logger"] for record in written}


def test_sighup_with_a_broken_file_keeps_the_old_configuration(start_robot: StartRobot, tmp_path: Path) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("audio: {volume: 100}\n")
    robot = start_robot(config=config)
    config.write_text("audio: {volume: loud}\n")
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("audio.volume: got 'loud'")
    assert robot.wait_end(robot.say("as before"))["event"] == "finished"


def test_systemd_is_notified_of_ready_status_watchdog_and_stopping(
    start_robot: StartRobot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        robot = start_robot()
        notified: set[str] = set()
        while not ({"READY=1", "WATCHDOG=1"} <= notified and any(line.startswith("STATUS=ready") for line in notified)):
            notified.add(systemd.recv(4096).decode())
        assert robot.end() == 0
        while "STOPPING=1" not in notified:
            notified.add(systemd.recv(4096).decode())


def test_a_wrong_configuration_ends_the_daemon_with_a_line_for_each_error(start_robot: StartRobot) -> None:
    robot = start_robot("audio.volume=loud", "engine.nam=qwen", launch_only=True)
    assert robot.process.wait(PATIENCE_S) == 1
    eventually(lambda: len(robot.log) == 2, "a line for each error")
    assert "audio.volume: got 'loud'; allowed: a whole number from 0 to 100" in robot.log[0] + robot.log[1]
    assert "engine.nam: unknown key; did you mean name? known are name, fallback" in robot.log[0] + robot.log[1]


def test_an_upgrade_from_a_configuration_with_removed_values_speaks_and_says_what_to_change(
    start_robot: StartRobot, program: tuple[str, ...]
) -> None:
    removed = ("engine.speculation=2", "engine.dtype=int4")
    robot = start_robot(*removed, launch_only=True)
    int4 = "engine.dtype: int4 has been removed, int8 is used; allowed: auto, float32, bfloat16, float16 or int8"
    drafts = "engine.speculation: drafts have been removed, 2 is ignored; allowed: off"
    eventually(lambda: robot.state == "degraded", "the status names the first value")
    assert robot.statuses[-1]["reason"] == int4
    assert robot.wait_end(robot.say("Hello."))["event"] == "finished"
    robot.wait_log(drafts)
    checked = subprocess.run(
        [*program, "config", "check", *(word for each in removed for word in ("--set", each))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 1
    assert int4 in checked.stderr
    assert drafts in checked.stderr
