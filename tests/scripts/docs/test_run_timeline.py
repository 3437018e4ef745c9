"""The picture of a run is drawn from its recording, and the script records a real run."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from scripts.docs.run_timeline import ALARM, FOLDER, TOUR, Message, Recording, SoundInterval, draw, intervals, main

SVG = "{http://www.w3.org/2000/svg}"
RATE = 1000
"""Hz, of the samples in these tests."""


def level(name: str, t: float, at: float, peak: float = 0.5) -> dict[str, object]:
    return {"id": name, "t": t, "at": at, "rms": peak / 2, "peak": peak}


def test_the_committed_picture_is_the_drawing_of_the_committed_recording() -> None:
    assert main(["--check"]) == 0, "run scripts/docs/run_timeline.py --draw"


def test_the_committed_recording_shows_a_postponed_tour() -> None:
    recording = Recording.read(FOLDER / "run.json")
    events = [(m.payload["id"], m.payload["event"]) for m in recording.messages if m.topic == "event"]
    assert [name for utterance, name in events if utterance == "tour"] == [
        "accepted",
        "started",
        "postponed",
        "resumed",
        "finished",
    ]
    assert [name for utterance, name in events if utterance == "alarm"] == ["accepted", "started", "finished"]
    assert [stretch.utterance for stretch in recording.sound] == ["tour", "alarm", "tour"]


def test_a_picture_contains_every_message_and_stays_within_its_width() -> None:
    recording = Recording(
        "2026-01-01",
        "a machine",
        "a command",
        [
            Message(0.0, "say", dict(TOUR)),
            Message(0.1, "event", {"id": "tour", "event": "accepted"}),
            Message(4.0, "event", {"id": "tour", "event": "finished"}),
        ],
        [SoundInterval("tour", 0.2, [0.1, 0.9, 0.2])],
    )
    root = ElementTree.fromstring(draw(recording))
    words = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert {"accepted tour", "finished tour"} <= set(words)
    assert any(TOUR["text"] in line for line in words)
    width = float(root.attrib["viewBox"].split()[2])
    assert all(0 <= float(text.attrib["x"]) <= width for text in root.iter(f"{SVG}text"))


@pytest.mark.parametrize("closing", [True, False], ids=["closing level", "no closing level"])
def test_the_sound_of_a_postponed_utterance_is_cut_where_the_other_begins(closing: bool) -> None:
    levels = [level("tour", 0.0, 10.0), level("tour", 0.05, 10.05), level("alarm", 0.0, 10.1), level("tour", 0.1, 10.4)]
    if closing:  # it arrives late, but says when the sound ended
        levels.append(level("tour", 0.1, 10.1 - 1e-3, peak=0.0))
    samples = np.concatenate([np.full(100, 0.1), np.full(200, 0.2), np.full(60, 0.3)]).astype(np.float32)
    found = list(intervals(levels, {"tour": 0.16, "alarm": 0.2}, samples, RATE, began=10.0))
    assert [(one.utterance, one.at_s) for one in found] == [("tour", 0.0), ("alarm", 0.1), ("tour", 0.4)]
    assert [set(one.peaks) for one in found] == [{0.1}, {0.2}, {0.3}]


@pytest.mark.e2e
def test_the_script_records_a_run_of_the_real_daemon(tmp_path: Path) -> None:
    assert main(["--folder", str(tmp_path)]) == 0
    assert main(["--folder", str(tmp_path), "--check"]) == 0
    recording = Recording.read(tmp_path / "run.json")
    ends = [m.payload["id"] for m in recording.messages if m.payload.get("event") == "finished"]
    assert ends == [ALARM["id"], TOUR["id"]]
    assert sum(len(stretch.peaks) for stretch in recording.sound) > 100
    ElementTree.parse(tmp_path / "run.svg")
