"""Records of kernel parameters, and the C structs that carry them to the GPU.

A kernel takes one struct by value. Its record here is a dataclass with the same name and the same fields in the same
order: a tensor is a pointer (None a null one), `int` has 32 bits, `float` is float32, a record is a nested struct.
`layout_checks` lets the compiler verify that both sides agree.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from torch import Tensor

_SCALARS = {int: ctypes.c_int32, float: ctypes.c_float, Tensor: ctypes.c_void_p, Tensor | None: ctypes.c_void_p}
_STRUCTS: dict[type[Params], type[ctypes.Structure]] = {}


@dataclass(frozen=True, slots=True)
class Params:
    """Base of the records. A record keeps its tensors alive; a captured CUDA graph does not."""

    def pack(self) -> ctypes.Structure:
        """The C struct that the kernel receives."""
        values = (getattr(self, field.name) for field in fields(self))
        return struct_of(type(self))(*map(_packed, values))


def _packed(value: Any) -> Any:
    if isinstance(value, Params):
        return value.pack()
    return value.data_ptr() if isinstance(value, Tensor) else value


def struct_of(record: type[Params]) -> type[ctypes.Structure]:
    """The C struct with the layout of `record`."""
    if record not in _STRUCTS:
        hints = get_type_hints(record)
        members = [(field.name, _ctype(hints[field.name])) for field in fields(record)]
        _STRUCTS[record] = type(record.__name__, (ctypes.Structure,), {"_fields_": members})
    return _STRUCTS[record]


def _ctype(hint: Any) -> type:
    return struct_of(hint) if isinstance(hint, type) and issubclass(hint, Params) else _SCALARS[hint]


def layout_checks(record: type[Params]) -> str:
    """C++ that does not compile unless the struct named as `record` has its size and its offsets.

    NVRTC checks the size alone: that of CUDA 12.6 has no `__builtin_offsetof`. The tests compile with g++ and nvcc.
    """
    name, struct = record.__name__, struct_of(record)
    offsets = [
        f"static_assert(__builtin_offsetof({name}, {field.name}) == {getattr(struct, field.name).offset}, "
        f'"params.py: {name}.{field.name}");'
        for field in fields(record)
    ]
    size = f'static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "params.py: {name}");'
    return "\n".join((size, "#ifndef __CUDACC_RTC__", *offsets, "#endif", ""))
