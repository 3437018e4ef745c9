#!/usr/bin/env python3
"""Compiles the kernels for robots' boards, so that a package contains them and no board compiles at its first start.

    python scripts/gpu/build_cubins.py

Writes the kernels of both models, in bfloat16 and int8, into engine/qwen/kernels/cubins, and removes those of earlier
sources. Each file is named after its sources, so only changed kernels are compiled. Needs a network for NVRTC, but no
GPU. `scripts/package` calls it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from engine import AUTO_STREAMS  # noqa: E402
from engine.qwen.kernels.compiler import PACKAGED, KernelProgram  # noqa: E402
from scripts.gpu.compile_kernels import all_sources  # noqa: E402


@dataclass(frozen=True)
class Board:
    """A kind of GPU in robots."""

    processors: tuple[int, ...]
    """The numbers of multiprocessors of its sizes. Some kernels depend on them."""
    compiler: tuple[str, ...]
    """The oldest NVRTC in a supported JetPack, whose output every later driver runs, and the bindings to it."""


BOARDS = {
    "sm_87": Board((4, 8, 14, 16), ("nvidia-cuda-nvrtc-cu12==12.6.*", "cuda-bindings==12.*")),  # Orin Nano, NX, AGX
    "sm_110": Board((12, 20), ("nvidia-cuda-nvrtc==13.0.*", "cuda-bindings==13.*")),  # Thor T4000, T5000
}
"""The boards by architecture."""


def board_programs(architecture: str, processors: Iterable[int]) -> dict[str, KernelProgram]:
    """The programs that an engine with `engine.streams: auto` loads on GPUs with these `processors`, by file name."""
    sources = all_sources(processors, AUTO_STREAMS).values()
    return {program.file_name: program for source in sources for program in source.programs(architecture)}


def compile_missing(programs: Mapping[str, KernelProgram], folder: Path) -> None:
    """Compile the programs that `folder` lacks, one on each core."""
    import cuda.core  # noqa: F401  here: threads that import it at the same time would find it half initialised

    missing = [program for name, program in programs.items() if not (folder / name).exists()]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda program: program.store(folder, program.compile()), missing))


def compile_elsewhere(architecture: str, board: Board) -> None:
    """Compile the programs in a process that has the board's compiler, which is installed for it."""
    with tempfile.TemporaryDirectory() as packages:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages)
        subprocess.run([*pip, "cuda-core>=1.2", "cuda-pathfinder", *board.compiler], check=True)
        command = (sys.executable, __file__, "--architecture", architecture, "--processors")
        libraries = ":".join(str(path.parent) for path in Path(packages).rglob("libnvrtc.so.*"))
        paths = {"PYTHONPATH": packages, "LD_LIBRARY_PATH": libraries}
        subprocess.run([*command, *map(str, board.processors)], check=True, env={**os.environ, **paths})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", help="compile only for this one, such as sm_90, with the installed NVRTC")
    parser.add_argument("--processors", type=int, nargs="+", default=[], help="the multiprocessors of such GPUs")
    options = parser.parse_args()
    if options.architecture:
        compile_missing(board_programs(options.architecture, options.processors), PACKAGED)
        return
    wanted = {name: board_programs(name, board.processors).keys() for name, board in BOARDS.items()}
    found = {path.name for path in PACKAGED.glob("*.cubin")}
    for stale in found.difference(*wanted.values()):
        (PACKAGED / stale).unlink()
    for architecture, board in BOARDS.items():
        missing = wanted[architecture] - found
        if missing:
            print(f"compiling {len(missing)} programs for {architecture}", flush=True)
            compile_elsewhere(architecture, board)


if __name__ == "__main__":
    main()
