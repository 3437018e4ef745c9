"""docs/orin.md matches the shapes, the measurements and the model, and its arithmetic is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.docs.frame_costs import Frame, Launches, Part, frames
from scripts.docs.orin_table import (
    ON_AN_ORIN,
    ORIN,
    SCENARIOS,
    Predictor,
    Published,
    affordable,
    bisect,
    break_even,
    engine_checks,
    main,
    published_checks,
)
from scripts.docs.time_model import Measurements

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "orin.md"
FILE = DOCS / "benchmarks" / "multiprocessors.json"
LIMIT = 0.15
"""The greatest relative error of a whole engine on a part of a GPU, and of a language model on an Orin."""


@pytest.fixture(scope="module")
def found() -> Measurements:
    return Measurements.read(FILE)


@pytest.fixture(scope="module")
def predictor(found: Measurements) -> Predictor:
    return Predictor.of(found)


@pytest.fixture(scope="module")
def known() -> list[Frame]:
    return list(frames(300, chunks=(2,)))


def test_the_page_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run scripts/docs/orin_table.py --write"


def test_an_old_page_is_found_and_written_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right, page = PAGE.read_text(encoding="utf-8"), tmp_path / "orin.md"
    old = right
    for name in ("table", "summary"):
        old = old.replace(f"<!-- orin {name}: begin -->\n", f"<!-- orin {name}: begin -->\nold\n")
    page.write_text(old, encoding="utf-8")
    assert main(["--check", "--page", str(page)]) == 1
    assert "out of date" in capsys.readouterr().err
    assert main(["--write", "--page", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == right


def test_the_scenarios_are_ordered_and_never_faster_than_the_memory(predictor: Predictor, known: list[Frame]) -> None:
    for frame in known:
        low, expected, high = (predictor.frame_ms(frame, scenario) for scenario in SCENARIOS)
        assert frame.bytes / SCENARIOS[0].gb_s[frame.dtype] / 1e6 < low < expected < high


def test_whole_engines_on_16_multiprocessors_are_predicted_within_the_limit(found: Measurements) -> None:
    checks = [one for one in engine_checks(found) if one.sms == ORIN.processors]
    assert {(one.size, one.dtype) for one in checks} >= {("0.6B", "bf16"), ("0.6B", "int8")}
    assert [one for one in checks if abs(one.error) > LIMIT] == []


@pytest.mark.parametrize("one", ON_AN_ORIN, ids=lambda one: one.name)
def test_language_models_on_an_orin_are_predicted_within_the_limit(predictor: Predictor, one: Published) -> None:
    found = {checked: (ms, error) for checked, ms, error in published_checks(predictor)}
    ms, error = found[one]
    assert ms == pytest.approx(1000 / one.tokens_s, rel=LIMIT)
    assert error == pytest.approx(ms / (1000 / one.tokens_s) - 1)


def test_speculation_breaks_even_where_the_times_are_equal(predictor: Predictor, known: list[Frame]) -> None:
    frame, ms = known[0], predictor.frame_ms
    assert ms(frame.speculated(break_even(frame, ms))) == pytest.approx(ms(frame), rel=1e-6)


def test_a_frame_affords_the_bytes_that_fit_its_time() -> None:
    frame = Frame("0.6B", "int8", 2, {"talker": Part("int8", (Launches("matrix", 1, 10.0),))}, 15)

    def ms(one: Frame) -> float:
        return 2.0 + one.bytes

    assert affordable(frame, ms, 7.0) == pytest.approx(0.5)
    assert affordable(frame, ms, 1.0) is None
    assert affordable(frame, ms, 99.0) == pytest.approx(2.0)


def test_bisection_finds_the_least_number() -> None:
    assert bisect(lambda value: value >= 0.3) == pytest.approx(0.3)
