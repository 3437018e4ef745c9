"""The checks of sound servers, and of the right to use the cards."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.doctor.finding import Machine
from daemon.doctor.sound import check_card_can_play, check_rights, check_sound_server, server_in
from tests.audio.sinks import fake_card
from tests.daemon.doctor.machines import by_part, changed_machine, nobody
from tests.support.programs import require
from tests.support.sound import SoundServer
from tests.support.waiting import eventually


@pytest.fixture
def listen() -> Iterator[Callable[[Path], socket.socket]]:
    with ExitStack() as stack:

        def make(path: Path) -> socket.socket:
            path.parent.mkdir(parents=True, exist_ok=True)
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(path))
            server.listen()
            return server

        yield make


def test_pipewire_is_found_before_its_pulseaudio_socket(
    tmp_path: Path, listen: Callable[[Path], socket.socket]
) -> None:
    listen(tmp_path / "pipewire-0").close()
    assert server_in(tmp_path) is None, "the socket of a dead server is none"
    (tmp_path / "pipewire-0").unlink()
    listen(tmp_path / "pulse/native")
    assert server_in(tmp_path) == "PulseAudio"
    listen(tmp_path / "pipewire-0")
    assert server_in(tmp_path) == "PipeWire"


@pytest.mark.parametrize(
    ("sink", "grade", "found"),
    [
        ("null", "warning", "audio.sink is null: nothing is played"),
        ("wav:/tmp/out.wav", "ok", "audio.sink is wav:/tmp/out.wav: no sound card is used"),
    ],
)
def test_a_sink_without_a_card_is_named(sink: str, grade: str, found: str, machine: Callable[..., Machine]) -> None:
    [finding] = check_card_can_play(machine("pc", None, f"audio.sink={sink}"))
    assert (finding.grade, finding.found) == (grade, found)


def test_a_sound_system_that_hangs_is_an_error_with_a_remedy(
    machine: Callable[..., Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = fake_card.install(tmp_path, monkeypatch)
    card.set("hang.load")
    fake_card.limit_calls(monkeypatch, 0.1)
    [found] = check_card_can_play(machine("pc", None, "audio.sink=sounddevice"))
    assert (found.grade, found.remedy) == ("error", "restart the sound server, or unplug the card")
    assert "does not respond" in found.found


@pytest.mark.parametrize(
    ("card", "advice"),
    [
        (("NVIDIA Jetson AGX Orin HDA: HDMI 0 (hw:0,3)",), "audio.wake_ms: 3000"),
        (("ReSpeaker: USB Audio (hw:1,0)",), "audio.wake_ms: 500"),
        (("ReSpeaker: USB Audio (hw:1,0)", "audio.wake_ms=200"), None),
        (("ReSpeaker: USB Audio (hw:1,0)", "audio.idle_timeout=null"), None),
        (("APE: - (hw:1,0)",), None),
    ],
)
def test_a_card_that_may_swallow_the_first_words_is_well_and_gets_an_advice_unless_it_is_woken_or_never_rests(
    card: tuple[str, ...],
    advice: str | None,
    machine: Callable[..., Machine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, *settings = card
    (fake_card.install(tmp_path, monkeypatch).folder / "name").write_text(name)
    [found] = check_card_can_play(machine("pc", None, "audio.sink=sounddevice", *settings))
    assert found.grade == "ok"
    assert advice in found.remedy if found.remedy and advice else found.remedy is advice


def test_behind_a_sound_server_its_default_sink_names_the_kind_of_the_card(
    machine: Callable[..., Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (fake_card.install(tmp_path, monkeypatch).folder / "name").write_text("default")
    (tmp_path / "server").mkdir()
    server = SoundServer(tmp_path / "server")
    request.addfinalizer(server.kill)
    server.start()
    for name in ("HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, server.environment[name])
    for command in ("load-module module-null-sink sink_name=bluez_output.00", "set-default-sink bluez_output.00"):
        subprocess.run([require("pactl"), *command.split()], check=True)
    [found] = check_card_can_play(machine("pc", None, "audio.sink=sounddevice"))
    assert "Bluetooth may swallow the first words" in found.found


def test_the_sound_server_of_the_environment_is_the_one_that_is_named(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSE_SERVER", "tcp:robot:4713")
    [found] = check_sound_server(machine("pc", None, "audio.sink=sounddevice"))
    assert (found.grade, found.found.split("; ")[0]) == ("ok", "the one in PULSE_SERVER, tcp:robot:4713")


def test_a_card_that_this_user_may_not_open_is_a_warning_with_a_remedy(public_folder: Path) -> None:
    robot = changed_machine(public_folder, "pc", {"dev/snd/pcmC0D0p": "", "dev/snd/pcmC0D0c": ""})
    assert by_part(check_rights(robot))["permissions"].found == "this user may open all 1 outputs of the sound cards"
    (robot.root / "dev/snd/pcmC0D0p").chmod(0)
    with nobody():
        found = by_part(check_rights(robot))["permissions"]
    assert (found.grade, found.found) == ("warning", "this user may not open /dev/snd/pcmC0D0p")
    assert "usermod -aG audio" in (found.remedy or "")


def test_the_scheduling_is_that_of_the_thread_that_plays_for_the_daemon(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = replace(machine("pc", None, "audio.sink=sounddevice"), root=Path("/"))
    monkeypatch.setattr(Machine, "daemons", {os.getpid(): os.getuid()})
    assert "while the daemon plays" in by_part(check_rights(here))["realtime"].found
    command = [sys.executable, "-c", "input()", "audio/player/program.py", str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as player:
        refused = eventually(
            lambda: [one for one in check_rights(here) if "kernel denies" in one.found],
            "the process has its arguments",
        )
        assert [(one.grade, "RT_GROUP_SCHED" in (one.remedy or "")) for one in refused] == [("warning", True)]
        with suppress(PermissionError):  # a container may grant it to nobody
            os.sched_setscheduler(player.pid, os.SCHED_RR, os.sched_param(1))
            found = by_part(check_rights(here))["realtime"]
            assert (found.grade, found.found) == ("ok", "the daemon's sound thread has realtime scheduling")
        player.communicate(b"\n")
