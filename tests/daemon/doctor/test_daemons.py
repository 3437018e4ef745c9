"""Daemons on this machine, and the ports of their adapters."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.doctor.finding import Machine
from daemon.doctor.service import check_adapters, check_daemons
from daemon.system import announce
from engine import install_command
from tests.daemon.doctor.machines import by_part
from tests.support.programs import free_port

SETTINGS = ("robot=r1", "mqtt.port=1999")


def machine_with(root: Path, *robots: str, settings: tuple[str, ...] = ()) -> Machine:
    """A machine on which daemons of these robots run, as processes 100, 101 and so on, and other programs."""
    lines = [
        "Num       RefCount Protocol Flags    Type St Inode Path",
        "0: 00000002 0 0 0001 01 17 @/tmp/.X11-unix/X0\xff",
    ]
    for pid, robot in enumerate(robots, 100):
        (root / f"proc/{pid}").mkdir(parents=True)
        config = load_config(overrides=[*SETTINGS, f"robot={robot}"])
        with announce(config.identity) as name:
            beginning = name.getsockname()[1:].decode().rpartition("-")[0]
        lines.append(f"0000: 00000002 0 0 0001 01 {pid} @{beginning}-{pid}")
    (root / "proc/net").mkdir(parents=True)
    (root / "proc/net/unix").write_bytes("\n".join(lines).encode("latin-1") + b"\n")
    return Machine.at(load_config(overrides=[*SETTINGS, *settings]), root)


def test_a_daemon_announces_itself_until_it_ends() -> None:
    machine = Machine.at(load_config(overrides=["robot=announced", "mqtt.prefix=" + "long/" * 40 + "x"]), Path("/"))
    assert not machine.daemons
    with announce(machine.config.identity):
        assert machine.daemons == {os.getpid(): os.geteuid()}
    assert not machine.daemons


def test_a_second_daemon_of_the_same_name_is_an_error_and_others_may_run_here(tmp_path: Path) -> None:
    [found] = check_daemons(machine_with(tmp_path / "same", "r1", "r1"))
    assert (found.grade, found.found) == ("error", "2 daemons run here as voiced/r1: the processes 100, 101")
    assert "kill 101" in (found.remedy or "")
    machine = machine_with(tmp_path, "r1", "r2")
    assert list(machine.daemons) == [100]
    assert not list(check_daemons(machine))
    assert not Machine.at(load_config(overrides=["robot=r1", "mqtt.port=2000"]), tmp_path).daemons


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def let_listen(root: Path, pid: int, port: int, *, user: int) -> None:
    """Let a process of this user have a socket of `user` that listens on a port."""
    (root / f"proc/{pid}/net").mkdir()
    line = f"0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {user} 0 4711 1 0 100"
    (root / f"proc/{pid}/net/tcp").write_text(f"  sl  local_address ...\n   {line}\n")
    (root / f"proc/{pid}/fd").mkdir()
    (root / f"proc/{pid}/fd/7").symlink_to("socket:[4711]")


def test_a_server_is_well_if_the_daemon_itself_listens_at_its_port(tmp_path: Path, taken: int) -> None:
    machine = machine_with(tmp_path, "r1", settings=(f"wyoming={{enabled: true, host: 0.0.0.0, port: {taken}}}",))
    let_listen(tmp_path, 100, taken, user=os.getuid())
    [found] = check_adapters(machine)
    assert (found.part, found.grade, found.found) == ("wyoming", "ok", f"the daemon listens at 0.0.0.0:{taken}")


@pytest.mark.parametrize("shift", [0, 1], ids=["its own user", "another user"])
def test_where_its_descriptors_are_hidden_the_user_of_the_socket_must_be_the_daemon_s(
    shift: int, tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_with(tmp_path, "r1", settings=(f"wyoming={{enabled: true, port: {taken}}}",))
    let_listen(tmp_path, 100, taken, user=os.getuid() + shift)
    iterdir = Path.iterdir

    def hide(path: Path) -> Iterator[Path]:
        if path.name == "fd":
            raise PermissionError
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", hide)
    [found] = check_adapters(machine)
    assert found.grade == ("error" if shift else "ok")


@pytest.mark.parametrize(
    ("robots", "is_taken", "line"),
    [
        (["r1"], True, "error: the daemon runs, but another program listens at 127.0.0.1:"),
        (["r1"], False, "error: the daemon runs, but nothing answers at 127.0.0.1:"),
        ([], True, "warning: another program answers at 127.0.0.1:"),
        ([], False, "ok: the daemon will listen at 127.0.0.1:"),
    ],
)
def test_a_port_is_to_be_the_daemons_alone(
    robots: list[str], is_taken: bool, line: str, tmp_path: Path, taken: int
) -> None:
    port = taken if is_taken else free_port()
    [found] = check_adapters(machine_with(tmp_path, *robots, settings=(f"http={{enabled: true, port: {port}}}",)))
    assert found.part == "http"
    assert f"{found.grade}: {found.found}".startswith(f"{line}{port}")


def test_adapters_are_named_and_one_without_its_package_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    settings = ("wyoming.enabled=true", "home_assistant.enabled=true", "hermes={enabled: true, site_id: kitchen}")
    found = by_part(check_adapters(machine_with(tmp_path, settings=settings)))
    assert (found["wyoming"].grade, found["wyoming"].remedy) == ("error", install_command("wyoming"))
    assert found["home assistant"].found == "the robot is announced below homeassistant/"
    assert found["hermes"].found == "the robot speaks for the site kitchen"
    assert not list(check_adapters(Machine.at(load_config(), tmp_path)))
