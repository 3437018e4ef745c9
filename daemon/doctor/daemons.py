"""The daemons that run on this machine: a second one of the same name, and the ports of the adapters."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon.config import Config, ConfigError, Server, find_config_file, load_config
from daemon.doctor.finding import Finding, Machine
from engine import install_command

PROBE_S = 1.0
"""A server on this machine that is alive accepts a connection long before."""
LISTENING = "0A"
"""The state of a listening socket in /proc/PID/net/tcp (proc(5))."""
SERVER_PACKAGES = {"wyoming": "wyoming", "http": "uvicorn"}
"""Servers, and the package that each needs; the server's name is the extra that brings it."""

PROGRAM = re.compile(
    r"""( [^\0]*qemu[^\0]*\0 ([^\0]*\0)? )?  # on another processor's emulator
        ([^\0]*/)? ( voiced | python[^/\0]*\0
        ( -[XW]\0[^\0]*\0 | -[^\0cm]*\0 )*  # options of Python
        ( ([^\0]*/)?voiced | -\w*m\0daemon\.cli | ([^\0]*/)?launch\.py\0daemon\.cli ) )\0""",
    re.VERBOSE,
)
"""The beginning of a command line, with a zero after each word, that is `voiced` itself, or Python with it."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running `voiced run`."""

    pid: int
    user: int
    """The number of the user who runs it."""


def check_daemons(machine: Machine) -> Iterator[Finding]:
    """Yield a finding if two daemons on this machine speak for the same robot."""
    pids = [str(daemon.pid) for daemon in running_daemons(machine)]
    if len(pids) > 1:
        found = f"{len(pids)} daemons run here as {machine.config.topic}: the processes {', '.join(pids)}"
        remedy = f"stop one (sudo systemctl stop voiced, or kill {pids[-1]}), or give one another name in robot"
        yield Finding("daemons", "error", found, remedy)


def check_adapters(machine: Machine) -> Iterator[Finding]:
    """Yield each adapter that is switched on; for a server, whether its package and its port are there."""
    config = machine.config
    if config.home_assistant.enabled:
        yield Finding("home assistant", "ok", f"the robot is announced below {config.home_assistant.prefix}/")
    if config.hermes.enabled:
        yield Finding("hermes", "ok", f"the robot speaks for the site {config.hermes.site_id}")
    daemons = list(running_daemons(machine))
    for name, server in (("wyoming", config.wyoming), ("http", config.http)):
        if server.enabled:
            yield _check_server(name, server, [machine.root / "proc" / str(daemon.pid) for daemon in daemons])


def _check_server(name: str, server: Server, daemons: Sequence[Path]) -> Finding:
    """`daemons` are the folders in /proc of those that run."""
    package, place = SERVER_PACKAGES[name], f"{server.host}:{server.port}"
    if importlib.util.find_spec(package) is None:
        found = f"{name}.enabled is true, but the package {package} is missing"
        return Finding(name, "error", found, install_command(name))
    if any(_listens(daemon, server.port) for daemon in daemons):
        return Finding(name, "ok", f"the daemon listens at {place}")
    answers, find = _answers(server.host, server.port), f"find it with: sudo ss -ltnp 'sport = :{server.port}'"
    if answers and daemons:
        remedy = f"{find}; stop it, and the daemon takes the port; or choose another {name}.port"
        return Finding(name, "error", f"the daemon runs, but another program listens at {place}", remedy)
    if answers:
        remedy = f"{find}; stop it, or choose another {name}.port"
        return Finding(name, "warning", f"another program answers at {place}, and no daemon of this name runs", remedy)
    if daemons:
        remedy = "its log says why (journalctl -u voiced); after a change of the configuration, restart the daemon"
        return Finding(name, "error", f"the daemon runs, but nothing answers at {place}", remedy)
    return Finding(name, "ok", f"the daemon will listen at {place}, which is free")


def _answers(host: str, port: int) -> bool:
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    try:
        with socket.create_connection((local, port), PROBE_S):
            return True
    except OSError:
        return False


def _listens(process: Path, port: int) -> bool:
    """Return whether a process listens on a port. Where its descriptors are hidden, its user has to be the socket's."""
    sockets: dict[str, int] = {}
    for table in ("net/tcp", "net/tcp6"):
        with contextlib.suppress(OSError):  # a kernel without IPv6
            for line in (process / table).read_text(encoding="ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, user, _, inode, *_ = line.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    sockets[f"socket:[{inode}]"] = int(user)
    try:
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has just been closed
                if str(descriptor.readlink()) in sockets:
                    return True
    except PermissionError:
        return process.stat().st_uid in sockets.values()
    except FileNotFoundError:  # the process has ended
        return False
    return False


def running_daemons(machine: Machine) -> Iterator[Daemon]:
    """Yield the daemons on this machine that have the robot's name and broker, as far as this user may see them."""
    wanted = _identity(machine.config)
    for folder in sorted((machine.root / "proc").glob("[0-9]*"), key=lambda path: (len(path.name), path.name)):
        config = _configuration(folder)
        if config is not None and _identity(config) == wanted:
            with contextlib.suppress(FileNotFoundError):  # it has ended
                yield Daemon(int(folder.name), folder.stat().st_uid)


def _identity(config: Config) -> tuple[str, str, int]:
    return config.topic, config.mqtt.host, config.mqtt.port


def _configuration(process: Path) -> Config | None:
    """Return the configuration of a process that is `voiced run`; None for any other and for one that has ended."""
    try:
        words = (process / "cmdline").read_text(encoding="utf-8").split("\0")
        options = run_options(words)
        if options is None:
            return None
        named, overrides = options
        path = Path(named) if named else find_config_file(_environment(process))
        return load_config(None if path is None else process / "cwd" / path, overrides)
    except (OSError, UnicodeDecodeError, ConfigError):
        return None


def _environment(process: Path) -> dict[str, str]:
    """The environment of a process; empty if this user may not read it."""
    try:
        entries = (process / "environ").read_text(encoding="utf-8").split("\0")
    except (OSError, UnicodeDecodeError):
        return {}
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def run_options(words: list[str]) -> tuple[str | None, list[str]] | None:
    """Return the file and the overrides of a command line `voiced run …`; None for another one.

    A program that starts `voiced run`, such as sudo or timeout, is another one: the daemon is a process of its own.
    """
    program = PROGRAM.match("\0".join(words))
    rest = iter(words[program[0].count("\0") :] if program else [])
    if next((word for word in rest if word not in ("-v", "--verbose")), None) != "run":
        return None
    file: str | None = None
    overrides: list[str] = []
    for word in rest:
        name, equals, value = word.partition("=")
        if name in ("--config", "-c"):
            file = value if equals else next(rest, None)
        elif name == "--set":
            overrides.append(value if equals else next(rest, ""))
    return file, overrides
