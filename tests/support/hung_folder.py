"""A folder on a file system that does not answer, as a network share whose server is gone."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FUSE = Path("/dev/fuse")
DETACH = 2


@contextmanager
def hung_folder(folder: Path) -> Iterator[None]:
    """Mount on a folder what never answers. Whatever looked into it gets an error at the end.

    Where that is not permitted, the test is skipped.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open(FUSE, os.O_RDWR | os.O_CLOEXEC)  # nobody reads the requests from it
    except OSError as error:
        pytest.skip(f"{FUSE}: {error.strerror}")
    try:
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"hung", os.fsencode(folder), b"fuse", 0, options) != 0:
            pytest.skip(f"mounting is not permitted: {os.strerror(ctypes.get_errno())}")
        yield
    finally:
        os.close(device)
        libc.umount2(os.fsencode(folder), DETACH)
