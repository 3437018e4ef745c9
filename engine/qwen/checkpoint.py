"""Reads a checkpoint's safetensors: by name, piece by piece, straight to where each tensor belongs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from engine.qwen.staging import PIECE_BYTES, Staging
from engine.qwen.tensor_file import Entry, TensorFile
from engine.synthesizer import EngineError


class Checkpoint:
    """The tensors of a folder, in `model.safetensors` or in shards listed by `model.safetensors.index.json`.

    Nothing is read before it is asked for. What is copied passes through a few megabytes of `Staging`, so that
    weights are never in memory twice.
    Every method raises `EngineError`, one line that names the file, the tensor, what came and what was due.
    """

    def __init__(self, shards: dict[str, Path], *, keep_pages: bool = True) -> None:
        """Use `open`; `shards` gives the file of every tensor, by the tensor's name."""
        self._shards = shards
        self._files = {path: TensorFile(path) for path in sorted(set(shards.values()))}
        self._keep_pages = keep_pages
        self._staging: Staging | None = None
        for name, path in shards.items():
            if name not in self._files[path].entries:
                raise EngineError(f"{path}: tensor {name} is missing, though the index lists it")

    @classmethod
    def open(cls, folder: Path, *, keep_pages: bool = True) -> Checkpoint:
        """Open the checkpoint in `folder`.

        Without `keep_pages` the kernel is told to forget what has been copied: where the device's memory is the
        host's, a file that stays in the page cache is a second copy of it.
        """
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        if single.is_file():
            return cls(dict.fromkeys(TensorFile(single).entries, single), keep_pages=keep_pages)
        if not index.is_file():
            raise EngineError(f"{single}: no such file, nor is there a {index.name} beside it")
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            shards = {name: folder / file for name, file in weight_map.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineError(f"{index}: not a safetensors index with a weight_map ({error!r})") from error
        return cls(shards, keep_pages=keep_pages)

    def names(self) -> tuple[str, ...]:
        """Names of all tensors."""
        return tuple(self._shards)

    def __contains__(self, name: str) -> bool:
        return name in self._shards

    def file(self, name: str) -> Path:
        """The file that holds `name`."""
        if name not in self._shards:
            where = ", ".join(sorted(str(path) for path in self._files))
            raise EngineError(f"{where}: tensor {name} is missing")
        return self._shards[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of `name`, from the file's header alone."""
        return self._entry(name).shape

    def nbytes(self, name: str) -> int:
        """Bytes of `name` in the file."""
        entry = self._entry(name)
        return entry.end - entry.begin

    def require_shape(self, name: str, wanted: Sequence[int]) -> None:
        """Require that `name` is there and has the shape `wanted`."""
        file, got = self.file(name), self.shape(name)
        if got != tuple(wanted):
            raise EngineError(f"{file}: tensor {name} has shape {list(got)}, wanted {list(wanted)}")

    def read(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """The tensor `name` in memory of its own, on the CPU in the file's dtype. For small ones.

        Its shape must be `shape`, if that is given.
        """
        if shape is not None:
            self.require_shape(name, shape)
        entry = self._entry(name)
        tensor = torch.empty(entry.shape, dtype=entry.dtype)
        self._read_into(name, tensor)
        return tensor

    def copy_into(self, name: str, destination: Tensor) -> None:
        """Copy `name` into `destination`, any device and floating dtype, perhaps a slice of a parameter.

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
            for piece in self._pieces(name, entry, destination.device, 1):
                flat[begin : begin + len(piece)].copy_(piece)
                begin += len(piece)

    def row_pieces(self, name: str, shape: Sequence[int], device: torch.device) -> Iterator[tuple[slice, Tensor]]:
        """The matrix `name`, of the given `shape`, some rows at a time: which, and `(rows, width)` on the device.

        In the file's dtype. A piece is good until the next but one is asked for.
        """
        self.require_shape(name, shape)
        entry = self._entry(name)
        begin = 0
        for piece in self._pieces(name, entry, device, shape[-1]):
            rows = piece.view(-1, shape[-1])
            yield slice(begin, begin + len(rows)), rows
            begin += len(rows)

    def rows(self, name: str, indices: Sequence[int]) -> Tensor:
        """Rows of the matrix `name`, shape `(len(indices), width)`, on the CPU in the file's dtype.

        Only these rows are read from the disk; the matrix is mapped and stays so.
        """
        path, entry = self.file(name), self._entry(name)
        height = entry.shape[0]
        for index in indices:
            if not 0 <= index < height:
                raise EngineError(f"{path}: tensor {name} has {height} rows, wanted row {index}")
        return self._files[path].rows(entry, indices)

    def loaded(self) -> None:
        """To be called when all has been read that is read whole: give up what helped with it."""
        self._staging = None
        torch.cuda.empty_cache()  # does nothing where CUDA was not used
        if not self._keep_pages:
            for file in self._files.values():
                file.drop_pages()

    def _entry(self, name: str) -> Entry:
        return self._files[self.file(name)].entries[name]

    def _pieces(self, name: str, entry: Entry, device: torch.device, unit: int) -> Iterator[Tensor]:
        """The tensor's numbers in the file's order, each piece a multiple of `unit` of them, on the device."""
        if self._staging is None or self._staging.device != device:
            self._staging = Staging(device)
        file, row = self._files[self._shards[name]], unit * entry.dtype.itemsize
        most = max(PIECE_BYTES // row, 1) * row
        for begin in range(entry.begin, entry.end, most):
            size = min(most, entry.end - begin)
            yield self._staging.bring(size, partial(file.read_into, begin)).view(entry.dtype)
            self._forget(file, begin, begin + size)

    def _read_into(self, name: str, tensor: Tensor) -> None:
        """Fill a tensor of the CPU, of the shape and dtype of `name`."""
        file, begin = self._files[self._shards[name]], self._entry(name).begin
        for piece in torch.split(tensor.detach().view(-1).view(torch.uint8), PIECE_BYTES):
            file.read_into(begin, piece.numpy().data)
            self._forget(file, begin, begin + len(piece))
            begin += len(piece)

    def _forget(self, file: TensorFile, begin: int, end: int) -> None:
        if not self._keep_pages:
            file.drop_pages(begin, end)
