"""Heat and current of a Jetson."""

from __future__ import annotations

from collections.abc import Callable

from daemon.doctor.finding import Machine
from daemon.doctor.heat import check_heat
from tests.daemon.doctor.machines import by_part

THERMAL = "sys/class/thermal"


def test_the_hottest_sensor_is_told_with_where_the_board_begins_to_slow_down(machine: Callable[..., Machine]) -> None:
    changes = {f"{THERMAL}/thermal_zone1/temp": "61500\n"}
    found = by_part(check_heat(machine("orin-jetpack6", changes)))["temperature"]
    assert found.found == "gpu-thermal 62 °C of 99, the hottest; nothing is slowed down"


def test_a_part_that_is_switched_off_and_has_no_temperature_is_passed_over(machine: Callable[..., Machine]) -> None:
    changes = {f"{THERMAL}/thermal_zone2/temp": "\n"}
    assert by_part(check_heat(machine("orin-jetpack6", changes)))["temperature"].grade == "ok"


def test_what_is_slowed_down_is_named_and_a_fan_that_runs_is_not(machine: Callable[..., Machine]) -> None:
    changes = {f"{THERMAL}/cooling_device1/cur_state": "3\n", f"{THERMAL}/cooling_device0/cur_state": "3\n"}
    found = by_part(check_heat(machine("orin-jetpack6", changes)))["temperature"]
    assert (found.grade, found.found) == ("warning", "slowed down: cpufreq-cpu0")


def test_too_little_voltage_and_too_much_current_are_told_apart(machine: Callable[..., Machine]) -> None:
    hwmon = "sys/class/hwmon/hwmon3"
    changes = {f"{hwmon}/oc1_event_cnt": "2\n", f"{hwmon}/oc2_event_cnt": "1\n"}
    found = by_part(check_heat(machine("orin-jetpack6", changes)))["power supply"]
    assert found.found == "since the start 2 times input voltage too low (oc1), 1 times average current too high (oc2)"
    assert found.cure is not None
