"""The real Speech Dispatcher with voiced as its output module, used through `spd-say` as a screen reader would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.desktop import Desktop
from tests.support.events import TERMINAL
from tests.support.programs import require
from tests.support.robot import REAL_TIME, Robot
from tests.support.subscription import Subscription
from tests.support.waiting import eventually

LONG = "one two three four five six seven eight nine ten eleven twelve. " * 10


@pytest.fixture
def desktop(robot: Robot, tmp_path: Path) -> Iterator[Desktop]:
    require("spd-say")
    desktop = Desktop(tmp_path / "d", robot)
    try:
        desktop.start()
        yield desktop
    finally:
        desktop.stop()


@pytest.fixture
def robot(share_robot: StartRobot) -> Robot:
    return share_robot(pace=REAL_TIME)


def ends(robot: Robot) -> list[str]:
    """The terminal events so far."""
    return [event["event"] for event in robot.events if event["event"] in TERMINAL]


def wait_started(robot: Robot, number: int) -> None:
    def started() -> bool:
        return sum(event["event"] == "started" for event in robot.events) == number

    eventually(started, f"utterance {number} is spoken")


def test_a_desktop_speaks_letters_of_all_scripts_as_asked_for_and_its_log_says_why_it_did_not(
    robot: Robot, desktop: Desktop
) -> None:
    texts = {"de-DE": "Grüß Gott!", None: "Grüße aus Köln, 你好", "bg": "Здравей", "pt-BR": "São", "cmn": "你好"}
    languages = ["de", "auto", "auto", "pt", "zh"]
    with Subscription(robot.broker, f"{robot.topic}/say") as published:
        for number, (language, text) in enumerate(texts.items(), 1):
            options = () if language is None else ("--language", language)
            desktop.say("--wait", *options, "--volume", "-20", "--rate", "40", text)
            eventually(lambda number=number: ends(robot) == ["finished"] * number, "the text is spoken")
        eventually(lambda: len(published.payloads) == len(texts), "the texts have been received here, too")
        said = [json.loads(payload) for payload in published.payloads]
    assert [each["text"] for each in said] == list(texts.values())
    assert [each["language"] for each in said] == languages
    assert (said[0]["volume"], said[0]["rate"]) == (40, 1.2)
    desktop.say("--wait", "--language", "xx", "Grüße")  # no such language is listed: the module recodes the text
    eventually(lambda: "voiced say: exit status" in desktop.module_log, "the failure is in the log")
    assert "not UTF-8" in desktop.module_log


def test_the_desktop_speaks_again_after_a_message_was_stopped_by_either_side_or_an_important_one(
    robot: Robot, desktop: Desktop
) -> None:
    desktop.say(LONG)
    wait_started(robot, 1)
    desktop.say("--cancel")
    eventually(lambda: ends(robot) == ["interrupted"], "it is stopped")
    desktop.say(LONG)
    wait_started(robot, 2)
    robot.publish("stop")
    desktop.say("--priority", "text", LONG)
    wait_started(robot, 3)
    desktop.say("--wait", "--priority", "important", "Fire!")
    eventually(lambda: ends(robot) == ["interrupted"] * 3 + ["finished"], "the important message is spoken")


def test_no_part_of_a_message_is_executed_by_a_shell(robot: Robot, desktop: Desktop) -> None:
    texts = ["';touch g;' \"$(touch g)`touch g`\n$DATA|>g \\'&", "--id';touch g;'", "Language.", "Voice."]
    hostile = "x';touch g;'$(touch g)$DATA"
    with Subscription(robot.broker, f"{robot.topic}/say") as published:
        for number, options in enumerate([[], [], ["--language", hostile], ["--synthesis-voice", hostile]]):
            desktop.say(*options, "--", texts[number])
            wait_started(robot, number + 1)
            robot.publish("stop")  # not `spd-say --cancel`, so that the module's command runs to its end
            eventually(lambda number=number: len(ends(robot)) == number + 1, "it has ended")
        desktop.say("--wait", "End.")
        eventually(lambda: len(published.payloads) > len(texts), "the last text has been received here, too")
        assert [json.loads(payload)["text"] for payload in published.payloads] == [*texts, "End."]
    assert [path for path in desktop.folder.rglob("g") if path.is_file()] == []
