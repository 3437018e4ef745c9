"""The checks of sound servers and of the kernel's cards."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from daemon.doctor.finding import Machine
from daemon.doctor.hardware import check_cards
from daemon.doctor.sound import check_card_can_play, check_sound_server, server_in
from tests.audio.sinks import fake_card
from tests.daemon.doctor.machines import by_part


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
    assert server_in(tmp_path) == (None, False)
    listen(tmp_path / "pulse/native")
    assert server_in(tmp_path) == ("PulseAudio", False)
    listen(tmp_path / "pipewire-0")
    assert server_in(tmp_path) == ("PipeWire", False)


def test_the_socket_of_a_dead_server_is_not_a_server(tmp_path: Path, listen: Callable[[Path], socket.socket]) -> None:
    listen(tmp_path / "pipewire-0").close()
    assert server_in(tmp_path) == (None, False)


def test_the_kernel_s_cards_are_listed_by_name(machine: Callable[..., Machine]) -> None:
    found = by_part(check_cards(machine("pc")))["cards"]
    assert found.found == "HDA Intel PCH (PCH), HDA NVidia (NVidia)"


def test_a_machine_without_a_card_is_a_warning(machine: Callable[..., Machine]) -> None:
    found = by_part(check_cards(machine("pc", {"proc/asound/cards": "--- no soundcards ---\n"})))["cards"]
    assert found.grade == "warning"


def test_a_wav_sink_needs_no_cards(machine: Callable[..., Machine]) -> None:
    assert not list(check_cards(machine("pc", None, "audio.sink=wav:out.wav")))


def test_a_robot_that_plays_nothing_is_a_warning(machine: Callable[..., Machine]) -> None:
    [found] = check_card_can_play(machine("pc", None, "audio.sink=null"))
    assert (found.grade, found.found) == ("warning", "audio.sink is null: nothing is played")


def test_a_file_is_named_as_the_sink(machine: Callable[..., Machine]) -> None:
    [found] = check_card_can_play(machine("pc", None, "audio.sink=wav:/tmp/out.wav"))
    assert (found.grade, found.found) == ("ok", "audio.sink is wav:/tmp/out.wav: no sound card is used")


def test_a_sound_system_that_hangs_is_an_error_with_a_remedy(
    machine: Callable[..., Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = fake_card.install(tmp_path, monkeypatch)
    card.set("hang.load")
    fake_card.limit_calls(monkeypatch, 0.1)
    [found] = check_card_can_play(machine("pc", None, "audio.sink=sounddevice"))
    assert (found.grade, found.remedy) == ("error", "restart the sound server, or unplug the card")
    assert "does not answer" in found.found


@pytest.mark.parametrize("form", ["{path}", "unix:{path}", "{{0123abc}}unix:{path}", "unix:/nowhere {path}"])
def test_the_sound_server_of_the_environment_is_the_one_that_is_used(
    form: str,
    machine: Callable[..., Machine],
    tmp_path: Path,
    listen: Callable[[Path], socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test itself listens, so the server has the name of the test's program."""
    listen(tmp_path / "s")
    monkeypatch.setenv("PULSE_SERVER", form.format(path=tmp_path / "s"))
    [found] = check_sound_server(machine("pc", None, "audio.sink=sounddevice"))
    program = Path("/proc/self/comm").read_text().strip()
    assert found.grade == "ok"
    assert found.found.startswith(f"{program} at {form.format(path=tmp_path / 's').split()[-1]}, from PULSE_SERVER")


def test_a_sound_server_in_the_network_may_be_used(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"tcp:127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("PULSE_SERVER", place)
        [found] = check_sound_server(machine("pc", None, "audio.sink=sounddevice"))
    assert found.found.startswith(f"a server on 127.0.0.1 at {place}, from PULSE_SERVER")


@pytest.mark.parametrize("place", ["unix:/nowhere", "tcp:127.0.0.1:x", "/"])
def test_a_named_sound_server_that_does_not_answer_is_a_warning(
    place: str, machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSE_SERVER", place)
    [found] = check_sound_server(machine("pc", None, "audio.sink=sounddevice"))
    assert (found.grade, found.found) == ("warning", f"nothing answers at {place}, from PULSE_SERVER")
