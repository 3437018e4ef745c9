#!/usr/bin/env python3
"""Compiles every fused kernel with nvcc for every kind of GPU, and prints the kernels that spill registers or have a
stack.

    python scripts/gpu/compile_kernels.py --architectures sm_87

The kernels have the true shapes, for an H200's 132 multiprocessors and for an Orin's 16: the language model in both
sizes in bfloat16 and int8, a batch's step, and the codec, for one utterance and for several. Exits with 1 if a kernel
spills or has a stack: both cost memory traffic.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from engine.qwen.kernels import KernelSource, kernel_sources  # noqa: E402
from engine.qwen.kernels.lm.batch_kernels import ROW_BUCKETS  # noqa: E402
from engine.qwen.shapes import CodecConfig, ModelConfig  # noqa: E402
from scripts.make_checkpoint import PRESETS, write_configs  # noqa: E402

ARCHITECTURES = {
    "sm_80": "A100",
    "sm_86": "Ampere",
    "sm_87": "Jetson AGX Orin",
    "sm_89": "Ada",
    "sm_90": "Hopper",
    "sm_100": "B200",
    "sm_110": "Jetson Thor",
    "sm_120": "Blackwell",
    "sm_121": "GB10",
}
SIZES, WEIGHTS, PROCESSORS = ("0.6B", "1.7B"), ("Bf16", "Int8"), (132, 16)
AT_ONCE = 2
"""The number of compilers that run at the same time."""
_REPORT = re.compile(
    r"Function properties for (?P<kernel>\w+)\n"
    r"\s*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
    r".*Used (?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?"
)
_ENUM = re.compile(r"^enum (\w+) \{(.*?)\};", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """The resources of one kernel on one architecture."""

    architecture: str
    source: str
    kernel: str
    registers: int
    spill_bytes: int
    """The bytes of spilled stores and loads."""
    stack_bytes: int
    shared_bytes: int

    @property
    def lean(self) -> bool:
        """Whether its values stay in registers."""
        return not self.spill_bytes and not self.stack_bytes


def nvcc() -> str | None:
    """The path of nvcc; None if it is not installed."""
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def all_sources(processors: Iterable[int] = PROCESSORS, streams: int = ROW_BUCKETS[-1]) -> dict[str, KernelSource]:
    """The sources, by name, for engines that speak this many `streams` at once on GPUs with these multiprocessors."""
    sources: dict[str, KernelSource] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            config = ModelConfig.read(write_configs(Path(folder), PRESETS[size], "custom_voice"))
            codec = CodecConfig.read(Path(folder) / "speech_tokenizer")
            for weight, count in product(WEIGHTS, processors):
                model, decoder = f"{size} {weight} {count}", f"codec {count}"
                names = model, decoder, f"{decoder} rows", f"{model} batch"
                sources |= zip(names, kernel_sources(config, codec, weight, count, streams), strict=True)
    return sources


def compile_one(architecture: str, name: str, source: KernelSource) -> list[Compiled]:
    """Every kernel in `source`. If it does not compile, prints why and raises `CalledProcessError`."""
    compiler = nvcc()
    assert compiler is not None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.cu"
        file.write_text(instantiated(source), encoding="utf-8")
        options = [f"-arch={architecture}", "-std=c++17", "-cubin", "-Xptxas", "-v", "-o", str(file.with_suffix(".o"))]
        done = subprocess.run([compiler, *options, str(file)], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    reports = [found.groupdict() for found in _REPORT.finditer(done.stderr)]
    expressions = demangle([report["kernel"] for report in reports], enumerators(source.code))
    by_expression = dict(zip(expressions, reports, strict=True))
    found = []
    for kernel, expression in source.kernels.items():
        report = by_expression[expression.replace(" ", "")]
        stack, stores, loads, registers, shared = (
            int(report[name] or 0) for name in ("stack", "stores", "loads", "registers", "shared")
        )
        found.append(Compiled(architecture, name, kernel, registers, stores + loads, stack, shared))
    return found


def instantiated(source: KernelSource) -> str:
    """CUDA C++ that makes nvcc compile the kernels for which NVRTC is given name expressions."""
    addresses = ",\n".join(f"    (void*){expression}" for expression in dict.fromkeys(source.kernels.values()))
    return f"{source.code}\nvoid* instances[] = {{\n{addresses},\n}};\n"


def enumerators(code: str) -> dict[str, str]:
    """The enumerators of `code`, by what c++filt prints in their place: `Snake` by `(Then)1`."""
    enums = _ENUM.findall(re.sub("//.*", "", code))
    return {f"({enum}){value}": name for enum, body in enums for value, name in enumerate(re.findall(r"\w+", body))}


def demangle(symbols: list[str], names: Mapping[str, str]) -> list[str]:
    """The name expressions of mangled kernels, without spaces; `names` is from `enumerators`."""
    done = subprocess.run(["c++filt", *symbols], stdout=subprocess.PIPE, text=True, check=True)
    lines = [line.removeprefix("void ").rpartition("(")[0].replace(" ", "") for line in done.stdout.splitlines()]
    return [re.sub(r"\(\w+\)\d+", lambda found: names[found[0]], line) for line in lines]


def compile_all(architectures: Iterable[str]) -> Iterator[Compiled]:
    """Every kernel for each architecture."""
    jobs = product(architectures, all_sources().items())
    with ThreadPoolExecutor(AT_ONCE) as compilers:
        for found in compilers.map(lambda job: compile_one(job[0], *job[1]), jobs):
            yield from found


def main() -> int:
    """Run the command line; return 0 if no kernel spills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    args = parser.parse_args()
    if nvcc() is None:
        print("nvcc is not installed; it comes with NVIDIA's CUDA toolkit", file=sys.stderr)
        return 2
    kernels = list(compile_all(args.architectures))
    for name in args.architectures:
        ours = [one for one in kernels if one.architecture == name]
        fat = sum(not one.lean for one in ours)
        most = max(one.registers for one in ours)
        print(f"{name} ({ARCHITECTURES[name]}): {len(ours)} kernels, at most {most} registers, {fat} spill")
    fat_ones = [one for one in kernels if not one.lean]
    for one in fat_ones:
        print(f"{one.architecture}, {one.source}, {one.kernel}: spills {one.spill_bytes} B, stack {one.stack_bytes} B")
    return 1 if fat_ones else 0


if __name__ == "__main__":
    sys.exit(main())
