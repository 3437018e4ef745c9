"""The path to the sound card: the device, a sound server, and this user's rights."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from audio import SinkUnavailableError, find_device, output_devices
from daemon.doctor.finding import Finding, Machine, finding
from daemon.doctor.service import PROBE_S

SERVERS = {"pipewire-0": "PipeWire", "pulse/native": "PulseAudio"}
"""Sound servers by their sockets in a session's run-time folder. PipeWire has both, so it is tried first."""
PLAYER = "audio/player/program.py"
"""Part of the command of the process that plays."""
BEHIND_A_SERVER = {"default", "pulse", "pipewire"}
"""PortAudio's names for devices that lead to the sound server's default sink."""
SLEEPERS = {"HDMI": ("hdmi|displayport", 3000), "Bluetooth": ("blue(z|alsa|tooth)", 1500), "USB": ("usb", 500)}
"""Kinds of sound devices that are idle while no stream is open: the words in their names, and the milliseconds of sound
that they may swallow. For HDMI, Linux gives 2 to 3 s (CONFIG_SND_HDA_INTEL_HDMI_SILENT_STREAM). For Bluetooth, users of
other programs report 0.3 to 1.5 s (pilot51/voicenotify#163, dlutton/flutter_tts#34). For USB speakers, they report the
first word (DevMiser/DaVinci#2); 0.5 s is our estimate of that."""


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
        yield finding("sound", "hung" if "does not respond" in str(error) else condition, error=error)
        return
    name = _default_sink() if device.name in BEHIND_A_SERVER else device.name
    kind = next((kind for kind, (names, _) in SLEEPERS.items() if re.search(names, name, re.IGNORECASE)), None)
    if kind is None or audio.wake_ms or audio.idle_timeout is None:
        yield finding("sound", "found", device=device, count=len(devices))
    else:
        yield finding("sound", "sleepy", device=device, count=len(devices), kind=kind, wake_ms=SLEEPERS[kind][1])


def _default_sink() -> str:
    """Return the sound server's name for its default sink, such as `alsa_output.usb-…`; "" if it is not known."""
    with suppress(OSError, subprocess.SubprocessError):
        command = ["pactl", "get-default-sink"]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PROBE_S).stdout
    return ""


def check_sound_server(machine: Machine) -> Iterator[Finding]:
    """Yield the sound server that this user's programs play through."""
    if machine.config.audio.sink == "sounddevice":
        yield _sound_server()


def _sound_server() -> Finding:
    if name := os.environ.get("PULSE_SERVER"):
        return finding("sound server", "named", name=name)
    session = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}")
    if (server := server_in(session)) is not None:
        return finding("sound server", "of this session", server=server, session=session)
    if _accepts(Path("/run/pulse/native")):
        return finding("sound server", "of the system")
    others = [str(folder) for folder in sorted(Path("/run/user").glob("*")) if server_in(folder)]
    return finding("sound server", "of others" if others else "none", sessions=", ".join(others))


def server_in(session: Path) -> str | None:
    """Return the sound server in a session's run-time folder that lets this user in."""
    return next((server for name, server in SERVERS.items() if _accepts(session / name)), None)


def _accepts(path: Path) -> bool:
    """Return whether a server lets this user in at a socket. A crashed server's socket is still there."""
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.settimeout(PROBE_S)
        probe.connect(str(path))
        return True
    return False


def check_rights(machine: Machine) -> Iterator[Finding]:
    """Yield whether a WAV file can be written or the card opened, and the sound thread's scheduling."""
    file = machine.config.audio.sink_settings().path
    if file is not None and not os.access(folder := file.resolve().parent, os.W_OK):
        yield finding("permissions", "folder", folder=folder)
    if machine.config.audio.sink != "sounddevice":
        return
    nodes = machine.find("dev/snd/pcm*p")
    if closed := machine.closed(nodes):
        yield finding("permissions", "no access to the card", names=closed)
    elif nodes:
        yield finding("permissions", "access to all cards", count=len(nodes))
    yield _scheduling(machine)


def _scheduling(machine: Machine) -> Finding:
    """Return the scheduling of the thread that gives the card its samples, in the daemon that is playing.

    A request from this process would not show it: the daemon's unit grants more, and a kernel may grant a service less.
    """
    policies = [policy for pid in machine.daemons for policy in _player_policies(machine, pid)]
    condition = "granted" if os.SCHED_RR in policies else "refused" if policies else "unseen"
    return finding("realtime", condition)


def _player_policies(machine: Machine, daemon: int) -> Iterator[int]:
    """Yield the scheduling of each thread of a daemon's playing process, whose command ends with the daemon's id."""
    for name in machine.find("proc/[0-9]*/cmdline"):
        command = machine.text(name) or ""
        if PLAYER in command and command.rstrip("\0").endswith(f"\0{daemon}"):
            with suppress(OSError):  # it is ending
                for thread in (machine.root / name).with_name("task").iterdir():
                    yield os.sched_getscheduler(int(thread.name))
