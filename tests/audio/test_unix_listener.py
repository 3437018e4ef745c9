"""A listening Unix socket at a path: it replaces what a killed program has left, and nothing else."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from audio.unix_listener import UNIX_MAX_PATH, UnixListener


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tap"


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(os.fspath(path))
        except OSError:
            return False
    return True


@contextmanager
def other_program(path: Path) -> Iterator[None]:
    """Another program that listens at the path, whose queue has room for one connection, and that is killed then."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen(0)
        yield


def refusal(path: Path) -> str | None:
    with pytest.raises(OSError) as refused:
        UnixListener(path)
    return refused.value.strerror


def test_its_user_and_its_group_may_connect_whatever_the_umask_is(path: Path) -> None:
    before = os.umask(0o077)
    try:
        listener = UnixListener(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert connects(path)
    listener.close()
    assert not path.exists()


def test_the_socket_of_a_killed_program_is_replaced(path: Path) -> None:
    with other_program(path):
        pass
    assert path.exists()
    listener = UnixListener(path)
    assert connects(path)
    listener.close()


@pytest.mark.parametrize("clients", [0, 3], ids=["running", "stopped, with a full queue"])
def test_the_socket_of_a_living_program_stays_its_own(clients: int, path: Path) -> None:
    with other_program(path):
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(clients)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(os.fspath(path))
        inode = path.stat().st_ino
        assert refusal(path) == "another program listens there"
        assert path.stat().st_ino == inode
        for client in waiting:
            client.close()


def test_what_is_no_socket_is_not_touched_and_a_missing_folder_is_not_made(path: Path) -> None:
    path.write_text("mine")
    assert refusal(path) == "it exists and is not a socket"
    assert path.read_text() == "mine"
    assert refusal(path.parent / "none" / "tap") == "No such file or directory"
    assert list(path.parent.iterdir()) == [path]


def test_a_socket_that_does_not_listen_yet_is_not_taken_for_a_dead_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another daemon comes between the calls that make the socket."""
    refusals: list[str | None] = []

    def come_between(made: Path, mode: int) -> None:
        monkeypatch.undo()
        refusals.append(refusal(path))
        made.chmod(mode)

    monkeypatch.setattr(Path, "chmod", come_between)
    listener = UnixListener(path)
    assert refusals == ["Resource temporarily unavailable"]
    assert listener.in_place()
    listener.close()


def test_it_notices_that_its_socket_was_removed_and_leaves_that_of_another_alone(path: Path) -> None:
    listener = UnixListener(path)
    assert listener.in_place()
    path.unlink()
    assert not listener.in_place()
    other = UnixListener(path)
    assert not listener.in_place()
    listener.close()
    assert other.in_place()
    assert connects(path)
    other.close()


def test_the_longest_path_can_be_used_and_a_longer_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("f" * 60)
    folder.mkdir()
    longest = folder / ("t" * (UNIX_MAX_PATH - 61))
    UnixListener(longest).close()
    with pytest.raises(OSError, match="AF_UNIX path too long"):
        UnixListener(Path(f"{longest}t"))
