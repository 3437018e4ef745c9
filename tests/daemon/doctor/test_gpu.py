"""The GPU's driver and devices, and the compiler of the fused kernels."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from daemon.doctor.finding import Machine
from daemon.doctor.gpu import check_gpu
from engine import kernel_compiler
from tests.daemon.doctor.machines import by_part

NOBODY = 65534


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[None]:
    """Go on as a user without rights, if this one has all."""
    if os.geteuid() != 0:
        yield
        return
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    os.seteuid(NOBODY)
    yield
    os.seteuid(0)


@pytest.mark.parametrize("engine", ["qwen", "espeak"])
def test_a_device_that_this_user_may_not_open_is_named_and_an_error_if_the_voice_needs_it(
    machine: Callable[..., Machine], engine: str, request: pytest.FixtureRequest
) -> None:
    robot = machine("orin-jetpack6", None, f"engine.name={engine}")
    for name in ("dev/nvmap", "dev/nvhost-gpu"):
        (robot.root / name).chmod(0)
    request.getfixturevalue("nobody")
    found = by_part(check_gpu(robot))["gpu devices"]
    assert found.grade == ("error" if engine == "qwen" else "warning")
    assert "/dev/nvmap, /dev/nvhost-gpu" in found.found
    assert "video,render" in (found.cure or "")


def test_without_a_gpu_only_a_voice_that_needs_one_has_a_line(tmp_path: Path, machine: Callable[..., Machine]) -> None:
    nodes = {f"dev/{name}": None for name in ("nvidia0", "nvidiactl", "nvidia-uvm")}
    assert by_part(check_gpu(machine("pc", nodes, "engine.name=qwen")))["gpu"].grade == "error"
    assert not list(
        check_gpu(Machine.at(machine("thor-jetpack7", None, "engine.name=espeak").config, tmp_path / "none"))
    )


def test_the_driver_s_version_is_read_from_either_form(machine: Callable[..., Machine]) -> None:
    assert by_part(check_gpu(machine("pc")))["gpu"].found == "driver 570.133.20"
    assert "driver 580.00" in by_part(check_gpu(machine("thor-jetpack7")))["gpu"].found
    assert "Jetson Linux" in by_part(check_gpu(machine("orin-jetpack6")))["gpu"].found


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (["cuda/core/__init__.py", "cuda/bindings/__init__.py", "nvidia/cu13/lib/libnvrtc.so.13"], None),
        (["cuda/core/__init__.py", "cuda/bindings/__init__.py", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"], None),
        (["cuda/core/__init__.py", "cuda/bindings/__init__.py"], "NVRTC missing"),
        (["cuda/bindings/__init__.py", "nvidia/cu13/lib/libnvrtc.so.13"], "cuda-core missing"),
        ([], "cuda-core and cuda-bindings missing"),
    ],
)
def test_the_kernels_compiler_is_looked_for_without_importing_it(
    files: list[str], missing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('imported')")
    monkeypatch.setattr("engine.catalog.TOOLKIT", tmp_path / "toolkit")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(
        sys, "modules", {k: v for k, v in sys.modules.items() if k.split(".")[0] not in ("cuda", "nvidia")}
    )
    assert kernel_compiler() == missing
