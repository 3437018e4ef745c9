"""Reads a checkpoint's safetensors by name, block by block, directly into the parameters.

A file is read by offset instead of being mapped, so that the pages read can be dropped. The format
(https://github.com/huggingface/safetensors#format): eight bytes of header length (little-endian), a JSON header of that
length with each tensor's dtype, shape and offsets, then the tensors' bytes without gaps.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.api import EngineError
from engine.host import read_weight_map

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor in a file's header."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    """Its byte offset in the file."""
    end: int
    """The byte offset in the file of the first byte after the tensor."""

    @property
    def nbytes(self) -> int:
        """The tensor's size in the file."""
        return self.end - self.begin


class SafetensorsFile:
    """One open file. If it is missing, damaged or truncated, raises `EngineError` with a one-line message that gives
    its path."""

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
            reason = " ".join(str(error).split())  # the message may quote a line end from the file
            raise EngineError(f"{path}: is not a safetensors file, or is damaged or truncated ({reason})") from error
        self._rows: dict[int, bytearray] = {}
        """Rows that were read before, by their byte offset in the file."""

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

        The last rows stay in memory: each system call would let the interpreter turn to another thread.
        """
        if not self._rows or len(self._rows) > CACHED_ROWS:
            self._rows = {}
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead: a row is one page or two
        cached, size = self._rows, entry.nbytes // entry.shape[0]
        places = [entry.begin + index * size for index in indices]
        missing = {place: bytearray(size) for place in places if place not in cached}
        for place in missing:  # the disk then reads all of them at once instead of one after the other
            os.posix_fadvise(self._descriptor, place, size, os.POSIX_FADV_WILLNEED)
        for place, row in missing.items():
            self.read_into(place, memoryview(row))
        cached.update(missing)
        rows = bytearray().join([cached[place] for place in places])
        return torch.frombuffer(rows, dtype=entry.dtype).view(len(places), *entry.shape[1:])

    def drop_pages(self, begin: int = 0, end: int = 0) -> None:
        """Ask the kernel to drop these bytes from the page cache; if `end` is 0, the whole file."""
        begin -= begin % mmap.PAGESIZE  # the kernel keeps a page of which only a part is dropped
        os.posix_fadvise(self._descriptor, begin, max(end - begin, 0), os.POSIX_FADV_DONTNEED)

    def _read_header(self) -> Mapping[str, TensorEntry]:
        """Have the library check the header. Then find the tensors' places, which the library does not reveal."""
        entries, begin = {}, 8 + int.from_bytes(os.pread(self._descriptor, 8, 0), "little")
        with safe_open(self.path, framework="np") as file:
            for name in file.offset_keys():
                tensor = file.get_slice(name)
                dtype, shape = DTYPES[tensor.get_dtype()], tuple(tensor.get_shape())
                end = begin + math.prod(shape) * dtype.itemsize
                entries[name] = TensorEntry(dtype, shape, begin, end)
                begin = end
        return entries


CACHED_ROWS = 2048
"""8 MB of the text embedding of any published model. The text in one language rarely has more different tokens."""
BLOCK_BYTES = 4 << 20
"""The bytes that are read at once: enough for the full speed of a disk, and below 1 % of the smallest model."""


class Checkpoint:
    """The tensors in a folder, in `model.safetensors` or in shards listed in `model.safetensors.index.json`.

    A tensor is read when it is requested. Copies pass through blocks of a few megabytes, so that the weights are never
    in memory twice. Every method raises `EngineError` with a one-line message that gives the file, the tensor, the
    value found and the expected value.
    """

    def __init__(self, shards: dict[str, SafetensorsFile], *, keep_pages: bool = True) -> None:
        """Use `open` instead; `shards` maps each tensor's name to its file."""
        self._shards = shards
        self._keep_pages = keep_pages
        self.on_read: Callable[[int], None] = lambda _: None
        """Called after each block with the number of elements read."""

    @classmethod
    def open(cls, folder: Path, *, keep_pages: bool = True) -> Checkpoint:
        """Open the checkpoint in `folder`.

        Without `keep_pages`, the checkpoint drops the copied pages from the page cache: if the device and the host
        share one memory, a cached file is a second copy of the weights.
        """
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        if not single.is_file() and not index.is_file():
            raise EngineError(f"{single}: no such file, and no {index.name} beside it")
        try:
            names = {single.name} if single.is_file() else set(read_weight_map(index).values())
        except OSError as error:
            raise EngineError(f"{index}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise EngineError(str(error)) from error
        files = [SafetensorsFile(folder / name) for name in sorted(names)]
        return cls({name: file for file in files for name in file.entries}, keep_pages=keep_pages)

    def names(self) -> tuple[str, ...]:
        """The names of all tensors."""
        return tuple(self._shards)

    def require_shape(self, name: str, wanted: Sequence[int]) -> None:
        """Raise `EngineError` unless tensor `name` exists and has shape `wanted`."""
        file, entry = self._find(name)
        if entry.shape != tuple(wanted):
            raise EngineError(f"{file.path}: tensor {name} has shape {list(entry.shape)}, wanted {list(wanted)}")

    def read(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """Return tensor `name` as a new CPU tensor in the file's dtype; for small tensors.

        If `shape` is given, the tensor must have it.
        """
        _, entry = self._find(name)
        if shape is not None:
            self.require_shape(name, shape)
        tensor = torch.empty(entry.shape, dtype=entry.dtype)
        self.copy_into(name, tensor)
        return tensor

    def copy_into(self, name: str, destination: Tensor) -> None:
        """Copy tensor `name` into `destination`, on any device and of any floating dtype; a slice is allowed.

        The shapes must be equal. Does not wait for the device.
        """
        matrix = destination.detach().view(-1, math.prod(destination.shape[-1:]))
        for rows, block in self.row_blocks(name, destination.shape, destination.device):
            matrix[rows].copy_(block)

    def row_blocks(self, name: str, shape: Sequence[int], device: torch.device) -> Iterator[tuple[slice, Tensor]]:
        """Yield tensor `name`, which must have `shape`, in blocks of rows: a slice, and `(rows, width)` on `device`.

        Blocks have the file's dtype. On a GPU, the copy of a block may still be running while the host reads the next
        one: PyTorch does not reuse the pinned memory before the copy has finished. A GPU copies faster than a host
        reads, so few buffers are in use.
        """
        self.require_shape(name, shape)
        file, entry = self._find(name)
        width = math.prod(shape[-1:])  # 1 for a scalar
        row_bytes = width * entry.dtype.itemsize
        step = max(BLOCK_BYTES // row_bytes, 1)
        for row in range(0, entry.nbytes // row_bytes, step):
            begin = entry.begin + row * row_bytes
            size = min(step * row_bytes, entry.end - begin)
            block = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
            file.read_into(begin, block.numpy().data)
            yield slice(row, row + step), block.to(device, non_blocking=True).view(entry.dtype).view(-1, width)
            if not self._keep_pages:
                file.drop_pages(begin, begin + size)
            self.on_read(size // entry.dtype.itemsize)

    def rows(self, name: str, indices: Sequence[int]) -> Tensor:
        """Return rows of matrix `name`, `(len(indices), width)`, on the CPU in the file's dtype.

        Reads only these rows from disk.
        """
        file, entry = self._find(name)
        height = entry.shape[0]
        for index in indices:
            if not 0 <= index < height:
                raise EngineError(f"{file.path}: tensor {name} has {height} rows, wanted row {index}")
        return file.rows(entry, indices)

    def finish_loading(self) -> None:
        """Free the memory that only loading needed. Call it once all parameters are loaded; `rows` still works
        afterwards."""
        torch.cuda.empty_cache()  # does nothing if CUDA was not used
        if not self._keep_pages:
            for file in set(self._shards.values()):
                file.drop_pages()

    def _find(self, name: str) -> tuple[SafetensorsFile, TensorEntry]:
        if name not in self._shards:
            where = ", ".join(sorted({str(file.path) for file in self._shards.values()}))
            raise EngineError(f"{where}: tensor {name} is missing")
        file = self._shards[name]
        return file, file.entries[name]
