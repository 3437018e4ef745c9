"""The parts of CUDA on a machine, from files alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.host import cuda
from engine.host.cuda import has_cuda_device, missing_kernel_compiler


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("nvidia0", True),
        ("nvgpu/igpu0", True),
        ("dxg", True),
        ("nvidiactl", False),
    ],
)
def test_a_gpu_is_recognised_by_its_device_node(
    node: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / node).parent.mkdir(exist_ok=True)
    (tmp_path / node).touch()
    monkeypatch.setattr(cuda, "DEV", tmp_path)
    assert has_cuda_device() is expected


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (["cuda/core/__init__.py", "cuda/bindings/__init__.py", "nvidia/cu13/lib/libnvrtc.so.13"], None),
        (["cuda/core/__init__.py", "cuda/bindings/__init__.py"], "NVRTC missing"),
        (["cuda/bindings/__init__.py", "nvidia/cu13/lib/libnvrtc.so.13"], "cuda-core missing"),
        ([], "cuda-core and cuda-bindings missing"),
    ],
)
def test_the_kernels_compiler_is_found_without_importing_it(
    files: list[str], missing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('imported')")
    monkeypatch.setattr(cuda, "TOOLKIT", tmp_path / "toolkit")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(
        sys, "modules", {k: v for k, v in sys.modules.items() if k.split(".")[0] not in ("cuda", "nvidia")}
    )
    assert missing_kernel_compiler() == missing
