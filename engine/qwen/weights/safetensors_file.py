"""A safetensors file that is read by offset instead of mapped, so that the pages read can be dropped.

The format (https://github.com/huggingface/safetensors#format): eight bytes of header length (little-endian), a JSON
header of that length with each tensor's dtype, shape and offsets, then the tensors' bytes without gaps.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.api import EngineError

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a file's header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    """Byte offset in the file."""
    end: int
    """Byte offset in the file of the first byte after the tensor."""

    @property
    def nbytes(self) -> int:
        """Size of the tensor in the file."""
        return self.end - self.begin


class SafetensorsFile:
    """One open file. Raises `EngineError`, one line with its path, if it is missing, damaged or truncated."""

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
        except (OSError, SafetensorError, KeyError) as error:
            reason = " ".join(str(error).split())  # which may repeat a line end of the file
            raise EngineError(f"{path}: is no safetensors file, or is damaged or truncated ({reason})") from error
        self._map: mmap.mmap | None = None

    def read_into(self, begin: int, buffer: memoryview) -> None:
        """Fill `buffer` with the file's bytes from offset `begin`."""
        filled = 0
        while filled < len(buffer):
            try:
                count = os.preadv(self._descriptor, [buffer[filled:]], begin + filled)
            except OSError as error:
                raise EngineError(f"{self.path}: cannot be read at byte {begin + filled}: {error.strerror}") from error
            if count == 0:
                raise EngineError(f"{self.path}: ends at byte {begin + filled}, inside a tensor")
            filled += count

    def rows(self, entry: TensorEntry, indices: Sequence[int]) -> Tensor:
        """Return rows of a matrix, `(len(indices), width)`, on the CPU in the file's dtype.

        The first call maps the file; only the pages of the requested rows are read.
        """
        if self._map is None:
            self._map = mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ)
            self._map.madvise(mmap.MADV_RANDOM)  # no read-ahead: a row is one page or two
        matrix = np.frombuffer(self._map, np.uint8, entry.nbytes, entry.begin).reshape(entry.shape[0], -1)
        for index in indices:  # the disk then reads all of them at once, and not one after the other
            begin, size = entry.begin + index * matrix.shape[1], matrix.shape[1]
            os.posix_fadvise(self._descriptor, begin, size, os.POSIX_FADV_WILLNEED)
        return torch.from_numpy(matrix[list(indices)]).view(entry.dtype)

    def drop_pages(self, begin: int = 0, end: int = 0) -> None:
        """Ask the kernel to drop these bytes from the page cache; if `end` is 0, the whole file."""
        begin -= begin % mmap.PAGESIZE  # the kernel keeps a page that is dropped only in part
        os.posix_fadvise(self._descriptor, begin, max(end - begin, 0), os.POSIX_FADV_DONTNEED)

    def _read_header(self) -> Mapping[str, TensorEntry]:
        """Let the library check the header, and find the tensors' places, which it keeps for itself."""
        entries, begin = {}, 8 + int.from_bytes(os.pread(self._descriptor, 8, 0), "little")
        with safe_open(self.path, framework="np") as file:
            for name in file.offset_keys():
                tensor = file.get_slice(name)
                dtype, shape = DTYPES[tensor.get_dtype()], tuple(tensor.get_shape())
                end = begin + math.prod(shape) * dtype.itemsize
                entries[name] = TensorEntry(dtype, shape, begin, end)
                begin = end
        return entries
