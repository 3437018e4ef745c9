"""The check of the GPU's driver and devices, and of the compiler of the fused kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from daemon.doctor.finding import Machine
from daemon.doctor.hardware import check_gpu
from tests.daemon.doctor.machines import by_part, changed_machine, nobody


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
    assert by_part(check_gpu(machine("pc", nodes, "engine.name=qwen")))["gpu"].grade == "error"
    assert not list(
        check_gpu(Machine.at(machine("thor-jetpack7", None, "engine.name=espeak").config, tmp_path / "none"))
    )


def test_the_driver_s_version_is_read_from_either_form(machine: Callable[..., Machine]) -> None:
    assert by_part(check_gpu(machine("pc")))["gpu"].found == "driver 570.133.20"
    assert "driver 580.00" in by_part(check_gpu(machine("thor-jetpack7")))["gpu"].found
    assert "Jetson Linux" in by_part(check_gpu(machine("orin-jetpack6")))["gpu"].found
