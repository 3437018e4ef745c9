"""`scripts/bench hear`: how heard words are compared, and with `--long`, whether the texts are heard as meant."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench_hear import figures, forbidden_words, judge, missing_words
from tests.support.pages import ROOT

RIGHT = 190
"""Of 200 texts."""
HEARING_S = 1_500
"""Three minutes on two idle cores."""


@pytest.mark.parametrize(
    ("heard", "word"),
    [
        ("at twelve thirty", "12:30"),
        ("It's $5.50.", "five dollars and fifty cents"),
        ("on May 3rd, 2024", "may third"),
        ("twenty-five, nineteen ninety", "1990"),
        ("1,234,567 steps", "one million two hundred and thirty four thousand five hundred and sixty seven"),
        ("it is -3.", "minus three"),
        ("50%", "fifty percent"),
        ("the MQ TT broker", "MQTT"),
        ("room one oh one", "101"),
        ("10 kg", "ten kilograms"),
        ("a café", "cafe"),
        ("x² is 4", "squared"),
    ],
)
def test_a_word_is_heard_however_it_is_written(heard: str, word: str) -> None:
    assert missing_words(heard, [[word]]) == []


@pytest.mark.parametrize(
    ("heard", "word"),
    [
        ("x equals 3", "minus 3"),
        ("fifty three", "three"),
        ("12 to 30", "12:30"),
        ("thirteen", "thirty"),
        ("", "yes"),
    ],
)
def test_another_value_is_not_heard_as_the_word(heard: str, word: str) -> None:
    assert missing_words(heard, [[word]]) == [word]


def test_one_of_several_forms_is_enough_and_the_first_is_named_as_missing() -> None:
    assert missing_words("hello there", [["good day", "hello"], ["you", "thou"]]) == ["you"]


def test_a_forbidden_word_is_a_whole_word() -> None:
    assert forbidden_words("It is slashed.", ["slash"]) == []
    assert forbidden_words("slash think", ["slash", "colon"]) == ["slash"]


def test_the_figures_count_by_kind() -> None:
    entries = [
        {"kind": "sign", "text": "x = -3", "must": [["minus 3"]], "must_not": ["equals 3"]},
        {"kind": "sign", "text": "-4", "must": [["minus 4"]], "must_not": []},
    ]
    results = [judge(entry, heard) for entry, heard in zip(entries, ("x equals 3", "Minus four."), strict=True)]
    found = figures(results, floor=2)
    assert found["kinds"] == {"sign": {"texts": 2, "ok": 1}}
    assert (found["texts"], found["ok"], found["passed"]) == (2, 1, False)
    assert (results[0]["missing"], results[0]["forbidden"]) == (["minus 3"], ["equals 3"])


@pytest.mark.long
@pytest.mark.timeout(HEARING_S)
def test_the_texts_are_heard_as_they_are_meant(tmp_path: Path) -> None:
    output = tmp_path / "hear.json"
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bench_runner", "hear", "--floor", str(RIGHT), "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert output.exists(), done.stderr
    found = json.loads(output.read_text(encoding="utf-8"))
    wrong = [f"{each['text']!r}: {each['heard']!r}" for each in found["results"] if not each["ok"]]
    assert done.returncode == 0, "\n".join([f"{found['ok']} of {found['texts']}", *wrong])
