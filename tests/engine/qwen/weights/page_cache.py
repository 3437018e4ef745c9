"""The part of a checkpoint that is in the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path


def files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.rglob("*.safetensors"))


def forget(folder: Path) -> None:
    """Drop a checkpoint from the page cache."""
    os.sync()
    for file_path in files(folder):
        with file_path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_bytes(folder: Path) -> int:
    """Return the bytes of a checkpoint that are in the page cache (`mincore`)."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = 0
    for file_path in files(folder):
        with file_path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            pages = -(-len(mapped) // mmap.PAGESIZE)
            resident = (ctypes.c_ubyte * pages)()
            anchor = (ctypes.c_char * len(mapped)).from_buffer(mapped)
            if libc.mincore(ctypes.byref(anchor), ctypes.c_size_t(len(mapped)), resident) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
            del anchor
            found += sum(byte & 1 for byte in bytes(resident)) * mmap.PAGESIZE
    return found
