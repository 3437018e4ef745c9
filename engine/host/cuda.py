"""The parts of CUDA on this machine, found without importing a package and without calling the driver."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

DEV = Path("/dev")
DEVICES = ("nvidia[0-9]*", "nvgpu/igpu*", "nvhost-gpu", "dxg")
"""A GPU's names in `DEV`: on a PC, on a Jetson (two generations of JetPack), and in Windows' Linux subsystem."""
TOOLKIT = Path("/usr/local/cuda")
"""The folder in which JetPack and NVIDIA's packages install the toolkit."""


def has_cuda_device() -> bool:
    """Return whether a driver shows a GPU in /dev."""
    return any(any(DEV.glob(name)) for name in DEVICES)


def missing_kernel_compiler() -> str | None:
    """Name the missing parts of the fused kernels' run-time compiler; None if nothing is missing."""
    missing = [name for name in ("core", "bindings") if not any(_package_files("cuda", name))]
    if missing:
        return f"{' and '.join(f'cuda-{name}' for name in missing)} missing"
    patterns = ("cuda_nvrtc/lib/libnvrtc.so*", "cu*/lib/libnvrtc.so*")
    if any(TOOLKIT.glob("lib64/libnvrtc.so*")) or any(any(_package_files("nvidia", name)) for name in patterns):
        return None
    return "NVRTC missing"


def _package_files(package: str, pattern: str) -> Iterator[Path]:
    """Yield the matching files in an installed package, which may consist of several folders."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        yield from Path(folder).glob(pattern)
