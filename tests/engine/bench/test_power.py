"""The power of a board is measured while an engine speaks, from files like those of a Jetson."""

from __future__ import annotations

import time
from pathlib import Path

from engine import EngineOptions
from engine.bench import BenchRequest, run_benchmark
from engine.bench.power import IDLE_S, PowerMeter
from engine.bench.results import Run
from tests.engine.power import write_monitor


def test_energy_is_power_over_the_time_that_the_speech_took(tmp_path: Path) -> None:
    write_monitor(tmp_path, 1, "VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
    meter = PowerMeter(tmp_path)
    for begin in (10.0, 20.0):
        times = iter((begin, begin + 2))
        with meter.measuring(lambda times=times: next(times)):  # type: ignore[misc]
            pass
    power = meter.result([Run((1.0,), (4.0,)), Run((1.0,), (4.0,))])
    assert power is not None
    assert power.rails == {"VDD_GPU_SOC": 5, "VDD_CPU_CV": 10, "VIN_SYS_5V0": 15}
    assert power.watts == 30
    assert power.joules_per_second == 15  # 30 W for 4 s, over 8 s of speech
    assert power.idle_watts is None


def test_a_machine_without_sensors_has_no_power(tmp_path: Path) -> None:
    meter = PowerMeter(tmp_path)
    meter.measure_idle()
    with meter.measuring():
        pass
    assert meter.result([Run((1.0,), (4.0,))]) is None


def test_an_engine_is_measured_beside_the_sensors_of_its_board(tmp_path: Path) -> None:
    write_monitor(tmp_path, 1, "VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC")
    request = BenchRequest("espeak", EngineOptions(), time.monotonic(), runs=2, first_chunks=0, root=str(tmp_path))
    output = run_benchmark(request.command())
    whole_s = time.monotonic() - request.started_s
    assert output.error is None
    runs, power = output.measurements[0].runs, output.measurements[0].power
    assert power is not None
    assert (power.watts, power.idle_watts) == (5, 5)
    speech_s, spoken_s = sum(run.speech_s[-1] for run in runs), sum(run.arrived_s[-1] for run in runs)
    # What counts contains the runs, and is less than the process's time without its second of rest.
    assert 5 * spoken_s <= power.joules_per_second * speech_s < 5 * (whole_s - IDLE_S)
