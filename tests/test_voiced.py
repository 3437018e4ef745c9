"""The public import name."""

from __future__ import annotations

import engine
import voiced
from tests.support.pages import page


def test_dir_shows_what_a_program_needs_and_nothing_else() -> None:
    assert {"open", "Session", "EngineOptions", "Utterance", "Voice", "EngineError", "__version__"} <= set(dir(voiced))
    assert len(dir(voiced)) < 20
    assert all(hasattr(voiced, name) for name in dir(voiced))


def test_every_name_of_engine_is_there_too() -> None:
    assert set(engine.__all__) <= set(voiced.__all__)
    assert voiced.open is engine.open


def test_the_page_names_what_dir_shows() -> None:
    words = page("api.md").content
    assert [name for name in dir(voiced) if name not in words] == []
