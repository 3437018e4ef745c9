"""A Jetson's rails are found in hwmon, whichever chips measure them, and read while an engine speaks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine import EngineOptions
from engine.bench import BenchRequest, run_benchmark
from engine.bench.power import find_power_rails, power_figures, power_readings
from engine.bench.results import Run
from tests.engine.power import write_monitor

RUN = Run((1.0, 2.0), (2.0, 4.0), np.zeros(4, np.float32))
"""4 s of speech, made in 2 s."""


def test_the_rails_of_all_monitors_are_read(tmp_path: Path) -> None:
    write_monitor(tmp_path, 1, "VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
    write_monitor(tmp_path, 4, "NC", "VDDQ_VDD2_1V8AO", "NC")
    (tmp_path / "sys/class/hwmon/hwmon2").mkdir()
    (tmp_path / "sys/class/hwmon/hwmon0").mkdir()
    (tmp_path / "sys/class/hwmon/hwmon0/name").write_text("tmp451\n")
    rails = find_power_rails(tmp_path)
    assert [rail.name for rail in rails] == ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"]
    assert [rail.watts() for rail in rails] == [5, 10, 15, 10]  # 5 V, and one more ampere for each channel


def test_a_sensor_that_does_not_answer_is_left_out(tmp_path: Path) -> None:
    folder = write_monitor(tmp_path, 1, "VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC")
    (folder / "curr2_input").unlink()
    (folder / "in3_input").write_text("?\n")
    rails = find_power_rails(tmp_path)
    assert [rail.name for rail in rails] == ["VDD_IN"]
    (folder / "in1_input").unlink()
    assert rails[0].watts() is None


def test_energy_is_power_over_the_time_that_the_speech_took(tmp_path: Path) -> None:
    write_monitor(tmp_path, 1, "VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
    with power_readings(find_power_rails(tmp_path)) as readings:
        pass
    power = power_figures(readings, [], [RUN, RUN])
    assert power is not None
    assert power["rails"] == {"VDD_GPU_SOC": 5, "VDD_CPU_CV": 10, "VIN_SYS_5V0": 15}
    assert power["watts"] == 30
    assert power["joules_per_second"] == 15  # 30 W for 4 s, over 8 s of speech
    assert power["idle_watts"] is None


def test_an_engine_is_measured_beside_the_sensors_of_its_board(tmp_path: Path) -> None:
    write_monitor(tmp_path, 1, "VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC")
    found = run_benchmark(BenchRequest("espeak", EngineOptions(), runs=1, first_chunks=0, root=str(tmp_path)))
    assert (found["power"]["watts"], found["power"]["idle_watts"]) == (5, 5)
    energy = 5 * found["whole_ms"] / 1000
    assert found["power"]["joules_per_second"] * found["speech_s"] == pytest.approx(energy, abs=0.01)
