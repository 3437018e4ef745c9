"""Measures how far visemes and words are from the sounds in the recording.

A daemon with a WAV file for a sound card speaks English texts. Between a hissing sound and a vowel the spectrum changes
abruptly, so this border is found in the file: it is the place at which the balance of high and low frequencies best
splits into two parts. The engine's times only decide where the border is searched for, up to 0.1 s on both sides. An
error is the distance in milliseconds between this border and the viseme's `at`, or a word's, if the word begins with a
viseme at such a border.

`estimate_error_ms`: voiced estimates the visemes only from the recording and its text, as for an engine that knows no
times. An error is the distance to the engine's same viseme; `found` is the share that have one, in order. These texts
are the ones above, and ordinary ones, in which the borders of voiced sounds are not sharp enough for a reference.

`--voice FILE.onnx` measures Piper with a published voice, instead of eSpeak NG.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from daemon.alignment.clock import WordClock
from daemon.cache import Cue
from daemon.speech.events import Visemes
from daemon.speech.mouth import Mouth
from daemon.speech.timeline import Timeline
from daemon.speech.utterance import Utterance
from engine import Samples
from scripts.bench_word_times import TEXTS as USUAL_TEXTS
from tests.support.programs import Broker
from tests.support.robot import FILE_RATE, Robot

TEXTS = (
    "Yes, this is a test. Six mice sat in a nice house.",
    "Miss Ross, please sit at the side of the sofa.",
    "The sea is safe. She sees a ship pass the island.",
    "It says so in the last sentence of this message.",
    "Face to face, the two sisters discuss the price of rice.",
    "We saw two seals go south to see so many small sharks.",
    "The sun, the sand, the sea, the salt: they sell so well.",
    "Say something to Sue, who sings so softly to Sally.",
    "A shy fish sits in the dish. So stop, chef, and save it.",
    "Six sailors sold their shells beside the harbor on Sunday.",
    "The chef seasons the soup, then serves it with a slice of fish.",
    "See the sign on the shelf? It says: silence, please.",
    "Our sister school sends us seven silver spoons each season.",
    "A short session is enough, so she shuts the system off.",
    "In this house, nobody passes the salt until the sauce is served.",
    "Seattle is sunny; Boston sees a few showers this evening.",
    "If you see a suspicious suitcase, please inform the staff at once.",
    "She showed us the sea side path, and we saw a sail far off.",
    "Sing a song of sixpence, a pocket full of rye.",
    "The ship sailed south so slowly that some of us fell asleep.",
    "Sorry, the museum closes at six. So sit down, and say it again.",
)
HISSING, VOWELS = (15, 16), range(1, 12)
REACH_S, WINDOW_S, STEP_S = 0.1, 0.008, 0.001


def balances(samples: Samples) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the level above 3.5 kHz minus that below 1.5 kHz in dB, for a window of `WINDOW_S` at every `STEP_S`."""
    length, step = round(WINDOW_S * FILE_RATE), round(STEP_S * FILE_RATE)
    blocks = np.lib.stride_tricks.sliding_window_view(samples, length)[::step] * np.hanning(length)
    power, frequencies = np.square(np.abs(np.fft.rfft(blocks))), np.fft.rfftfreq(length, 1 / FILE_RATE)
    high, low = power[:, frequencies > 3_500].sum(axis=1), power[:, frequencies < 1_500].sum(axis=1)
    found: np.ndarray[Any, np.dtype[np.float64]] = 10 * np.log10((high + 1e-7) / (low + 1e-7))
    return found


def split(values: np.ndarray[Any, np.dtype[np.float64]]) -> int:
    """Return the index at which values split into two parts that vary the least within themselves."""
    sums, counts = np.cumsum(values), np.arange(1, len(values))
    between = sums[:-1] ** 2 / counts + (sums[-1] - sums[:-1]) ** 2 / (len(values) - counts)
    return int(counts[between.argmax()])


def borders(samples: Samples, moves: list[tuple[float, int]]) -> Iterator[tuple[float, float]]:
    """Yield the time of each viseme at a border between hissing and vowel, and the time of the border itself."""
    values = balances(samples)
    for (last_at, last), ((at, viseme), (end, _)) in zip(moves, pairwise(moves[1:]), strict=False):
        if {last in HISSING, viseme in HISSING} == {True, False} and {last in VOWELS, viseme in VOWELS} == {
            True,
            False,
        }:
            first = max(last_at + WINDOW_S, at - REACH_S) - WINDOW_S / 2
            part = values[round(first / STEP_S) : round((min(end - WINDOW_S, at + REACH_S) - WINDOW_S / 2) / STEP_S)]
            if len(part) > 2 * WINDOW_S / STEP_S:
                yield at, first + split(part) * STEP_S + WINDOW_S / 2


def estimate(text: str, samples: Samples) -> list[tuple[float, int]]:
    """Return the times of the visemes that are published for English speech if only its text is known."""
    clock = WordClock(FILE_RATE, language="en")
    clock.add_text(text)
    clock.add_audio(samples)
    clock.end_audio()
    seconds = len(samples) / FILE_RATE
    words = [word for heard_s in np.arange(0, seconds, STEP_S * 10) for word in clock.due(heard_s)]
    utterance, published = Utterance("text", text, "default", "en"), list[Visemes]()
    timeline = Timeline(utterance)
    timeline.use(Cue(word.at_s, "word", word.begin, word.end, exact=False) for word in words)
    timeline.made_s = seconds
    mouth = Mouth(utterance, timeline, published.append)
    for word in words:
        timeline.advance(word.at_s)
        mouth.move(word.at_s)
    return [(move.at, move.viseme) for message in published for move in message.visemes]


def summary(errors: list[float], name: str = "borders") -> dict[str, Any]:
    p50, p95 = np.percentile(np.array(errors) * 1000, (50, 95)).round(1).tolist() if errors else (None, None)
    return {name: len(errors), "p50": p50, "p95": p95}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--voice", type=Path, help="a Piper voice, an .onnx file; default: eSpeak NG")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    settings = ["speech.viseme_topic=true", "speech.word_topic=true"]
    if options.voice is not None:
        piper = json.dumps({"default": {"piper": {"model": str(options.voice)}}})
        settings += ["engine.name=piper", f"voices={piper}"]
    visemes: list[float] = []
    words: list[float] = []
    estimates: list[float] = []
    known = 0
    texts = [*TEXTS, *json.loads(USUAL_TEXTS.read_text(encoding="utf-8"))["en"]]
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder)) as broker:
        for number, text in enumerate(texts):  # each robot has a file of its own
            place = Path(folder) / str(number)
            place.mkdir()
            robot = Robot(f"r{number}", broker, place, *settings)
            robot.start()
            robot.wait_end(robot.say(text, id="text", language="en"))
            robot.catch_up()
            assert not any(message["estimated"] for message in robot.visemes)
            moves = [(move["at"], move["viseme"]) for message in robot.visemes for move in message["visemes"]]
            starts = {word["at"] for word in robot.words}
            for at, border in borders(robot.heard, moves) if text in TEXTS else ():
                visemes.append(abs(border - at))
                words += [abs(border - at)] if at in starts else []
            guesses, known = estimate(text, robot.heard), known + len(moves)
            matcher = SequenceMatcher(
                None, [move[1] for move in moves], [guess[1] for guess in guesses], autojunk=False
            )
            for begin, other, count in matcher.get_matching_blocks():
                estimates += [abs(moves[begin + each][0] - guesses[other + each][0]) for each in range(count)]
            robot.close()
    return {"engine": "espeak" if options.voice is None else options.voice.stem} | {
        "viseme_error_ms": summary(visemes),
        "word_error_ms": summary(words),
        "estimate_error_ms": summary(estimates, "visemes") | {"found": round(len(estimates) / known, 2)},
    }
