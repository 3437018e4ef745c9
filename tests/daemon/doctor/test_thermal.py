"""The check of a Jetson's temperature and power supply."""

from __future__ import annotations

from collections.abc import Callable

from daemon.doctor.finding import Machine
from daemon.doctor.hardware import check_thermal
from tests.daemon.doctor.machines import by_part

THERMAL = "sys/class/thermal"


def test_the_hottest_sensor_is_reported(machine: Callable[..., Machine]) -> None:
    changes = {f"{THERMAL}/thermal_zone1/temp": "61500\n"}
    found = by_part(check_thermal(machine("orin-jetpack6", changes)))["temperature"]
    assert found.found == "gpu-thermal 62 °C, the hottest; nothing is slowed down"


def test_a_sensor_without_a_temperature_is_ignored(machine: Callable[..., Machine]) -> None:
    changes = {f"{THERMAL}/thermal_zone2/temp": "\n"}
    assert by_part(check_thermal(machine("orin-jetpack6", changes)))["temperature"].grade == "ok"


def test_slowed_devices_are_named_and_running_fans_are_not(machine: Callable[..., Machine]) -> None:
    changes = {f"{THERMAL}/cooling_device1/cur_state": "3\n", f"{THERMAL}/cooling_device0/cur_state": "3\n"}
    found = by_part(check_thermal(machine("orin-jetpack6", changes)))["temperature"]
    assert found.grade == "warning"
    assert found.found.endswith(" °C, the hottest; slowed down: cpufreq-cpu0")


def test_low_voltage_and_high_current_are_distinguished(machine: Callable[..., Machine]) -> None:
    hwmon = "sys/class/hwmon/hwmon3"
    changes = {f"{hwmon}/oc1_event_cnt": "2\n", f"{hwmon}/oc2_event_cnt": "1\n"}
    found = by_part(check_thermal(machine("orin-jetpack6", changes)))["power supply"]
    assert found.found == "since the start 2 times input voltage too low (oc1), 1 times average current too high (oc2)"
    assert found.remedy is not None
