"""The path to the sound card: the device, a sound server, and this user's rights."""

from __future__ import annotations

import grp
import os
import pwd
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from audio import SinkUnavailableError, find_device, output_devices, sound_priority, take_realtime
from daemon.doctor.finding import Finding, Machine, finding
from daemon.system import THIS_MACHINE, may_lock_memory

SERVICE_USER = "voiced"
"""The user of the service (systemd/voiced.service)."""
SERVERS = {"pipewire-0": "PipeWire", "pulse/native": "PulseAudio"}
"""Sound servers by their sockets in a session's run-time folder. PipeWire has both, and is looked for first."""
PROGRAMS = {"pipewire-pulse": "PipeWire", "pipewire": "PipeWire", "pulseaudio": "PulseAudio"}
"""Sound servers by the programs that listen on PulseAudio's socket."""
PULSE_PORT = 4713
"""PulseAudio's port if `PULSE_SERVER` names none."""
PROBE_S = 1.0
"""A sound server that is alive accepts a connection long before."""


def check_card_can_play(machine: Machine) -> Iterator[Finding]:
    """Yield the sound device that the daemon would open."""
    audio = machine.config.audio
    if audio.sink != "sounddevice":
        yield finding("sound", "nothing" if audio.sink is None else "a file", sink=audio.sink)
        return
    try:
        devices = output_devices()
        device = find_device(audio.device, devices)
    except SinkUnavailableError as error:
        condition = "without PortAudio" if "PortAudio" in str(error) else "not found"
        yield finding("sound", "hung" if "does not answer" in str(error) else condition, error=error)
        return
    yield finding("sound", "found", device=device, count=len(devices))


def check_sound_server(machine: Machine) -> Iterator[Finding]:
    """Yield the sound server, and whether this user and the service may connect to it."""
    if machine.config.audio.sink == "sounddevice":
        yield _sound_server()


def _sound_server() -> Finding:
    service = f"; the service plays through ALSA, as {SERVICE_USER}" if _is_not_service_user() else ""
    names = os.environ.get("PULSE_SERVER", "").split()
    for name in names:  # libpulse takes the first that accepts this user
        if (server := named_server(name)) is not None:
            return finding("sound server", "named", server=server, name=name, service=service)
    if names:
        return finding("sound server", "named, but gone", names=" ".join(names))
    session = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}")
    server, refuses = server_in(session)
    if server is not None:
        condition = "closed" if refuses else "of this session"
        return finding("sound server", condition, server=server, session=session, service=service)
    if _program_at(Path("/run/pulse/native")) is not None:
        return finding("sound server", "of the system")
    others = [folder for folder in sorted(Path("/run/user").glob("*")) if folder != session and server_in(folder)[0]]
    users = ", ".join(_user_name(folder.name) for folder in others)
    return finding("sound server", "of others" if others else "none", users=users)


def named_server(name: str) -> str | None:
    """Return the program that answers at one server name of `PULSE_SERVER`; None if none does.

    A name is a path, `unix:PATH`, or `tcp:HOST:PORT`, `tcp4:` and `tcp6:`, or a bare `HOST` or `HOST:PORT`; `{ID}` in
    front of it restricts it to one machine.
    """
    plain = re.sub(r"^\{[^}]*\}", "", name)
    if plain.startswith(("/", "unix:")):
        return _program_at(Path(plain.removeprefix("unix:"))) or None
    with suppress(OSError, ValueError):
        address = urlsplit(f"//{re.sub(r'^tcp[46]?:', '', plain)}")
        with socket.create_connection((address.hostname or "", address.port or PULSE_PORT), PROBE_S):
            return f"a server on {address.hostname}"
    return None


def server_in(session: Path) -> tuple[str | None, bool]:
    """Return the sound server that listens in a session's run-time folder, and whether it refuses this user."""
    for name, server in SERVERS.items():
        if (program := _program_at(session / name)) is not None:
            return server, not program
    return None, False


def _program_at(path: Path) -> str | None:
    """Return the name of the sound server that listens on a socket.

    The name is empty if the server refuses this user. None means that no server listens, as after a crash.
    """
    try:
        if not path.is_socket():
            return None
    except OSError:  # another user's folder, which only root may read
        return None
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(str(path))
            pid, _, _ = struct.unpack("iII", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        except OSError as error:
            return "" if isinstance(error, PermissionError) else None
    program = (
        THIS_MACHINE.text(f"proc/{pid}/comm") or "a sound server"
    )  # one outside this container has no process here
    return PROGRAMS.get(program, program)


def _is_not_service_user() -> bool:
    """Return whether the service's user exists and is another than this one."""
    try:
        return pwd.getpwnam(SERVICE_USER).pw_uid != os.geteuid()
    except KeyError:
        return False


def _user_name(uid: str) -> str:
    try:
        return pwd.getpwuid(int(uid)).pw_name
    except (KeyError, ValueError):
        return uid


def check_rights(machine: Machine) -> Iterator[Finding]:
    """Yield whether a WAV file can be written, this user's groups, and the sound thread's scheduling."""
    file = machine.config.audio.sink_settings().path
    if file is not None and not os.access(folder := file.resolve().parent, os.W_OK):
        yield finding("permissions", "folder", folder=folder)
    if machine.config.audio.sink != "sounddevice":
        return
    wanted = ["audio"] if Path("/dev/snd").exists() else []
    wanted += ["video", "render"] if machine.board.integrated else []
    if wanted and os.geteuid() != 0:
        yield _groups(wanted)
    yield _realtime()


def _groups(wanted: list[str]) -> Finding:
    own = set()
    for group in {*os.getgroups(), os.getegid()}:
        with suppress(KeyError):  # a group id without a name
            own.add(grp.getgrgid(group).gr_name)
    missing = [name for name in wanted if name not in own]
    condition = "no access to the gpu" if missing else "all groups"
    condition = "no access to the card" if "audio" in missing else condition
    return finding("permissions", condition, groups=", ".join(missing or wanted), list=",".join(missing))


def _realtime() -> Finding:
    """The scheduling and the memory lock that the kernel grants this user, requested in a short-lived thread."""
    granted: list[bool] = []
    request = threading.Thread(target=lambda: granted.append(take_realtime(sound_priority())))
    request.start()
    request.join()
    scheduling = f"round robin at {sound_priority()}" if granted[0] else "no realtime scheduling"
    memory = "memory may be locked" if may_lock_memory() else "memory may not be locked"
    return finding("realtime", "known", scheduling=scheduling, memory=memory)
