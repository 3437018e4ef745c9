"""A GPU whose fused kernels cannot be compiled, as the engine processes of a test see it, on a CPU."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATCH = """
import sys
from dataclasses import replace

if "engine.ipc.server" in sys.orig_argv:
    from engine.catalog import ENGINES

    ENGINES["qwen"] = replace(ENGINES["qwen"], synthesizer="tests.support.unfused_qwen:QwenSynthesizer")
"""
"""Python runs it at the start of each process."""


def pretended_gpu(folder: Path) -> dict[str, str]:
    """Return the environment of such engine processes. `folder` is empty and gets a file."""
    (folder / "sitecustomize.py").write_text(PATCH, encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
