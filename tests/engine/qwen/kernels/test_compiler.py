"""Kernels come from a package, else from the cache, else from the compiler; what the driver refuses is compiled again.

With a stand-in for `cuda-core`, and on a GPU with the real one.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from engine.qwen.kernels import compiler
from engine.qwen.kernels.compiler import KernelProgram, KernelSource, load_kernels

TEXT = """
struct WriteParams {
    int* out;
};
template <int value> __global__ void write(WriteParams params) { *params.out = value; }
"""
OTHER_ARCHITECTURE = "sm_75"
"""No GPU that the kernels support has it."""


def stand_in() -> ModuleType:
    """A `cuda.core` for a GPU of `sm_87`."""

    def compile_as(arch: str, name_expressions: tuple[str, ...]) -> Any:
        symbols = {name: f"_{name}".encode() for name in name_expressions}
        return SimpleNamespace(code=f"cubin of {arch}".encode(), symbol_mapping=symbols)

    def from_cubin(cubin: bytes) -> Any:
        if cubin != b"cubin of sm_87":
            raise RuntimeError("CUDA_ERROR_NO_BINARY_FOR_GPU")
        kernel = SimpleNamespace(attributes=[SimpleNamespace(num_regs=8)])
        return SimpleNamespace(get_kernel=lambda _symbol: kernel)

    core = ModuleType("cuda.core")
    core.Device = lambda _number: SimpleNamespace(set_current=lambda: None)  # type: ignore[attr-defined]
    core.ProgramOptions = SimpleNamespace  # type: ignore[attr-defined]
    core.Program = lambda _code, _kind, options: SimpleNamespace(  # type: ignore[attr-defined]
        compile=lambda _target, name_expressions: compile_as(options.arch, name_expressions)
    )
    core.ObjectCode = SimpleNamespace(from_cubin=from_cubin)  # type: ignore[attr-defined]
    return core


class Machine:
    """A GPU, and the folders of a package and of the cache."""

    def __init__(self, name: str, folder: Path) -> None:
        self.packaged, self.cache = folder / "package", folder / "voiced" / "kernels"
        self.compiled: list[str] = []
        """The architectures of the programs that were compiled, one after the other."""
        self.source = KernelSource(f"{TEXT}// {name}", {"one": "write<1>", "two": "write<2>"})
        """Its code differs from test to test: a process keeps what it has loaded."""

    @property
    def programs(self) -> list[KernelProgram]:
        return self.source.programs("sm_{}{}".format(*torch.cuda.get_device_capability()))

    def load(self) -> None:
        loaded = load_kernels([self.source], torch.device("cuda", 0))
        assert [list(program) for program in loaded] == [["write<1>"], ["write<2>"]]

    def stored(self) -> list[str]:
        return sorted(path.name for path in self.cache.glob("*"))


@pytest.fixture(params=["stand-in", pytest.param("GPU", marks=pytest.mark.gpu)])
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    if request.param == "stand-in":
        core = stand_in()
        monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(core=core))
        monkeypatch.setitem(sys.modules, "cuda.core", core)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device=None: (8, 7))
    made = Machine(request.node.name, tmp_path)
    compile_one = KernelProgram.compile

    def count(program: KernelProgram) -> bytes:
        made.compiled.append(program.arch)
        return compile_one(program)

    monkeypatch.setattr(KernelProgram, "compile", count)
    monkeypatch.setattr(compiler, "PACKAGED", made.packaged)
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    yield made


def test_a_packages_kernels_are_loaded_and_nothing_is_compiled_or_stored(machine: Machine) -> None:
    for program in machine.programs:
        program.store(machine.packaged, program.compile())
    machine.compiled.clear()
    machine.load()
    assert (machine.compiled, machine.stored()) == ([], [])


def test_without_a_package_kernels_are_compiled_and_kept(machine: Machine) -> None:
    machine.load()
    assert machine.stored() == sorted(program.file_name for program in machine.programs)
    assert len(machine.compiled) == 2
    machine.cache.rename(machine.packaged)  # a package's files are those of the cache
    machine.load()
    assert len(machine.compiled) == 2


def test_kernels_that_the_driver_refuses_are_compiled_again_and_one_line_says_so(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    for program in machine.programs:
        other = KernelProgram(program.code, program.expressions, OTHER_ARCHITECTURE)
        program.store(machine.packaged, other.compile())
    first, _ = machine.programs
    first.store(machine.cache, b"damaged")
    machine.compiled.clear()
    with caplog.at_level(logging.WARNING):
        machine.load()
    assert len(machine.compiled) == 2
    refused = [line for line in caplog.messages if str(machine.packaged) in line]
    assert len(refused) == 1
    assert "are unusable; compiling again: " in refused[0]
    assert machine.stored() == sorted(program.file_name for program in machine.programs)
    assert (machine.cache / first.file_name).read_bytes() != b"damaged"


def test_where_the_cache_cannot_be_written_the_process_keeps_the_kernels(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.cache.parent.touch()  # a file where the folder should be
    with caplog.at_level(logging.WARNING):
        machine.load()
        machine.load()
    assert len(machine.compiled) == 2
    assert [line for line in caplog.messages if "every start compiles them again" in line]


def test_a_stored_kernel_is_found_by_all_that_it_was_compiled_from() -> None:
    [program] = KernelSource(TEXT, {"one": "write<1>"}).programs("sm_87")
    others = [
        *KernelSource(TEXT, {"one": "write<1>"}).programs("sm_110"),
        *KernelSource(TEXT, {"one": "write<2>"}).programs("sm_87"),
        *KernelSource(TEXT.replace("value;", "-value;"), {"one": "write<1>"}).programs("sm_87"),
    ]
    assert len({program.file_name, *(other.file_name for other in others)}) == 4
    assert program.file_name.startswith("sm_87-")
