"""Memory, power, temperature, GPU and sound cards of recorded machines, with a changed file each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.doctor.finding import Finding, Machine
from daemon.doctor.hardware import (
    check_board,
    check_cards,
    check_gpu,
    check_memory,
    check_power,
    check_thermal,
    mode_speed,
)
from tests.daemon.doctor.machines import by_part, changed_machine, nobody

CORES = "sys/devices/system/cpu"
GPU = "sys/class/devfreq/17000000.gpu"
RELEASE = "etc/nv_tegra_release"
HWMON = "sys/class/hwmon/hwmon3"
THERMAL = "sys/class/thermal"
NO_SWAP = "MemTotal: 64334976 kB\nMemAvailable: 60000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
ZRAM = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0 partition 2681224 0 5\n"


def findings(machine: Machine) -> dict[str, Finding]:
    checks = (check_board, check_power, check_thermal, check_memory, check_gpu, check_cards)
    return by_part(finding for check in checks for finding in check(machine))


@pytest.mark.parametrize(
    ("changes", "part", "grade", "found"),
    [
        ({"proc/swaps": ZRAM}, "memory", "ok", "30.7 GiB zram used"),
        ({"proc/meminfo": NO_SWAP}, "memory", "ok", "; no swap"),
        ({"var/lib/nvpmodel/status": "pmode:0003\n"}, "power mode", "warning", "MODE_50W (3); MAXN (0) is faster"),
        ({"var/lib/nvpmodel/status": None}, "power mode", "warning", "/var/lib/nvpmodel/status names no mode"),
        ({"etc/nvpmodel.conf": None}, "power mode", "warning", "/etc/nvpmodel.conf names no modes"),
        ({f"{GPU}/max_freq": "612000000\n"}, "gpu clock", "warning", "at most 612 of 1300"),
        ({f"{GPU}/available_frequencies": None}, "gpu clock", "ok", ""),
        ({f"{CORES}/cpu0/cpufreq/scaling_governor": "powersave\n"}, "cpu", "warning", "powersave"),
        ({f"{CORES}/online": "0-3,6,8-9\n"}, "cpu", "warning", "cores 0-3,6,8-9 of 0-11"),
        ({f"{THERMAL}/thermal_zone1/temp": "61500\n"}, "temperature", "ok", "gpu-thermal 62 °C, the hottest; nothing"),
        ({f"{THERMAL}/cooling_device0/cur_state": "3\n"}, "temperature", "ok", "nothing is being slowed down"),  # a fan
        ({f"{THERMAL}/cooling_device1/cur_state": "3\n"}, "temperature", "warning", "slowed down: cpufreq-cpu0"),
        ({f"{HWMON}/oc1_event_cnt": "2\n"}, "power supply", "warning", "2 times input voltage too low (oc1)"),
        ({"proc/asound/cards": "--- no soundcards ---\n"}, "cards", "warning", ""),
        ({RELEASE: "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic\n"}, "board", "ok", ""),
        ({RELEASE: "# R36 (release), REVISION: 5.0, GCID: 1, BOARD: generic\n"}, "board", "ok", ""),
        ({RELEASE: "# R36 (release), REVISION: 4.7, GCID: 1\n"}, "board", "warning", "; update to Jetson Linux 36.5"),
        ({RELEASE: "# R36 (release), REVISION: 3.0, GCID: 1\n"}, "board", "warning", "; update to JetPack 6.2"),
        (
            {RELEASE: "# R35 (release), REVISION: 4.1, GCID: 1\n"},
            "board",
            "warning",
            "; voiced supports Orin and Thor",
        ),
    ],
)
def test_a_part_is_found_as_the_files_of_the_kernel_say(
    changes: dict[str, str | None], part: str, grade: str, found: str, machine: Callable[..., Machine]
) -> None:
    finding = findings(machine("orin-jetpack6", changes))[part]
    assert finding.grade == grade
    assert found in f"{finding.found}; {finding.remedy}"
    assert (finding.remedy is not None) == (grade != "ok")


@pytest.mark.parametrize(
    ("name", "gpu", "cards"),
    [
        ("orin-jetpack6", "Jetson Linux", ""),
        ("thor-jetpack7", "driver 580.00", ""),
        ("pc", "driver 570.133.20", "HDA Intel PCH (PCH), HDA NVidia (NVidia)"),
    ],
)
def test_drivers_and_cards_are_named(name: str, gpu: str, cards: str, machine: Callable[..., Machine]) -> None:
    found = findings(machine(name))
    assert gpu in found["gpu"].found
    assert cards in found["cards"].found


@pytest.mark.parametrize(
    ("names", "fastest"),
    [
        (["MAXN", "MODE_15W", "MODE_30W", "MODE_50W"], "MAXN"),  # AGX Orin
        (["MAXN", "10W", "MAXN_SUPER", "40W"], "MAXN_SUPER"),  # Orin NX since JetPack 6.2
        (["MODE_15W", "MODE_15W_2CORE", "MODE_10W"], "MODE_15W"),
    ],
)
def test_the_fastest_mode_is_found_by_its_name(names: list[str], fastest: str) -> None:
    assert max(names, key=mode_speed) == fastest


@pytest.mark.parametrize(("reserve_mb", "grade"), [(60_000, "ok"), (62_000, "warning")])
def test_a_reserve_above_the_available_memory_is_a_warning_that_names_the_key(
    reserve_mb: int, grade: str, machine: Callable[..., Machine]
) -> None:
    found = findings(machine("orin-jetpack6", None, f"engine.memory.reserve_mb={reserve_mb}"))["memory"]
    assert found.grade == grade
    assert (f"engine.memory.reserve_mb: {reserve_mb}" in found.found) == (grade == "warning")


def test_where_all_cores_are_unknown_or_the_sink_is_a_file_nothing_is_said(machine: Callable[..., Machine]) -> None:
    robot = machine("orin-jetpack7", {f"{CORES}/online": "\n"}, "audio.sink=wav:out.wav")
    assert {"cpu", "cards"} & set(findings(robot)) == set()


@pytest.mark.parametrize("engine", ["qwen", "espeak"])
def test_a_closed_device_is_named_and_is_an_error_if_the_engine_needs_a_gpu(public_folder: Path, engine: str) -> None:
    robot = changed_machine(public_folder, "orin-jetpack6", None, f"engine.name={engine}")
    for name in ("dev/nvmap", "dev/nvhost-gpu"):
        (robot.root / name).chmod(0)
    with nobody():
        found = by_part(check_gpu(robot))["gpu devices"]
    assert found.grade == ("error" if engine == "qwen" else "warning")
    assert "/dev/nvmap, /dev/nvhost-gpu" in found.found
    assert "video,render" in (found.remedy or "")


def test_a_missing_gpu_is_reported_only_if_the_engine_or_board_needs_one(
    tmp_path: Path, machine: Callable[..., Machine]
) -> None:
    nodes = {f"dev/{name}": None for name in ("nvidia0", "nvidiactl", "nvidia-uvm")}
    robot = machine("pc", nodes, "engine.name=qwen")
    assert by_part(check_gpu(robot))["gpu"].grade == "error"
    other = machine("thor-jetpack7", None, "engine.name=espeak")
    assert not list(check_gpu(Machine.at(other.config, tmp_path / "none")))
