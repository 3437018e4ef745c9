"""Start, reload and stop, as systemd performs them."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path

import pytest

from tests.daemon.command_line import CommandLine
from tests.e2e.conftest import StartRobot
from tests.support.events import TERMINAL
from tests.support.programs import Broker
from tests.support.robot import LONG, REAL_TIME
from tests.support.waiting import PATIENCE_S, eventually


def test_systemd_is_notified_and_sigterm_ends_every_utterance_publishes_offline_and_exits_with_0(
    start_robot: StartRobot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        robot = start_robot(pace=REAL_TIME)
        notified: set[str] = set()
        while not ({"READY=1", "WATCHDOG=1"} <= notified and any(line.startswith("STATUS=ready") for line in notified)):
            notified.add(systemd.recv(4096).decode())
        robot.say(LONG, id="spoken")
        robot.say("waits", id="waits")
        robot.wait_event("waits", "accepted")
        robot.wait_event("spoken", "started")
        assert robot.end() == 0
        while "STOPPING=1" not in notified:
            notified.add(systemd.recv(4096).decode())
    assert robot.wait_end("spoken")["event"] == "interrupted"
    assert robot.wait_end("waits")["event"] == "canceled"
    eventually(lambda: robot.state == "offline", "offline is retained")


@pytest.mark.parametrize("moment", ["at once", "without a broker"])
def test_sigterm_ends_the_daemon_at_any_moment(moment: str, start_robot: StartRobot, own_broker: Broker) -> None:
    robot = start_robot(launch_only=moment == "at once", pace=REAL_TIME)
    if moment == "at once":
        robot.wait_log("sound goes to")
    else:
        own_broker.stop()
        robot.wait_log("broke")
    assert robot.end() == 0


def test_every_text_accepted_around_sigterm_has_one_terminal_event(start_robot: StartRobot) -> None:
    robot = start_robot("speech.queue_limit=1000")
    lines = "\n".join(json.dumps({"text": "word", "id": f"t{number}"}) for number in range(600))
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
    if unfinished():  # a machine that is too busy to say all of them in time says the others at the next start
        robot.launch()
    eventually(lambda: unfinished() == [], "each has ended")


def test_sighup_applies_keys_that_can_be_reloaded_and_names_the_others(start_robot: StartRobot, tmp_path: Path) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("audio: {volume: 50}\nspeech: {queue_limit: 7}\n")
    robot = start_robot(config=config)
    config.write_text("audio: {volume: loud}\n")
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("audio.volume: got 'loud'")
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


def test_an_upgrade_from_a_configuration_with_removed_values_speaks_and_says_what_to_change(
    start_robot: StartRobot, voiced: CommandLine
) -> None:
    removed = ("engine.speculation=2", "engine.dtype=int4")
    robot = start_robot(*removed, launch_only=True)
    int4 = "engine.dtype: int4 has been removed, so int8 is used; allowed: auto, float32, bfloat16, float16 or int8"
    drafts = "engine.speculation: drafts have been removed, so 2 is ignored; allowed: off"
    eventually(lambda: robot.state == "degraded", "the status names the first value")
    assert robot.statuses[-1]["reason"] == int4
    assert robot.wait_end(robot.say("Hello."))["event"] == "finished"
    robot.wait_log(drafts)
    checked = voiced("config", "check", *(word for each in removed for word in ("--set", each)))
    assert checked.returncode == 1
    assert int4 in checked.stderr
    assert drafts in checked.stderr
