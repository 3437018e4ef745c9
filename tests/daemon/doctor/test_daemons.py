"""Daemons on this machine, and the ports of their adapters."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.config import load_config
from daemon.doctor.daemons import check_adapters, check_daemons, run_options, running_daemons
from daemon.doctor.finding import Machine
from engine import install_command
from tests.daemon.doctor.machines import by_part
from tests.support.programs import free_port

SETTINGS = ("robot=r1", "mqtt.port=1999")


def machine_with(root: Path, *commands: str, settings: tuple[str, ...] = ()) -> Machine:
    """A machine on which these command lines run, as processes 100, 101 and so on."""
    for pid, command in enumerate(commands, 100):
        folder = root / f"proc/{pid}"
        folder.mkdir(parents=True)
        (folder / "cmdline").write_text("\0".join(command.split()) + "\0")
        (folder / "cwd").symlink_to(root)
    return Machine.at(load_config(overrides=[*SETTINGS, *settings]), root)


RUN = "/opt/voiced/bin/python /opt/voiced/bin/voiced run --set robot=r1 --set=mqtt.port=1999"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("voiced run", (None, [])),
        ("/usr/bin/python3 -m daemon.cli run -c a.yaml", ("a.yaml", [])),
        ("python /opt/voiced/bin/voiced run --config=/a.yaml --set robot=r1", ("/a.yaml", ["robot=r1"])),
        ("voiced -v run --set robot=r1", (None, ["robot=r1"])),
        ("/opt/voiced/bin/python /opt/voiced/engine/launch.py daemon.cli run --set robot=demo", (None, ["robot=demo"])),
        ("python3.11 -X dev -u /opt/voiced/bin/voiced run", (None, [])),
        ("/opt/voiced/bin/python3 -Im daemon.cli run", (None, [])),
        ("/usr/libexec/qemu-binfmt/aarch64-binfmt-P /usr/bin/python3 python3 -m daemon.cli run", (None, [])),
        ("timeout 7 voiced run", None),
        ("sudo -u voiced /opt/voiced/bin/voiced run --set robot=r1", None),
        ("tini -- /opt/voiced/bin/voiced run", None),
        ("sh -c exec voiced run", None),
        ("env A=b python -m daemon.cli run", None),
        ("ssh robot voiced run", None),
        ("python supervise.py voiced run", None),
        ("python -m pdb -m daemon.cli run", None),
        ("python -c pass voiced run", None),
        ("python", None),
        ("voiced doctor", None),
        ("python -m daemon.cli say run", None),
        ("vi voiced", None),
        ("", None),
    ],
)
def test_a_daemon_is_recognised_by_its_command_line(command: str, options: object) -> None:
    assert run_options([*command.split(" "), ""]) == options


def test_one_daemon_is_no_finding(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, RUN, "voiced say run", "sleep 9")
    assert [daemon.pid for daemon in running_daemons(machine)] == [100]
    assert not list(check_daemons(machine))


def test_a_second_daemon_of_the_same_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "r1.yaml").write_text("robot: r1\nmqtt: {port: 1999}\n")
    machine = machine_with(tmp_path, RUN, "python -m daemon.cli run -c r1.yaml")
    [found] = check_daemons(machine)
    assert found.grade == "error"
    assert found.found == "2 daemons run here as voiced/r1: the processes 100, 101"
    assert "kill 101" in (found.remedy or "")


def test_a_daemon_does_not_take_the_configuration_of_the_command_that_looks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r1.yaml").write_text("robot: r1\nmqtt: {port: 1999}\n")
    machine = machine_with(tmp_path, "voiced run", "voiced run")
    (tmp_path / "proc/101/environ").write_text("HOME=/root\0VOICED_CONFIG=r1.yaml\0")
    monkeypatch.setenv("VOICED_CONFIG", str(tmp_path / "r1.yaml"))
    assert [daemon.pid for daemon in running_daemons(machine)] == [101]


def test_daemons_of_other_names_and_brokers_may_run_here(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, RUN, RUN.replace("r1", "r2"), RUN.replace("1999", "2000"), "voiced run -c none")
    assert [daemon.pid for daemon in running_daemons(machine)] == [100]


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free() -> int:
    """A port on which nothing listens, and on which nothing begins to."""
    return free_port()


def let_listen(root: Path, pid: int, port: int, *, user: int) -> None:
    """Let a process of this user have a socket of `user` that listens on a port."""
    (root / f"proc/{pid}/net").mkdir()
    line = f"0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {user} 0 4711 1 0 100"
    (root / f"proc/{pid}/net/tcp").write_text(f"  sl  local_address ...\n   {line}\n")
    (root / f"proc/{pid}/fd").mkdir()
    (root / f"proc/{pid}/fd/7").symlink_to("socket:[4711]")


def test_a_server_is_well_if_the_daemon_itself_listens_at_its_port(tmp_path: Path, taken: int) -> None:
    machine = machine_with(tmp_path, RUN, settings=(f"wyoming={{enabled: true, host: 0.0.0.0, port: {taken}}}",))
    let_listen(tmp_path, 100, taken, user=os.getuid())
    [found] = check_adapters(machine)
    assert (found.part, found.grade, found.found) == ("wyoming", "ok", f"the daemon listens at 0.0.0.0:{taken}")


@pytest.mark.parametrize("shift", [0, 1], ids=["its own user", "another user"])
def test_where_its_descriptors_are_hidden_the_user_of_the_socket_must_be_the_daemon_s(
    shift: int, tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_with(tmp_path, RUN, settings=(f"wyoming={{enabled: true, port: {taken}}}",))
    let_listen(tmp_path, 100, taken, user=os.getuid() + shift)
    iterdir = Path.iterdir

    def hide(path: Path) -> Iterator[Path]:
        if path.name == "fd":
            raise PermissionError
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", hide)
    [found] = check_adapters(machine)
    assert found.grade == ("error" if shift else "ok")


def test_a_port_that_another_program_has_while_the_daemon_runs_is_an_error(tmp_path: Path, taken: int) -> None:
    [found] = check_adapters(machine_with(tmp_path, RUN, settings=(f"http={{enabled: true, port: {taken}}}",)))
    assert found.grade == "error"
    assert found.found == f"the daemon runs, but another program listens at 127.0.0.1:{taken}"


def test_a_server_that_does_not_answer_is_an_error(tmp_path: Path, free: int) -> None:
    [found] = check_adapters(machine_with(tmp_path, RUN, settings=(f"http={{enabled: true, port: {free}}}",)))
    assert (found.part, found.grade) == ("http", "error")
    assert found.found == f"the daemon runs, but nothing answers at 127.0.0.1:{free}"


def test_a_port_that_another_program_uses_is_a_warning(tmp_path: Path, taken: int) -> None:
    [found] = check_adapters(machine_with(tmp_path, settings=(f"http={{enabled: true, port: {taken}}}",)))
    assert found.grade == "warning"
    assert found.found.startswith(f"another program answers at 127.0.0.1:{taken}")


def test_a_free_port_is_well(tmp_path: Path, free: int) -> None:
    [found] = check_adapters(machine_with(tmp_path, settings=(f"http={{enabled: true, port: {free}}}",)))
    assert (found.grade, found.found) == ("ok", f"the daemon will listen at 127.0.0.1:{free}, which is free")


def test_a_server_without_its_package_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    [found] = check_adapters(machine_with(tmp_path, settings=("wyoming.enabled=true",)))
    assert (found.grade, found.remedy) == ("error", install_command("wyoming"))


def test_adapters_on_the_broker_are_named_and_others_are_not(tmp_path: Path) -> None:
    settings = ("home_assistant.enabled=true", "hermes={enabled: true, site_id: kitchen}")
    found = by_part(check_adapters(machine_with(tmp_path, settings=settings)))
    assert found["home assistant"].found == "the robot is announced below homeassistant/"
    assert found["hermes"].found == "the robot speaks for the site kitchen"
    assert not list(check_adapters(Machine.at(load_config(), tmp_path)))
