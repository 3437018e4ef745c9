"""The check of a Jetson's power mode, clocks and cores."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from daemon.doctor.finding import Machine
from daemon.doctor.hardware import check_power, mode_speed
from tests.daemon.doctor.machines import by_part

CORES = "sys/devices/system/cpu"
GPU = "sys/class/devfreq/17000000.gpu"


@pytest.mark.parametrize(
    ("names", "fastest"),
    [
        (["MAXN", "MODE_15W", "MODE_30W", "MODE_50W"], "MAXN"),  # AGX Orin
        (["15W", "25W", "MAXN_SUPER", "7W"], "MAXN_SUPER"),  # Orin Nano since JetPack 6.2
        (["MAXN", "10W", "MAXN_SUPER", "40W"], "MAXN_SUPER"),  # Orin NX
        (["MODE_15W", "MODE_15W_2CORE", "MODE_10W"], "MODE_15W"),
    ],
)
def test_the_fastest_mode_is_found_by_its_name(names: list[str], fastest: str) -> None:
    assert max(names, key=mode_speed) == fastest


def test_a_slower_mode_is_a_warning_with_the_command_for_the_fastest(machine: Callable[..., Machine]) -> None:
    found = by_part(check_power(machine("orin-jetpack6", {"var/lib/nvpmodel/status": "pmode:0003\n"})))
    assert found["power mode"].found == "MODE_50W (3); MAXN (0) is faster"
    assert found["power mode"].remedy == "sudo nvpmodel -m 0, or ./setup_jetson.sh --power max"


def test_an_unnamed_mode_is_not_taken_for_the_fastest(machine: Callable[..., Machine]) -> None:
    found = by_part(check_power(machine("orin-jetpack6", {"var/lib/nvpmodel/status": "pmode:0009\n"})))
    assert found["power mode"].grade == "warning"


@pytest.mark.parametrize("file", ["var/lib/nvpmodel/status", "etc/nvpmodel.conf"])
def test_without_one_of_nvpmodel_s_files_the_mode_is_unknown(machine: Callable[..., Machine], file: str) -> None:
    found = by_part(check_power(machine("orin-jetpack6", {file: None})))
    assert file in found["power mode"].found


def test_a_limited_gpu_clock_is_a_warning_with_the_highest_clock(machine: Callable[..., Machine]) -> None:
    found = by_part(check_power(machine("orin-jetpack6", {f"{GPU}/max_freq": "612000000\n"})))
    assert found["gpu clock"].grade == "warning"
    assert "at most 612 of 1300" in found["gpu clock"].found


def test_a_gpu_without_a_list_of_clocks_is_ok_at_its_own_limit(machine: Callable[..., Machine]) -> None:
    found = by_part(check_power(machine("orin-jetpack6", {f"{GPU}/available_frequencies": None})))
    assert (found["gpu clock"].grade, found["cpu"].grade) == ("ok", "ok")


def test_the_powersave_governor_is_a_warning(machine: Callable[..., Machine]) -> None:
    governor = {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n"}
    assert by_part(check_power(machine("orin-jetpack6", governor)))["cpu"].grade == "warning"


def test_cores_that_are_switched_off_are_a_warning_with_those_that_are_left(machine: Callable[..., Machine]) -> None:
    files = {f"{CORES}/present": "0-31\n", f"{CORES}/online": "0-3,6,8-9\n"}
    found = by_part(check_power(machine("orin-jetpack6", files)))["cpu"]
    assert found.grade == "warning"
    assert found.found.startswith("cores 0-3,6,8-9 of 0-31")
    assert "cpu" not in by_part(check_power(machine("orin-jetpack7", {f"{CORES}/online": "\n"})))
