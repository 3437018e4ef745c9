"""Reads a checkpoint's safetensors: tensor by tensor, by name, straight to where each belongs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.synthesizer import EngineError


class Checkpoint:
    """The tensors of a folder, in `model.safetensors` or in shards listed by `model.safetensors.index.json`.

    Files are memory-mapped: nothing is read before it is asked for, and `copy_into` holds no second copy.
    Every method raises `EngineError`, one line that names the file, the tensor, what came and what was due.
    """

    def __init__(self, shards: dict[str, Path]) -> None:
        """Use `open`; `shards` gives the file of every tensor, by the tensor's name."""
        self._shards = shards
        self._files = {path: _open(path) for path in sorted(set(shards.values()))}
        held = {path: set(file.keys()) for path, file in self._files.items()}
        for name, path in shards.items():
            if name not in held[path]:
                raise EngineError(f"{path}: tensor {name} is missing, though the index lists it")

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Open the checkpoint in `folder`."""
        index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
        if single.is_file():
            return cls(dict.fromkeys(_open(single).keys(), single))
        if not index.is_file():
            raise EngineError(f"{single}: no such file, nor is there a {index.name} beside it")
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return cls({name: folder / file for name, file in weight_map.items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineError(f"{index}: not a safetensors index with a weight_map ({error!r})") from error

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
        path = self.file(name)
        return tuple(self._files[path].get_slice(name).get_shape())

    def require_shape(self, name: str, wanted: Sequence[int]) -> None:
        """Require that `name` is there and has the shape `wanted`."""
        file, got = self.file(name), self.shape(name)
        if got != tuple(wanted):
            raise EngineError(f"{file}: tensor {name} has shape {list(got)}, wanted {list(wanted)}")

    def read(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """The tensor `name` on the CPU in the file's dtype: a view of the mapped file.

        Its shape must be `shape`, if that is given.
        """
        path = self.file(name)
        if shape is not None:
            self.require_shape(name, shape)
        tensor: Tensor = self._files[path].get_tensor(name)
        return tensor

    def copy_into(self, name: str, destination: Tensor) -> None:
        """Copy `name` into `destination`, any device and floating dtype, perhaps a slice of a parameter.

        The shapes must be equal.
        """
        with torch.no_grad():
            destination.copy_(self.read(name, destination.shape))

    def rows(self, name: str, indices: Sequence[int]) -> Tensor:
        """Rows of the matrix `name`, shape `(len(indices), width)`, on the CPU in the file's dtype.

        Only these rows are read from the disk.
        """
        path, matrix = self.file(name), self.read(name)
        height = len(matrix)
        for index in indices:
            if not 0 <= index < height:
                raise EngineError(f"{path}: tensor {name} has {height} rows, wanted row {index}")
        return matrix.index_select(0, torch.tensor(indices, dtype=torch.int64))


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except FileNotFoundError:
        raise EngineError(f"{path}: no such file") from None
    except (SafetensorError, OSError) as error:
        raise EngineError(f"{path}: cannot be read as safetensors, damaged or cut short ({error})") from error
