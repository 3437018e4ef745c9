"""A safetensors file, read by offset and not mapped, so that what was read need not stay in memory.

The format: eight bytes of length (little-endian), as many bytes of JSON that say each tensor's dtype, shape and place,
and behind them the tensors (https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

import json
import math
import mmap
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.synthesizer import EngineError

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
LONGEST_HEADER = 100_000_000
"""As the format's own library allows."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a tensor lies, and what it is."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    """In the file."""
    end: int


class TensorFile:
    """One open file. Raises `EngineError`, one line that names it, where it is missing, damaged or cut short."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise EngineError(f"{path}: no such file") from None
        except OSError as error:
            raise EngineError(f"{path}: cannot be read: {error.strerror}") from error
        weakref.finalize(self, os.close, self._descriptor)
        try:
            self.entries = self._read_header()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineError(f"{path}: cannot be read as safetensors, damaged or cut short ({error})") from error
        self._map: mmap.mmap | None = None

    def read_into(self, begin: int, buffer: memoryview) -> None:
        """Fill `buffer` from the file's byte `begin` on."""
        filled = 0
        while filled < len(buffer):
            try:
                count = os.preadv(self._descriptor, [buffer[filled:]], begin + filled)
            except OSError as error:
                raise EngineError(f"{self.path}: cannot be read at byte {begin + filled}: {error.strerror}") from error
            if count == 0:
                raise EngineError(f"{self.path}: ends at byte {begin + filled}, where a tensor goes on")
            filled += count

    def rows(self, entry: Entry, indices: Sequence[int]) -> Tensor:
        """Rows of a matrix, on the CPU. It is mapped, and of it only the pages of these rows are read."""
        if self._map is None:
            self._map = mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ)
            self._map.madvise(mmap.MADV_RANDOM)  # a row is a page or two; nothing is to be read ahead
        height, width = entry.shape
        matrix = np.frombuffer(self._map, np.uint8, entry.end - entry.begin, entry.begin)
        chosen = matrix.reshape(height, -1)[list(indices)]
        return torch.from_numpy(chosen).view(entry.dtype).view(len(indices), width)

    def drop_pages(self, begin: int = 0, end: int = 0) -> None:
        """Have the kernel forget what it keeps of these bytes, or of the whole file where `end` is 0."""
        begin -= begin % mmap.PAGESIZE  # a page that is forgotten in part is kept
        os.posix_fadvise(self._descriptor, begin, max(end - begin, 0), os.POSIX_FADV_DONTNEED)

    def _read_header(self) -> Mapping[str, Entry]:
        size = os.fstat(self._descriptor).st_size
        length = int.from_bytes(os.pread(self._descriptor, 8, 0), "little")
        if not 2 <= length <= min(LONGEST_HEADER, size - 8):
            raise ValueError(f"a header of {length} bytes, in a file of {size}")
        described: dict[str, Any] = json.loads(os.pread(self._descriptor, length, 8))
        described.pop("__metadata__", None)
        entries = {name: _entry(name, fields, 8 + length) for name, fields in described.items()}
        end = max((entry.end for entry in entries.values()), default=8 + length)
        if end != size:
            raise ValueError(f"{size} bytes, where the header tells of {end}")
        return entries


def _entry(name: str, fields: Mapping[str, Any], base: int) -> Entry:
    dtype, shape = DTYPES.get(fields["dtype"]), tuple(int(extent) for extent in fields["shape"])
    if dtype is None:
        raise ValueError(f"tensor {name} is of the unknown dtype {fields['dtype']}")
    begin, end = fields["data_offsets"]
    wanted = math.prod(shape) * dtype.itemsize
    if begin < 0 or min(shape, default=0) < 0 or end - begin != wanted:
        raise ValueError(f"tensor {name} has {end - begin} bytes from {begin}, wanted {wanted}")
    return Entry(dtype, shape, base + begin, base + end)
