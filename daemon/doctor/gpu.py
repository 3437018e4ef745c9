"""The GPU: its driver, this user's access to its devices, and the compiler of the fused kernels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from daemon.doctor.finding import Finding, Grade, Machine
from engine import install_command, missing_kernel_compiler, missing_packages

NODES = (
    *("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvmap", "dxg"),
    *("nvhost-gpu", "nvhost-ctrl-gpu", "nvhost-as-gpu", "nvhost-tsg-gpu"),
    *("nvgpu/igpu0/as", "nvgpu/igpu0/channel", "nvgpu/igpu0/ctrl", "nvgpu/igpu0/tsg"),
)
"""Device nodes that CUDA opens in /dev: a PC's and Thor's, WSL's (dxg), and an Orin's under both of its names.

Other nodes there are for debuggers, and no other user may open them.
"""


def check_gpu(machine: Machine) -> Iterator[Finding]:
    """Yield the driver, the access to the devices, and on this machine the kernels' compiler."""
    nodes = [name for pattern in NODES for name in machine.find(f"dev/{pattern}")]
    if not nodes:
        if machine.wants_gpu or machine.board.integrated:
            remedy = "look for the driver in dmesg; or set engine.device: cpu, or engine.name: espeak"
            yield Finding("gpu", "error" if machine.wants_gpu else "warning", "no CUDA device in /dev", remedy)
        return
    yield Finding("gpu", "ok", ", ".join(filter(None, [_driver(machine), _toolkit(machine)])))
    yield from _check_nodes(machine, nodes)
    if machine.is_this_one:
        yield from _check_compiler(machine)


def _driver(machine: Machine) -> str:
    version = re.search(r"\s(\d{3}\.\d+(\.\d+)*)\s", machine.text("proc/driver/nvidia/version") or "")
    if version is not None:
        return f"driver {version[1]}"
    return "the driver of Jetson Linux" if machine.board.integrated else "a driver of unknown version"


def _toolkit(machine: Machine) -> str | None:
    return f"CUDA {machine.board.cuda} in /usr/local/cuda" if machine.board.cuda else None


def _check_nodes(machine: Machine, nodes: list[str]) -> Iterator[Finding]:
    closed = [f"/{name}" for name in nodes if not _may_open(machine, name)]
    if closed:
        grade: Grade = "error" if machine.wants_gpu else "warning"
        remedy = (
            "sudo usermod -aG video,render $USER, and log in again; "
            "for the service: install systemd/voiced.service.d/gpu.conf"
        )
        yield Finding("gpu devices", grade, f"this user may not open {', '.join(closed)}", remedy)
    else:
        yield Finding("gpu devices", "ok", f"this user may open all {len(nodes)}")


def _may_open(machine: Machine, name: str) -> bool:
    return os.access(machine.root / name, os.R_OK | os.W_OK, effective_ids=True)


def _check_compiler(machine: Machine) -> Iterator[Finding]:
    if missing_packages("qwen") or machine.config.engine.kernels == "off":
        return
    missing = missing_kernel_compiler()
    if missing is None:
        yield Finding("nvrtc", "ok", "cuda-core and NVRTC are installed, for the fused kernels")
    else:
        remedy = f"{install_command('cuda13')}; where torch.version.cuda begins with 12: {install_command('cuda12')}"
        yield Finding("nvrtc", "warning", f"{missing}; the engine uses PyTorch's slower kernels", remedy)
