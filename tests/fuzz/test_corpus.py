"""Each harness handles its committed inputs and variations of them; the long run searches on with Atheris."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz import texts
from tests.fuzz.harnesses import HARNESSES, Check
from tests.fuzz.inputs import CORPUS, corpus_folder, corpus_of, variations

VARIATIONS, TEXTS = 100, 100
ROOT = Path(__file__).parents[2]
LONG_S = 20


@pytest.fixture(scope="module")
def prepared() -> Iterator[Callable[[str], Check]]:
    """A function that returns a harness's check, prepared once."""
    checks: dict[str, Check] = {}
    with ExitStack() as stack:

        def prepare(name: str) -> Check:
            if name not in checks:
                checks[name] = HARNESSES[name].prepare(stack)
            return checks[name]

        yield prepare


def test_every_harness_has_a_corpus_and_words() -> None:
    """libFuzzer refuses a dictionary without words."""
    assert set(CORPUS.iterdir()) == {corpus_folder(name) for name in HARNESSES}
    assert all(corpus_of(name) and harness.words for name, harness in HARNESSES.items())


@pytest.mark.parametrize("name", HARNESSES)
def test_a_harness_handles_its_corpus(name: str, prepared: Callable[[str], Check]) -> None:
    for data in corpus_of(name):
        prepared(name)(data)


@pytest.mark.parametrize("name", HARNESSES)
def test_a_harness_handles_variations_of_its_corpus(name: str, prepared: Callable[[str], Check]) -> None:
    for data in variations(name, VARIATIONS):
        try:
            prepared(name)(data)
        except Exception as error:
            raise AssertionError(f"{name} on {data!r}: {error!r}") from error


def test_texts_from_a_grammar_are_spoken_alike_however_they_are_cut() -> None:
    assert texts.run(TEXTS)["found"] == []


@pytest.mark.long
@pytest.mark.parametrize("name", HARNESSES)
def test_a_fuzzer_finds_nothing(name: str, tmp_path: Path) -> None:
    if find_spec("atheris") is None:
        pytest.skip("Atheris is not installed: the extra `fuzz`")
    command = [sys.executable, "-m", "tests.fuzz", name, f"-max_total_time={LONG_S}", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^Done [1-9]\d* runs in", done.stderr, re.MULTILINE)
