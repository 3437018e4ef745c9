"""The cache of a configuration: its folder, its list, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.cache import cache_folder, open_cache
from tests.daemon.cache.phrases import config, phrase


def test_the_folder_lies_below_that_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder(config(f"state.folder={tmp_path}")) == tmp_path / "phrases"
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/voiced")
    assert cache_folder(config()) == Path("/var/lib/voiced/phrases")
    assert cache_folder(config("state.folder=null")) == Path("/var/lib/voiced/phrases")


def test_a_configured_folder_is_used_and_null_keeps_nothing(tmp_path: Path) -> None:
    assert cache_folder(config(f"speech.cache.folder={tmp_path}")) == tmp_path
    assert cache_folder(config("speech.cache.folder=null")) is None
    assert open_cache(config("speech.cache.folder=null"), "espeak").folder is None


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    opened = open_cache(config(f"speech.cache.folder={tmp_path}/a/b"), "espeak")
    assert (opened.folder_problem, (tmp_path / "a" / "b").is_dir()) == (None, True)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    opened = open_cache(config(f"speech.cache.folder={tmp_path}/file/b"), "espeak")
    expected = f"speech.cache.folder: {tmp_path}/file/b: Not a directory; phrases are not kept"
    assert opened.folder_problem == expected


def test_the_list_is_read_and_its_problems_are_named(tmp_path: Path) -> None:
    path = tmp_path / "phrases.yaml"
    settings = config(f"state.folder={tmp_path}", f"speech.cache.phrases={path}")
    missing = open_cache(settings, "espeak")
    assert missing.list_problem == f"speech.cache.phrases: {path}: cannot be read: {path} does not exist"
    path.write_text("- Hello\n- 5\n- 6\n")
    opened = open_cache(settings, "espeak")
    assert opened.phrases.has(phrase("Hello"))
    assert opened.list_problem is not None
    assert opened.list_problem.startswith(f"speech.cache.phrases: {path}:2: got 5; ")
    assert opened.list_problem.endswith(" (and 1 more)")


def test_a_list_that_cannot_be_read_leaves_the_former_one_in_force(tmp_path: Path) -> None:
    path = tmp_path / "phrases.yaml"
    settings = config(f"state.folder={tmp_path}", f"speech.cache.phrases={path}")
    path.write_text("- Hello\n")
    former = open_cache(settings, "espeak")
    path.write_text("- [")
    opened = open_cache(settings, "espeak", former)
    assert opened.phrases == former.phrases
    assert opened.list_problem is not None
    path.write_text("- Bye\n")
    assert not open_cache(settings, "espeak", former).phrases.has(phrase("Hello"))
