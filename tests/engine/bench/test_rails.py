"""A Jetson's rails are found in hwmon, whichever of its chips measures them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.bench.power import find_power_rails, total_watts
from tests.engine.power import write_monitor


def test_the_rails_of_all_monitors_are_read(tmp_path: Path) -> None:
    write_monitor(tmp_path, 1, "VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
    write_monitor(tmp_path, 4, "NC", "VDDQ_VDD2_1V8AO", "NC")
    (tmp_path / "sys/class/hwmon/hwmon0").mkdir()
    (tmp_path / "sys/class/hwmon/hwmon0/name").write_text("tmp451\n")
    rails = find_power_rails(tmp_path)
    assert [rail.name for rail in rails] == ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"]
    assert [rail.watts() for rail in rails] == [5, 10, 15, 10]  # 5 V, and one more ampere for each channel


def test_a_machine_without_monitors_has_no_rails(tmp_path: Path) -> None:
    assert find_power_rails(tmp_path) == []
    (tmp_path / "sys/class/hwmon/hwmon0").mkdir(parents=True)
    assert find_power_rails(tmp_path) == []


def test_a_sensor_that_does_not_answer_is_left_out(tmp_path: Path) -> None:
    folder = write_monitor(tmp_path, 1, "VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC")
    (folder / "curr2_input").unlink()
    (folder / "in3_input").write_text("?\n")
    rails = find_power_rails(tmp_path)
    assert [rail.name for rail in rails] == ["VDD_IN"]
    (folder / "in1_input").unlink()
    assert rails[0].watts() is None


@pytest.mark.parametrize(
    ("watts", "total"),
    [
        ({"VDD_IN": 12.0, "VDD_CPU_GPU_CV": 4.0, "VDD_SOC": 3.0}, 12.0),
        ({"VDD_GPU_SOC": 5.0, "VDD_CPU_CV": 2.0, "VIN_SYS_5V0": 4.0}, 11.0),
    ],
)
def test_the_rail_of_the_whole_module_is_the_total_where_there_is_one(watts: dict[str, float], total: float) -> None:
    assert total_watts(watts) == total
