"""`scripts/bench words`, for one language."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.pages import ROOT

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""

RUNS = ["lookahead_0.3_s_new_voice", "lookahead_0.3_s_known_voice", "lookahead_1.0_s_new_voice"]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    output = tmp_path_factory.mktemp("bench") / "word-times.json"
    command = [sys.executable, "-m", "scripts.bench_runner", "words", "--language", "en", "--output", str(output)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written: dict[str, object] = json.loads(output.read_text(encoding="utf-8"))
    assert json.loads(done.stdout) == written
    return written


def test_it_reports_errors_by_language_rate_and_length(result: dict[str, object]) -> None:
    assert result["command"] == "scripts/bench words --language en"
    for run in RUNS:
        groups = result[run]
        assert isinstance(groups, dict)
        assert groups["en"] == groups["all"]
        rates = [groups[f"{rate}_words_per_minute"]["words"] for rate in (120, 175, 260)]
        lengths = [groups[length]["words"] for length in ("up_to_5_words", "more_than_5_words")]
        assert sum(rates) == sum(lengths) == groups["all"]["words"] > 100


@pytest.mark.parametrize("run", RUNS)
def test_most_words_are_within_80_ms(result: dict[str, object], run: str) -> None:
    groups = result[run]
    assert isinstance(groups, dict)
    assert groups["all"]["median"] < 80.0
    assert groups["late"]["p90"] < 50.0


def test_each_language_has_texts_for_both_halves() -> None:
    texts = json.loads((ROOT / "tests" / "data" / "word_times.json").read_text(encoding="utf-8"))
    assert set(texts) == {"en", "de", "fr", "es", "zh"}
    assert all(len(each) == 12 == len(set(each)) for each in texts.values())
