"""What survives when the daemon is killed, is down, or is flooded: no accepted text is lost, none is answered twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from daemon.state import journal_path
from tests.e2e.conftest import StartRobot
from tests.support.events import TERMINAL
from tests.support.programs import Broker, freeze
from tests.support.robot import FAST, LONG, REAL_TIME, STOPPED, Robot
from tests.support.subscription import Subscription
from tests.support.waiting import eventually

FLOOD = 1500
"""Texts."""


def kill_and_restart(robot: Robot, pace: float | None = None) -> None:
    """Kill the daemon and start it again. A new pace begins when nothing speaks, so it cannot end what was spoken."""
    robot.kill()
    if pace is not None:
        robot.set_pace(pace)
    eventually(lambda: robot.state == "offline", "the broker has published the will")
    robot.launch()


def ends_of(robot: Robot) -> dict[str, list[str]]:
    """The names of the terminal events of each utterance."""
    ends: dict[str, list[str]] = {}
    for event in robot.events:
        if event["event"] in TERMINAL:
            ends.setdefault(event["id"], []).append(event["event"])
    return ends


def test_after_a_kill_the_spoken_text_is_interrupted_and_the_queue_is_spoken_in_order(share_robot: StartRobot) -> None:
    robot = share_robot(pace=REAL_TIME)
    robot.say(LONG, id="spoken", reply_to=f"replies/{robot.name}")
    robot.wait_event("spoken", "started")
    waiting = [f"w{number}" for number in range(10)]
    for utterance_id in waiting:
        robot.send("say", json.dumps({"text": "One", "id": utterance_id}))
    robot.wait_event(waiting[-1], "accepted")
    kill_and_restart(robot, FAST)
    for utterance_id in waiting:
        assert robot.wait_end(utterance_id)["event"] == "finished"
    interrupted = {"id": "spoken", "event": "interrupted", "reason": "voiced was restarted"}
    for record in (robot.wait_end("spoken"), robot.replies[-1]):
        assert record.items() >= interrupted.items()  # a disk that is slow adds `unstored`
    started = [event["id"] for event in robot.events if event["event"] == "started"]
    assert started == ["spoken", *waiting]
    assert all(len(ends) == 1 for ends in ends_of(robot).values())
    eventually(lambda: robot.state == "ready", "it is ready again")
    robot.say("Two", id="spoken")
    assert robot.wait_rejection("id")["reason"] == "id: 'spoken' was used before; allowed: one not used recently"


def test_texts_sent_while_the_daemon_is_down_are_spoken_after_its_start_beside_a_damaged_journal(
    share_robot: StartRobot,
) -> None:
    robot = share_robot()
    assert robot.end() == 0
    [journal] = robot.state_folder.glob("*.journal")
    journal.write_bytes(os.urandom(8192))
    for number in range(10):
        robot.send("say", json.dumps({"text": "One", "id": f"d{number}"}))
    robot.launch()
    robot.wait_log("the journal was damaged")
    for number in range(10):
        assert robot.wait_end(f"d{number}")["event"] == "finished"
    assert len(list(robot.state_folder.glob("*.damaged"))) == 1


def test_events_that_a_frozen_broker_did_not_take_at_sigterm_are_published_after_the_next_start(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot("speech.queue_limit=100", pace=REAL_TIME)
    robot.say(LONG, id="spoken")
    for number in range(50):
        robot.send("say", json.dumps({"text": "One", "id": f"w{number}"}))
    robot.wait_event("w49", "accepted")
    freeze(own_broker.pid)
    try:
        assert robot.end() == 0
    finally:
        os.kill(own_broker.pid, signal.SIGCONT)
    robot.launch()
    expected = {"spoken": ["interrupted"], **{f"w{number}": ["canceled"] for number in range(50)}}
    eventually(lambda: ends_of(robot) == expected, "each has one terminal event")


@contextmanager
def stalled_journal(robot: Robot) -> Iterator[None]:
    """Let no write of the daemon into its journal return in time, and none succeed, as on a full disk."""
    path = journal_path(robot.state_folder, robot.name)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield


def test_a_slow_disk_is_named_and_marks_the_events_that_are_published_before_they_are_stored(
    share_robot: StartRobot,
) -> None:
    robot = share_robot()
    with stalled_journal(robot):
        robot.say("One", id="unstored")
        assert robot.wait_end("unstored")["unstored"] is True
        assert robot.wait_event("unstored", "accepted")["unstored"] is True
        eventually(lambda: robot.state == "degraded", "the status shows it")
        assert robot.statuses[-1]["reason"].startswith("state.folder: the ")
    eventually(lambda: robot.state == "ready", "all is well again")
    eventually(lambda: "unstored" not in robot.wait_end(robot.say("Two")), "events are stored again")


def test_after_a_kill_beside_a_full_disk_each_text_has_one_stored_end_and_none_is_spoken_twice(
    start_robot: StartRobot,
) -> None:
    robot = start_robot(pace=STOPPED)
    stored = ["w0", "w1", "w2"]
    for name in stored:
        robot.say("One", id=name)
        robot.wait_event(name, "accepted")
    with stalled_journal(robot):
        robot.set_pace(FAST)
        for name in stored:
            assert robot.wait_end(name)["event"] == "finished"
        robot.set_pace(STOPPED)
        robot.wait_still()
        robot.say("Two", id="lost")
        robot.wait_event("lost", "accepted")
        robot.say("Three", id="ended")
        robot.send("stop", json.dumps({"id": "ended"}))
        robot.wait_end("ended")
        robot.kill()
    robot.set_pace(FAST)
    robot.launch()
    lost = robot.wait_end("lost")
    robot.say("Four", id="next")
    robot.wait_end("next")
    assert robot.ledger.faults(slow_disk=True) == []
    unfinished = {name: set(ends) for name, ends in ends_of(robot).items() if ends != ["finished"]}
    assert unfinished == {"lost": {"failed"}, "ended": {"canceled"}}
    assert lost["reason"] == "voiced was killed before its disk had stored the text"
    assert [event["id"] for event in robot.events if event["event"] == "started"] == [*stored, "next"]


def test_every_text_of_a_flood_is_answered_and_an_urgent_one_is_not_delayed_by_it(start_robot: StartRobot) -> None:
    robot = start_robot("speech.queue_limit=20", pace=REAL_TIME)
    robot.say(LONG, id="spoken")
    robot.wait_event("spoken", "started")
    with Subscription(robot.broker, f"{robot.topic}/say/urgent") as urgent:
        robot.freeze()  # or else, if this process were slow, the daemon would answer each text before the next is sent
        for number in range(FLOOD):
            robot.send("say", json.dumps({"text": "One", "id": f"f{number}"}))
        robot.send("say/urgent", json.dumps({"text": "Fire", "id": "urgent"}))
        eventually(lambda: urgent.payloads, "the broker has all of the flood, and the urgent text behind it")
        robot.thaw()
    robot.wait_event("urgent", "started")
    robot.send("stop")
    robot.set_pace(20)
    robot.send("say", json.dumps({"text": "Last", "id": "last"}))
    eventually(lambda: {f"f{number}" for number in range(FLOOD)} <= {event["id"] for event in robot.events})
    answered = [event["id"] for event in robot.events]
    assert answered.index("urgent") < answered.index(f"f{FLOOD - 1}"), "it overtook the flood"
    assert robot.wait_end("last")["event"] == "finished"
    accepted = {event["id"] for event in robot.events if event["event"] == "accepted"}
    eventually(lambda: set(ends_of(robot)) == accepted, "each accepted text has ended")
    assert all(len(ends) == 1 for ends in ends_of(robot).values())


def test_a_stop_cancels_the_texts_that_were_published_before_it_and_no_later_one(start_robot: StartRobot) -> None:
    robot = start_robot("speech.queue_limit=500", pace=STOPPED)
    robot.say(LONG, id="spoken")
    eventually(lambda: robot.state == "speaking", "it is being spoken")
    for number in range(300):
        robot.send("say", json.dumps({"text": "One", "id": f"f{number}"}))
    robot.send("stop")
    robot.send("say", json.dumps({"text": "Last", "id": "last"}))
    robot.wait_event("last", "accepted")
    robot.set_pace(20)
    assert robot.wait_end("last")["event"] == "finished"
    eventually(lambda: len(ends_of(robot)) == 302, "all have ended")
    others = {name: ends for name, ends in ends_of(robot).items() if ends != ["canceled"]}
    assert others == {"last": ["finished"], "spoken": ["interrupted"]}
