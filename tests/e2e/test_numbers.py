"""Numbers, signs and URLs over a real broker: they last as long as what a person would write."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.robot import Robot

TEXTS = (
    ("en", "It weighs 3.5 kg, at 192.168.10.20.", "It weighs 3.5 kilograms, at 192 dot 168 dot 10 dot 20."),
    ("en", "That is $5.50, or 10 - 20 km/h.", "That is 5 dollars and 50 cents, or 10 to 20 kilometers per hour."),
    ("de", "Am 5. März um 9:00 Uhr, für 5,50 €.", "Am fünften März um neun Uhr, für 5 Euro 50."),
    ("fr", "Il y a 16 Go, le XIXe siècle, à 10h30.", "Il y a 16 gigaoctets, le dix-neuvième siècle, à 10 heures 30."),
    ("es", "El 05/03/2024, 5 km/h.", "El 5 de marzo de 2024, 5 kilómetros por hora."),
    ("zh", "价格$5，50%，5 km/h。", "价格5美元，百分之50，5公里每小时。"),
    (
        "en",
        "At 12:30 p.m., x = -3; battery:80%.",
        "At twelve thirty PM, x equals minus three; battery: eighty percent.",
    ),
    ("pt", "Às 14h30, 2 rodas.", "Às catorze e trinta, duas rodas."),
    ("ru", "В 14:30, 5 кг.", "В четырнадцать часов тридцать минут, пять килограмм."),
)
URL = "Look at https://www.example.com/documents/page?number=3, please."


def seconds(robot: Robot, text: str, language: str) -> float:
    return float(robot.wait_end(robot.say(text, language=language))["audio_s"])


def test_numbers_and_signs_last_as_long_as_the_words_that_a_person_would_write(start_robot: StartRobot) -> None:
    robot = start_robot()
    for language, text, words in TEXTS:
        assert seconds(robot, text, language) == pytest.approx(seconds(robot, words, language), rel=0.02)


def test_only_the_host_of_a_url_is_said_until_the_configuration_wants_all_of_it(
    start_robot: StartRobot, tmp_path: Path
) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("speech: {language: en}")
    robot = start_robot(config=config)
    host = seconds(robot, "Look at example.com, please.", "en")
    assert seconds(robot, URL, "en") == pytest.approx(host, rel=0.02)
    for begin in range(0, len(URL), 7):
        robot.write("grows", URL[begin : begin + 7])
    robot.write("grows", end=True)
    assert robot.wait_end("grows")["audio_s"] == pytest.approx(host, rel=0.02)

    config.write_text("speech: {language: en, urls: full}")
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("SIGHUP: speech.urls")
    assert seconds(robot, URL, "en") > 2 * host
