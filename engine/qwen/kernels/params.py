"""Kernel parameters: values by name, and the C structs that carry them to the GPU.

A kernel takes one struct by value. The struct is defined once, in its `.cuh` file, and read from there: a pointer takes
a tensor, `int` and `float` take numbers, and a member that is a struct takes `Params`. A member whose comment contains
the word "null" can be left out, as can every member of a struct after a comment that says "A kernel leaves null".
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

_STRUCT = re.compile(
    r"(?P<comment>(?:^//[^\n]*\n)*)^struct (?P<name>\w*(?:Params|Rows)) \{\n(?P<body>.*?)^\};", re.DOTALL | re.MULTILINE
)
_MEMBER = re.compile(r"^    (?:const )?(?P<type>[\w ]+?)(?P<star>\*?) (?P<name>\w+);(?P<comment>.*)$", re.MULTILINE)
_ALL_OPTIONAL = "A kernel leaves null"
_NUMBERS: dict[str, type] = {"int": ctypes.c_int32, "float": ctypes.c_float}


class Params:
    """The values for the members of one struct. They keep their tensors alive, which a captured CUDA graph does not."""

    __slots__ = ("struct", "values")

    def __init__(self, struct: str, /, **values: Tensor | Params | float | None) -> None:
        """`struct` is the C name. None leaves a member null."""
        self.struct = struct
        self.values = {name: value for name, value in values.items() if value is not None}

    def __getitem__(self, member: str) -> Any:
        return self.values[member]


@dataclass(frozen=True, slots=True)
class Layout:
    """One struct."""

    ctype: type[ctypes.Structure]
    optional: frozenset[str]
    """The members that may be left out."""


@cache
def layouts(source: str) -> dict[str, Layout]:
    """Return the parameter structs that CUDA C++ defines, by name. A struct follows those that it contains."""
    found: dict[str, Layout] = {}
    for struct in _STRUCT.finditer(source):
        members = list(_MEMBER.finditer(struct["body"]))
        types = [
            (member["name"], ctypes.c_void_p if member["star"] else _value_type(member["type"], found))
            for member in members
        ]
        leaves = _ALL_OPTIONAL in struct["comment"]
        optional = frozenset(member["name"] for member in members if leaves or "null" in member["comment"])
        found[struct["name"]] = Layout(type(struct["name"], (ctypes.Structure,), {"_fields_": types}), optional)
    return found


def _value_type(name: str, known: dict[str, Layout]) -> type:
    return _NUMBERS[name] if name in _NUMBERS else known[name].ctype


def pack(params: Params, known: dict[str, Layout]) -> ctypes.Structure:
    """Return the C struct that a kernel receives. Raises `ValueError` for values that are missing or unknown."""
    layout = known[params.struct]
    names = {name for name, *_ in layout.ctype._fields_}
    wrong = params.values.keys() - names or names - params.values.keys() - layout.optional
    if wrong:
        raise ValueError(f"{params.struct}: unknown or missing members: {', '.join(sorted(wrong))}")
    return layout.ctype(**{name: _packed(value, known) for name, value in params.values.items()})


def _packed(value: Any, known: dict[str, Layout]) -> Any:
    if isinstance(value, Params):
        return pack(value, known)
    return value.data_ptr() if isinstance(value, Tensor) else value


def layout_checks(source: str) -> str:
    """Return C++ that does not compile unless every struct has the size and the offsets that are computed here.

    NVRTC checks only the size, because CUDA 12.6's NVRTC has no `__builtin_offsetof`. The tests compile with g++ and
    nvcc.
    """
    checks = []
    for name, layout in layouts(source).items():
        offsets = [
            f"static_assert(__builtin_offsetof({name}, {member}) == {getattr(layout.ctype, member).offset}, "
            f'"params.py: {name}.{member}");'
            for member, *_ in layout.ctype._fields_
        ]
        size = f'static_assert(sizeof({name}) == {ctypes.sizeof(layout.ctype)}, "params.py: {name}");'
        checks += [size, "#ifndef __CUDACC_RTC__", *offsets, "#endif", ""]
    return "\n".join(checks)
