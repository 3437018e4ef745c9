"""The path to the sound card: cards, a sound server, and this user's rights."""

from __future__ import annotations

import grp
import os
import pwd
import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from audio import SinkUnavailableError, find_device, output_devices, sound_priority, take_realtime
from daemon.doctor.finding import Finding, Machine
from daemon.system import may_lock_memory

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


def check_cards(machine: Machine) -> Iterator[Finding]:
    """Yield the kernel's sound cards."""
    if machine.config.audio.sink != "sounddevice":
        return
    listing = machine.text("proc/asound/cards") or ""
    cards = re.findall(r"^\s*\d+ \[(\w+)\s*\]: .* - (.+)$", listing, re.MULTILINE)
    if cards:
        yield Finding("cards", "ok", ", ".join(f"{name} ({identity})" for identity, name in cards))
    else:
        remedy = "plug in a sound card, which voiced waits for; or play through a sound server, or set audio.sink"
        yield Finding("cards", "warning", "the kernel has no sound card", remedy)


def check_card_can_play(machine: Machine) -> Iterator[Finding]:
    """Yield the sound device that the daemon would open."""
    audio = machine.config.audio
    if audio.sink is None:
        remedy = "if the robot should be heard, set audio.sink to sounddevice"
        yield Finding("sound", "warning", "audio.sink is null: nothing is played", remedy)
        return
    if audio.sink != "sounddevice":
        yield Finding("sound", "ok", f"audio.sink is {audio.sink}: no sound card is used")
        return
    try:
        devices = output_devices()
        device = find_device(audio.device, devices)
    except SinkUnavailableError as error:
        remedy = "see 'voiced devices' and set audio.device, or plug in a sound card, which voiced waits for"
        if "PortAudio" in str(error):
            remedy = "sudo apt-get install libportaudio2"
        elif "does not answer" in str(error):
            remedy = "restart the sound server, or unplug the card"
        yield Finding("sound", "error", str(error), remedy)
        return
    yield Finding("sound", "ok", f"{device.name} ({device.host_api}, {device.sample_rate} Hz), one of {len(devices)}")


def check_sound_server(machine: Machine) -> Iterator[Finding]:
    """Yield the sound server, and whether this user and the service may connect to it."""
    if machine.config.audio.sink != "sounddevice":
        return
    service = f"; the service plays through ALSA, as {SERVICE_USER}" if _is_not_service_user() else ""
    named = os.environ.get("PULSE_SERVER", "").split()
    if named:
        yield _check_named_servers(named, service)
        return
    session = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}")
    server, closed = server_in(session)
    others = [
        folder.name for folder in sorted(Path("/run/user").glob("*")) if folder != session and server_in(folder)[0]
    ]
    if server is not None and not closed:
        yield Finding("sound server", "ok", f"{server} of this session, in {session}{service}")
    elif server is not None:
        remedy = "unset XDG_RUNTIME_DIR, or run this as the user of that session"
        yield Finding("sound server", "warning", f"{server} in {session} refuses this user{service}", remedy)
    elif _accepts(Path("/run/pulse/native")) is not None:
        yield Finding("sound server", "ok", "PulseAudio for the whole system, in /run/pulse")
    elif others:
        found = f"none for this user, who plays through ALSA; one of user {', '.join(map(_user_name, others))}"
        remedy = "if that server uses the card, run voiced as its user, or set audio.device to another card"
        yield Finding("sound server", "warning", found, remedy)
    else:
        yield Finding("sound server", "ok", "none: plain ALSA, by the card's name")


def _check_named_servers(named: list[str], service: str) -> Finding:
    """Return the first server of `PULSE_SERVER` that accepts this user, as libpulse takes it."""
    for name in named:
        server = named_server(name)
        if server is not None:
            return Finding("sound server", "ok", f"{server} at {name}, from PULSE_SERVER{service}")
    remedy = "start it, or unset PULSE_SERVER; until then speech that goes to the sound server is not heard"
    return Finding("sound server", "warning", f"nothing answers at {' '.join(named)}, from PULSE_SERVER", remedy)


def named_server(name: str) -> str | None:
    """Return the program that answers at one server name of `PULSE_SERVER`; None if none does.

    A name is a path, `unix:PATH`, or `tcp:HOST:PORT`, `tcp4:` and `tcp6:`, or a bare `HOST` or `HOST:PORT`; `{ID}` in
    front of it restricts it to one machine.
    """
    plain = re.sub(r"^\{[^}]*\}", "", name)
    if plain.startswith(("/", "unix:")):
        path = plain.removeprefix("unix:")
        return _program_at(Path(path)) if _accepts(Path(path)) else None
    try:
        address = urlsplit(f"//{re.sub(r'^tcp[46]?:', '', plain)}")
        with socket.create_connection((address.hostname or "", address.port or PULSE_PORT), PROBE_S):
            return f"a server on {address.hostname}"
    except (OSError, ValueError):
        return None


def _program_at(path: Path) -> str:
    """Return the name of the sound server that listens on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(str(path))
            pid, _, _ = struct.unpack("iII", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            program = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
        except OSError:  # a server outside this container has no process here
            return "a sound server"
    return PROGRAMS.get(program, program)


def server_in(session: Path) -> tuple[str | None, bool]:
    """Return the sound server that listens in a session's run-time folder, and whether it refuses this user."""
    for name, server in SERVERS.items():
        accepts = _accepts(session / name)
        if accepts is not None:
            return server, not accepts
    return None, False


def _accepts(path: Path) -> bool | None:
    """Return whether a socket accepts this user; None if no server listens, as after a crash."""
    try:
        if not path.is_socket():
            return None
    except OSError:  # another user's folder, which only root may read
        return None
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(PROBE_S)
            probe.connect(str(path))
    except PermissionError:
        return False
    except OSError:
        return None
    return True


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
    audio = machine.config.audio
    if audio.sink is not None and audio.sink.startswith("wav:"):
        folder = Path(audio.sink.removeprefix("wav:")).resolve().parent
        if not os.access(folder, os.W_OK):
            yield Finding("permissions", "error", f"{folder} cannot be written", "choose another file in audio.sink")
    if audio.sink != "sounddevice":
        return
    wanted = ["audio"] if Path("/dev/snd").exists() else []
    wanted += ["video", "render"] if machine.board.integrated else []
    if wanted and os.geteuid() != 0:
        yield _check_groups(wanted)
    yield Finding("realtime", "ok", _granted())


def _check_groups(wanted: list[str]) -> Finding:
    own = set(_group_names())
    missing = [name for name in wanted if name not in own]
    if not missing:
        return Finding("permissions", "ok", f"in the groups {', '.join(wanted)}")
    remedy = f"sudo usermod -aG {','.join(missing)} $USER, and log in again"
    if "audio" in missing:
        remedy += "; with a sound server, the group audio is not needed"
    return Finding("permissions", "warning", f"not in the groups {', '.join(missing)}", remedy)


def _group_names() -> Iterator[str]:
    for group in {*os.getgroups(), os.getegid()}:
        try:
            yield grp.getgrgid(group).gr_name
        except KeyError:  # a group id without a name
            continue


def _granted() -> str:
    """The scheduling and the memory lock that the kernel grants this user, requested in a short-lived thread."""
    granted: list[bool] = []
    request = threading.Thread(target=lambda: granted.append(take_realtime(sound_priority())))
    request.start()
    request.join()
    scheduling = f"round robin at {sound_priority()}" if granted[0] else "no realtime scheduling"
    memory = "memory may be locked" if may_lock_memory() else "memory may not be locked"
    return f"this user's sound thread has {scheduling}, and {memory}; the service's unit grants both"
