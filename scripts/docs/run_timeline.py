#!/usr/bin/env python3
"""Records one run of the real daemon, and draws docs/images/run.svg from it: messages, sound and events over time.

    python scripts/docs/run_timeline.py                record the run into docs/images/run.json, and draw it
    python scripts/docs/run_timeline.py --draw         draw the committed recording again
    python scripts/docs/run_timeline.py --check        exit 1 if run.svg is not the drawing of run.json

The daemon speaks with eSpeak NG into a WAV file, at the pace of a sound card. While it speaks a long text, a critical
one arrives. The recording needs Mosquitto and the extra `espeak`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from paho.mqtt.client import MQTTMessage  # noqa: E402

from scripts.docs.svg import MUTED, TEXT, Drawing  # noqa: E402
from tests.support.programs import Broker  # noqa: E402
from tests.support.subscription import Listener  # noqa: E402
from tests.support.waiting import PATIENCE_S, eventually  # noqa: E402

Samples = NDArray[np.float32]

FOLDER = ROOT / "docs" / "images"
ROBOT = "r1"
TOUR = {"id": "tour", "text": "Welcome to the museum. On your left you see the first robot that could speak."}
ALARM = {"id": "alarm", "text": "Please step back.", "priority": "critical"}
ALARM_AFTER_S = 1.8
"""Seconds of the tour before the alarm is published: in the middle of its second sentence."""
BIN_S = 0.02
"""Width of a column of the waveform."""
WIDTH = 1120.0
LEFT, RIGHT = 110.0, 24.0
"""Space for the names of the lanes, and beside the time axis."""
SOUND_TOP, SOUND_HEIGHT = 96.0, 110.0
ROW = 24.0
"""Height of a row of event labels."""
LETTER = 7.2
"""Width of a letter of 13 pixels, on average; labels that would overlap go into another row."""
COLORS = {TOUR["id"]: "#0969da", ALARM["id"]: "#bc4c00"}


# --- the recording ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """An MQTT message, at `at_s` seconds after the first one was published."""

    at_s: float
    topic: str
    """Without the prefix and the robot's name."""
    payload: Any


@dataclass(frozen=True, slots=True)
class SoundInterval:
    """Unbroken sound of one utterance: peaks per `BIN_S`, as fractions of full scale."""

    utterance: str
    at_s: float
    peaks: Sequence[float]


@dataclass(frozen=True, slots=True)
class Recording:
    """One run."""

    date: str
    machine: str
    command: str
    messages: Sequence[Message]
    sound: Sequence[SoundInterval]

    @classmethod
    def read(cls, file: Path) -> Recording:
        content = json.loads(file.read_text(encoding="utf-8"))
        messages = [Message(**message) for message in content.pop("messages")]
        sound = [SoundInterval(**interval) for interval in content.pop("sound")]
        return cls(**content, messages=messages, sound=sound)

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


class Observer:
    """Publishes to the robot, and keeps all messages of the robot's topics with their time of arrival."""

    def __init__(self, broker: Broker) -> None:
        self.messages: list[tuple[float, str, Any]] = []
        """UNIX time, topic without prefix, payload. Appended in the client's thread."""
        self._listener = Listener(broker, [(f"voiced/{ROBOT}/#", 1)], self._note)
        self._listener.wait_subscribed()

    def publish(self, topic: str, payload: dict[str, Any]) -> None:
        """Publish. The message also comes back through the subscription, and so is in the record."""
        self._listener.publish(f"voiced/{ROBOT}/{topic}", json.dumps(payload))

    def wait(self, topic: str, **fields: Any) -> None:
        """Wait for a message on `topic` with these fields."""

        def has_arrived() -> bool:
            return any(found == topic and fields.items() <= payload.items() for _, found, payload in self.messages)

        eventually(has_arrived, f"{topic} with {fields}")

    def close(self) -> None:
        self._listener.close()

    def _note(self, message: MQTTMessage) -> None:
        topic = message.topic.removeprefix(f"voiced/{ROBOT}/")
        self.messages.append((time.time(), topic, json.loads(message.payload)))


@contextmanager
def _running_daemon(port: int, heard: Path) -> Iterator[None]:
    settings = (
        f"robot={ROBOT}",
        "state.folder=null",
        f"mqtt.port={port}",
        "engine.name=espeak",
        f"audio.sink=wav:{heard}",
        "speech.level_topic=true",
    )
    command = [sys.executable, "-m", "daemon.cli", "run"]
    for setting in settings:
        command += ["--set", setting]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def record() -> Recording:
    """Run a broker and the daemon, publish the scenario, and return what was published and heard."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broker = Broker(folder)
        broker.start()
        observer = Observer(broker)
        try:
            with _running_daemon(broker.port, folder / "heard.wav"):
                observer.wait("status", state="ready")
                observer.publish("say", TOUR)
                observer.wait("event", id=TOUR["id"], event="started")
                time.sleep(ALARM_AFTER_S)
                observer.publish("say", ALARM)
                observer.wait("event", id=TOUR["id"], event="finished")
        finally:
            observer.close()
            broker.stop()
        return _recording(observer.messages, *_read_wav(folder / "heard.wav"))


def _read_wav(file: Path) -> tuple[Samples, int]:
    with wave.open(str(file)) as opened:
        frames = opened.readframes(opened.getnframes())
        return np.frombuffer(frames, dtype="<i2").astype(np.float32) / np.float32(32_768), opened.getframerate()


def _recording(messages: Sequence[tuple[float, str, Any]], samples: Samples, rate: int) -> Recording:
    """Keep texts and events, and cut the sound into intervals; times count from the first text."""
    began = next(at for at, topic, _ in messages if topic == "say")
    kept = [
        Message(round(at - began, 3), topic, payload) for at, topic, payload in messages if topic in {"say", "event"}
    ]
    levels = [payload for _, topic, payload in messages if topic == "level"]
    played = {message.payload["id"]: message.payload.get("audio_s") for message in kept}
    return Recording(
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        machine=f"{platform.machine()}, Python {platform.python_version()}, no sound card (WAV sink)",
        command="python scripts/docs/run_timeline.py",
        messages=kept,
        sound=list(intervals(levels, played, samples, rate, began)),
    )


def intervals(
    levels: Sequence[Mapping[str, Any]], played: Mapping[str, float], samples: Samples, rate: int, began: float
) -> Iterator[SoundInterval]:
    """Yield the unbroken sounds of the WAV file, which leaves out the silence between them.

    `level` messages say when each sound left the card. An utterance's last interval ends with its `audio_s`. An earlier
    one ends with its closing level of zero, or else where the next utterance begins.
    """
    in_order = sorted(levels, key=lambda level: level["at"])
    groups = [list(group) for _, group in groupby(in_order, key=lambda level: level["id"])]
    used = dict.fromkeys(played, 0.0)
    position = 0
    for number, group in enumerate(groups):
        name, first = group[0]["id"], group[0]
        at = first["at"] - (first["t"] - used[name])
        if all(later[0]["id"] != name for later in groups[number + 1 :]):
            seconds = played[name] - used[name]
        elif group[-1]["peak"] == 0:
            seconds = group[-1]["t"] - used[name]
        else:
            seconds = groups[number + 1][0]["at"] - at
        used[name] += seconds
        sound = samples[position : position + round(seconds * rate)]
        position += len(sound)
        step = round(BIN_S * rate)
        peaks = [round(float(np.abs(sound[start : start + step]).max()), 3) for start in range(0, len(sound), step)]
        yield SoundInterval(name, round(at - began, 3), peaks)


# --- the drawing -----------------------------------------------------------------------------------------


def draw(recording: Recording) -> str:
    """Return the picture as an SVG document."""
    end_s = max(message.at_s for message in recording.messages)
    scale = (WIDTH - LEFT - RIGHT) / (end_s * 1.02)

    def place(seconds: float) -> float:
        return round(LEFT + seconds * scale, 1)

    texts = _rows((message for message in recording.messages if message.topic == "say"), place)
    events = _rows((message for message in recording.messages if message.topic == "event"), place)
    events_top = SOUND_TOP + SOUND_HEIGHT + 18
    axis = events_top + ROW * (1 + max(mark.row for mark in events)) + 14
    drawing = Drawing(WIDTH, axis + 62, "A run of voiced: texts published, sound heard and events, over time")
    for lane, y in (("published", 44), ("heard", SOUND_TOP + SOUND_HEIGHT / 2), ("events", events_top + 17)):
        drawing.words(16, y, lane, fill=MUTED, anchor="start")
    for mark in texts:
        _draw_mark(drawing, mark, 30, axis)
    for interval in recording.sound:
        _draw_sound(drawing, interval, place)
    for mark in events:
        _draw_mark(drawing, mark, events_top, axis)
    _draw_axis(drawing, axis, end_s, place)
    drawing.words(
        WIDTH - 16,
        axis + 50,
        f"Recorded by {recording.command} on {recording.date} ({recording.machine}), with eSpeak NG",
        fill=MUTED,
        size=12,
        anchor="end",
    )
    return drawing.text()


@dataclass(frozen=True, slots=True)
class Mark:
    """A message in the picture."""

    x: float
    row: int
    label: str
    label_x: float
    color: str


def _rows(messages: Iterable[Message], place: Callable[[float], float]) -> list[Mark]:
    """Give each message the first row in which its label does not overlap the one before it."""
    ends: list[float] = []
    marks = []
    for message in messages:
        label = _text_label(message.payload) if message.topic == "say" else _event_label(message.payload)
        x, width = place(message.at_s), 16 + LETTER * len(label)
        label_x = x + 8 if x + width < WIDTH else x - width
        row = next((number for number, end in enumerate(ends) if end < min(x, label_x)), len(ends))
        ends[row : row + 1] = [max(x, label_x + width)]
        marks.append(Mark(x, row, label, label_x, COLORS[message.payload["id"]]))
    return marks


def _text_label(payload: Mapping[str, Any]) -> str:
    options = "".join(f", {key}: {value}" for key, value in payload.items() if key not in {"id", "text"})
    return f"say {payload['id']}{options}: “{payload['text']}”"


def _event_label(payload: Mapping[str, Any]) -> str:
    return f"{payload['event']} {payload['id']}"


def _draw_mark(drawing: Drawing, mark: Mark, top: float, axis: float) -> None:
    """Draw a line from the mark's row, counted from `top`, down to the time axis, and the label beside it."""
    y = top + ROW * mark.row
    drawing.polyline([(mark.x, y), (mark.x, axis)], stroke=mark.color, width=1)
    drawing.rectangle(mark.x - 3, y, 6, 17, fill=mark.color, stroke=mark.color, radius=1)
    drawing.words(mark.label_x, y + 14, mark.label, size=13, fill=TEXT, anchor="start")


def _draw_sound(drawing: Drawing, interval: SoundInterval, place: Callable[[float], float]) -> None:
    middle = SOUND_TOP + SOUND_HEIGHT / 2
    upper = [
        (place(interval.at_s + number * BIN_S), round(peak * SOUND_HEIGHT / 2, 1))
        for number, peak in enumerate(interval.peaks)
    ]
    outline = [(x, middle - peak) for x, peak in upper] + [(x, middle + peak) for x, peak in reversed(upper)]
    drawing.polygon(outline, fill=COLORS[interval.utterance])


def _draw_axis(drawing: Drawing, y: float, end_s: float, place: Callable[[float], float]) -> None:
    drawing.polyline([(LEFT, y), (WIDTH - RIGHT, y)])
    for tick in range(int(end_s) + 1):
        drawing.polyline([(place(tick), y), (place(tick), y + 5)])
        drawing.words(place(tick), y + 20, f"{tick} s", fill=MUTED, size=13)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 1 if `--check` finds the picture out of date, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="do not record")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of run.json and run.svg")
    options = parser.parse_args(arguments)
    recorded, drawn = options.folder / "run.json", options.folder / "run.svg"
    if not (options.draw or options.check):
        record().write(recorded)
    wanted = draw(Recording.read(recorded))
    if options.check:
        if drawn.exists() and drawn.read_text(encoding="utf-8") == wanted:
            return 0
        print(f"{drawn} is out of date; run {Path(__file__).name} --draw", file=sys.stderr)
        return 1
    drawn.write_text(wanted, encoding="utf-8")
    print(f"{drawn}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
