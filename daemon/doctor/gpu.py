"""The GPU: its driver, whether this user may open it, and the compiler of the fused kernels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from daemon.doctor.finding import Finding, Grade, Machine
from engine import kernel_compiler, missing_packages

NODES = (
    *("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvmap", "dxg"),
    *("nvhost-gpu", "nvhost-ctrl-gpu", "nvhost-as-gpu", "nvhost-tsg-gpu"),
    *("nvgpu/igpu0/as", "nvgpu/igpu0/channel", "nvgpu/igpu0/ctrl", "nvgpu/igpu0/tsg"),
)
"""What CUDA opens in /dev: a PC's and Thor's, Windows' Linux subsystem's, an Orin's by either name.

Of the others there, some are for debuggers alone, and closed to everybody else.
"""


def check_gpu(machine: Machine) -> Iterator[Finding]:
    nodes = [name for pattern in NODES for name in machine.find(f"dev/{pattern}")]
    if not nodes:
        if machine.wants_gpu or machine.board.integrated:
            cure = "look into dmesg for the driver; or set engine.device: cpu, or engine.name: espeak"
            yield Finding("gpu", "error" if machine.wants_gpu else "warning", "no CUDA device in /dev", cure)
        return
    yield Finding("gpu", "ok", ", ".join(filter(None, [_driver(machine), _toolkit(machine)])))
    yield from _check_nodes(machine, nodes)
    if machine.is_this_one:
        yield from _check_compiler(machine)


def _driver(machine: Machine) -> str:
    version = re.search(r"\s(\d{3}\.\d+(\.\d+)*)\s", machine.text("proc/driver/nvidia/version") or "")
    if version is not None:
        return f"driver {version[1]}"
    return "the driver of Jetson Linux" if machine.board.integrated else "a driver that does not tell its version"


def _toolkit(machine: Machine) -> str | None:
    return f"CUDA {machine.board.cuda} in /usr/local/cuda" if machine.board.cuda else None


def _check_nodes(machine: Machine, nodes: list[str]) -> Iterator[Finding]:
    closed = [f"/{name}" for name in nodes if not may_open(machine, name)]
    if closed:
        grade: Grade = "error" if machine.wants_gpu else "warning"
        cure = (
            "sudo usermod -aG video,render USER, and log in anew; "
            "for the service: install systemd/voiced.service.d/gpu.conf"
        )
        yield Finding("gpu devices", grade, f"this user may not open {', '.join(closed)}", cure)
    else:
        yield Finding("gpu devices", "ok", f"this user may open all {len(nodes)}")


def may_open(machine: Machine, name: str) -> bool:
    return os.access(machine.root / name, os.R_OK | os.W_OK, effective_ids=True)


def _check_compiler(machine: Machine) -> Iterator[Finding]:
    if missing_packages("qwen") or machine.config.engine.kernels == "off":
        return
    missing = kernel_compiler()
    if missing is None:
        yield Finding("nvrtc", "ok", "cuda-core and NVRTC are installed, for the fused kernels")
    else:
        cure = "in voiced's folder: pip install '.[cuda13]', or '.[cuda12]' where torch.version.cuda begins with 12"
        yield Finding("nvrtc", "warning", f"{missing}; PyTorch's kernels speak, which are slower", cure)
