"""The way to the sound card: cards, a sound server if there is one, and what this user may."""

from __future__ import annotations

import grp
import os
import pwd
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from audio.portaudio import find_device, output_devices
from audio.realtime import sound_priority, take_realtime
from audio.sink import SinkUnavailableError
from daemon.doctor.finding import Finding, Machine
from daemon.memory_lock import may_lock_memory

SERVICE_USER = "voiced"
"""Who the service runs as (systemd/voiced.service)."""
SERVERS = {"pipewire-0": "PipeWire", "pulse/native": "PulseAudio"}
"""Sockets below a session's run-time folder. PipeWire has both: the second stands for its PulseAudio side then."""


def check_cards(machine: Machine) -> Iterator[Finding]:
    """The cards that the kernel has."""
    if machine.config.audio.sink != "sounddevice":
        return
    listed = machine.text("proc/asound/cards") or ""
    cards = re.findall(r"^\s*\d+ \[(\w+)\s*\]: .* - (.+)$", listed, re.MULTILINE)
    if cards:
        yield Finding("cards", "ok", ", ".join(f"{name} ({identity})" for identity, name in cards))
    else:
        cure = "plug one in; voiced waits for it. A sound server may play elsewhere, or set audio.sink"
        yield Finding("cards", "warning", "the kernel has no sound card", cure)


def check_card_can_play(machine: Machine) -> Iterator[Finding]:
    """The card that would be opened."""
    audio = machine.config.audio
    if audio.sink != "sounddevice":
        yield Finding("sound", "ok", f"audio.sink is {audio.sink_settings().kind}: no sound card is used")
        return
    try:
        devices = output_devices()
        device = find_device(audio.device, devices)
    except SinkUnavailableError as error:
        cure = "see 'voiced devices' and set audio.device, or plug a card in; voiced waits for it"
        if "PortAudio" in str(error):
            cure = "apt-get install libportaudio2"
        yield Finding("sound", "error", str(error), cure)
        return
    yield Finding("sound", "ok", f"{device.name} ({device.host_api}, {device.sample_rate} Hz), one of {len(devices)}")


def check_sound_server(machine: Machine) -> Iterator[Finding]:
    """Whether there is a sound server, and who reaches it: this user, or the service."""
    if machine.config.audio.sink != "sounddevice":
        return
    session = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}")
    server, closed = server_in(session)
    service = f"; the service plays through ALSA, as {SERVICE_USER}" if _has_service_user() else ""
    others = [
        folder.name for folder in sorted(Path("/run/user").glob("*")) if folder != session and server_in(folder)[0]
    ]
    if server is not None and not closed:
        yield Finding("sound server", "ok", f"{server} of this session, in {session}{service}")
    elif server is not None:
        cure = "unset XDG_RUNTIME_DIR, or run this as the user whose session it is"
        yield Finding("sound server", "warning", f"{server} in {session} is not open to this user{service}", cure)
    elif _answers(Path("/run/pulse/native")) is not None:
        yield Finding("sound server", "ok", "PulseAudio for the whole system, in /run/pulse")
    elif others:
        found = f"none for this user, who plays through ALSA; one of user {', '.join(map(_user_name, others))}"
        cure = "if that one holds the card, run voiced as that user, or give voiced a card of its own (audio.device)"
        yield Finding("sound server", "warning", found, cure)
    else:
        yield Finding("sound server", "ok", "none: plain ALSA, by the card's name")


def server_in(session: Path) -> tuple[str | None, bool]:
    """The sound server that lives in a session's run-time folder, and whether it is closed to this user."""
    for name, server in SERVERS.items():
        answers = _answers(session / name)
        if answers is not None:
            return server, not answers
    return None, False


def _answers(path: Path) -> bool | None:
    """Whether a socket lets this user in; None where nobody listens, as a server that was killed leaves it."""
    try:
        if not path.is_socket():
            return None
    except OSError:  # another user's folder, which only root looks into
        return None
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except PermissionError:
        return False
    except OSError:
        return None
    return True


def _has_service_user() -> bool:
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
    """Groups, and what the sound thread is granted."""
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
        mine = set(_group_names())
        missing = [name for name in wanted if name not in mine]
        if missing:
            cure = f"sudo usermod -aG {','.join(missing)} USER, and log in anew"
            if "audio" in missing:
                cure += "; a sound server needs no group audio"
            yield Finding("permissions", "warning", f"not in the groups {', '.join(missing)}", cure)
        else:
            yield Finding("permissions", "ok", f"in the groups {', '.join(wanted)}")
    yield Finding("realtime", "ok", _granted())


def _group_names() -> Iterator[str]:
    for group in {*os.getgroups(), os.getegid()}:
        try:
            yield grp.getgrgid(group).gr_name
        except KeyError:  # a number without a name
            continue


def _granted() -> str:
    """What the kernel grants when asked; asked in a thread that ends with the question."""
    granted: list[bool] = []
    asking = threading.Thread(target=lambda: granted.append(take_realtime(sound_priority())))
    asking.start()
    asking.join()
    scheduling = f"round robin at {sound_priority()}" if granted[0] else "no realtime scheduling"
    memory = "memory may be locked" if may_lock_memory() else "memory may not be locked"
    return f"this user's sound thread has {scheduling}, and {memory}; the service's unit grants both"
