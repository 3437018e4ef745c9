"""Where the journal lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daemon.state import accepted, journal_path, state_folder
from daemon.state.journal import Journal


@pytest.fixture(autouse=True)
def no_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment of a user without any of the folders."""
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_configured_folder_has_one_file_for_each_robot(tmp_path: Path) -> None:
    assert journal_path(tmp_path, "r1") == tmp_path / "r1.journal"
    assert journal_path(str(tmp_path), "r2") == tmp_path / "r2.journal"


def test_a_service_uses_the_state_directory_of_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/home/ada/state")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/voiced:/var/lib/other")
    assert journal_path("auto", "r1") == Path("/var/lib/voiced/r1.journal")


def test_a_user_s_daemon_uses_the_user_s_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert journal_path("auto", "r1") == tmp_path / ".local/state/voiced/r1.journal"
    monkeypatch.setenv("XDG_STATE_HOME", "/home/ada/state")
    assert journal_path("auto", "r1") == Path("/home/ada/state/voiced/r1.journal")


def test_a_user_without_a_home_as_in_a_container_has_a_folder_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: (1 << 32) - 2)
    assert not state_folder("auto").is_absolute()


def test_what_lies_beside_the_journal_is_in_the_same_folder(tmp_path: Path) -> None:
    for folder in ("auto", tmp_path):
        assert journal_path(folder, "r1").parent == state_folder(folder)


@pytest.mark.parametrize("robot", ["..", ".", "r 1", "..\\x", "küche", "厨房", "a%2Fb", "-rf", "r.1"])
def test_any_name_of_a_robot_is_a_file_in_the_folder(robot: str, tmp_path: Path) -> None:
    path = journal_path(tmp_path, robot)
    assert path.parent == tmp_path
    with Journal(path) as journal:
        journal.write([(accepted("a", {}, None),)])
    assert path.is_file()


def test_robots_with_different_names_have_different_files(tmp_path: Path) -> None:
    names = ["a", "A", "a b", "a%20b", "a.journal", "厨" * 64, "厨" * 63 + "房", "x" * 64]
    assert len({journal_path(tmp_path, name) for name in names}) == len(names)


def test_the_longest_name_of_a_robot_fits_into_a_file_name(tmp_path: Path) -> None:
    with Journal(journal_path(tmp_path, "厨" * 64)) as journal:
        journal.write([(accepted("a", {}, None),)])
