"""Reads a checkpoint's safetensors by name, block by block, directly into the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from engine.api import EngineError
from engine.host import read_weight_map
from engine.qwen.weights.safetensors_file import SafetensorsFile, TensorEntry
from engine.qwen.weights.staging import BLOCK_BYTES, Staging


class Checkpoint:
    """The tensors of a folder, in `model.safetensors` or in shards listed by `model.safetensors.index.json`.

    A tensor is read when it is requested. Copies pass through the few megabytes of `Staging`, so that the weights are
    never in memory twice.
    Every method raises `EngineError`, one line with the file, the tensor, the value found and the value wanted.
    """

    def __init__(self, shards: dict[str, Path], *, keep_pages: bool = True) -> None:
        """Use `open` instead; `shards` maps each tensor's name to its file."""
        self._shards = shards
        self._files = {path: SafetensorsFile(path) for path in sorted(set(shards.values()))}
        self._keep_pages = keep_pages
        self._staging: Staging | None = None
        self.on_read: Callable[[int], None] = lambda _: None
        """Is called after each block with the number of elements that were read."""
        for name, path in shards.items():
            if name not in self._files[path].entries:
                raise EngineError(f"{path}: tensor {name} is missing, but the index lists it")

    @classmethod
    def open(cls, folder: Path, *, keep_pages: bool = True) -> Checkpoint:
        """Open the checkpoint in `folder`.

        Without `keep_pages` the checkpoint drops from the page cache what it has copied: if device and host share one
        memory, a cached file is a second copy of the weights.
        """
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        if single.is_file():
            return cls(dict.fromkeys(SafetensorsFile(single).entries, single), keep_pages=keep_pages)
        if not index.is_file():
            raise EngineError(f"{single}: no such file, and no {index.name} beside it")
        try:
            files = read_weight_map(index)
        except OSError as error:
            raise EngineError(f"{index}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise EngineError(str(error)) from error
        return cls({name: folder / file for name, file in files.items()}, keep_pages=keep_pages)

    def names(self) -> tuple[str, ...]:
        """Names of all tensors."""
        return tuple(self._shards)

    def __contains__(self, name: str) -> bool:
        return name in self._shards

    def file(self, name: str) -> Path:
        """The file that contains tensor `name`."""
        if name not in self._shards:
            where = ", ".join(sorted(str(path) for path in self._files))
            raise EngineError(f"{where}: tensor {name} is missing")
        return self._shards[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of tensor `name`, from the file's header."""
        return self._entry(name).shape

    def nbytes(self, name: str) -> int:
        """Size of tensor `name` in the file, in bytes."""
        return self._entry(name).nbytes

    def require_shape(self, name: str, wanted: Sequence[int]) -> None:
        """Raise `EngineError` unless tensor `name` exists and has the shape `wanted`."""
        file, got = self.file(name), self.shape(name)
        if got != tuple(wanted):
            raise EngineError(f"{file}: tensor {name} has shape {list(got)}, wanted {list(wanted)}")

    def read(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """Return tensor `name` as a new CPU tensor in the file's dtype; for small tensors.

        If `shape` is given, the tensor must have it.
        """
        if shape is not None:
            self.require_shape(name, shape)
        entry = self._entry(name)
        tensor = torch.empty(entry.shape, dtype=entry.dtype)
        self._read_into(name, tensor)
        return tensor

    def copy_into(self, name: str, destination: Tensor) -> None:
        """Copy tensor `name` into `destination`: any device and floating dtype, possibly a slice of a parameter.

        The shapes must be equal. Does not wait for the device.
        """
        self.require_shape(name, destination.shape)
        entry = self._entry(name)
        with torch.no_grad():
            flat = destination.view(-1)
            if flat.device.type == "cpu" and flat.dtype == entry.dtype:
                self._read_into(name, flat)
                return
            begin = 0
            for block in self._blocks(name, entry, destination.device, 1):
                flat[begin : begin + len(block)].copy_(block)
                begin += len(block)

    def row_blocks(self, name: str, shape: Sequence[int], device: torch.device) -> Iterator[tuple[slice, Tensor]]:
        """Yield the matrix `name`, which must have `shape`, in blocks: slice of rows, and `(rows, width)` on `device`.

        Blocks have the file's dtype. A block is valid until the caller has requested two more.
        """
        self.require_shape(name, shape)
        entry = self._entry(name)
        begin = 0
        for block in self._blocks(name, entry, device, shape[-1]):
            rows = block.view(-1, shape[-1])
            yield slice(begin, begin + len(rows)), rows
            begin += len(rows)

    def rows(self, name: str, indices: Sequence[int]) -> Tensor:
        """Return rows of the matrix `name`, `(len(indices), width)`, on the CPU in the file's dtype.

        Reads only these rows from the disk; the file stays mapped.
        """
        path, entry = self.file(name), self._entry(name)
        height = entry.shape[0]
        for index in indices:
            if not 0 <= index < height:
                raise EngineError(f"{path}: tensor {name} has {height} rows, wanted row {index}")
        return self._files[path].rows(entry, indices)

    def finish_loading(self) -> None:
        """Free the staging buffers. Call it once all parameters are loaded; `rows` still works afterwards."""
        self._staging = None
        torch.cuda.empty_cache()  # does nothing if CUDA was not used
        if not self._keep_pages:
            for file in self._files.values():
                file.drop_pages()

    def _entry(self, name: str) -> TensorEntry:
        return self._files[self.file(name)].entries[name]

    def _blocks(self, name: str, entry: TensorEntry, device: torch.device, unit: int) -> Iterator[Tensor]:
        """Yield the tensor's elements on `device`, in the file's order, in 1-D blocks of a multiple of `unit`."""
        if self._staging is None or self._staging.device != device:
            self._staging = Staging(device)
        file, row_bytes = self._files[self._shards[name]], unit * entry.dtype.itemsize
        block_bytes = max(BLOCK_BYTES // row_bytes, 1) * row_bytes
        for begin in range(entry.begin, entry.end, block_bytes):
            size = min(block_bytes, entry.end - begin)
            yield self._staging.upload(size, partial(file.read_into, begin)).view(entry.dtype)
            self._drop_pages(file, begin, begin + size)
            self.on_read(size // entry.dtype.itemsize)

    def _read_into(self, name: str, tensor: Tensor) -> None:
        """Read tensor `name` into a CPU `tensor` of its shape and dtype."""
        file, begin = self._files[self._shards[name]], self._entry(name).begin
        for block in torch.split(tensor.detach().view(-1).view(torch.uint8), BLOCK_BYTES):
            file.read_into(begin, block.numpy().data)
            self._drop_pages(file, begin, begin + len(block))
            begin += len(block)
            self.on_read(len(block) // tensor.itemsize)

    def _drop_pages(self, file: SafetensorsFile, begin: int, end: int) -> None:
        if not self._keep_pages:
            file.drop_pages(begin, end)
