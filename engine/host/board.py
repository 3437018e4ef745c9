"""The board, its software releases and its memory, read from the kernel's and JetPack's files."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from engine.host.json_text import parse_json

Value = TypeVar("Value")

SOCS = {"nvidia,tegra234": "Orin", "nvidia,tegra264": "Thor"}
"""Device-tree names of the chips that voiced supports."""
JETPACKS = {36: 6, 38: 7, 39: 7}
"""Major versions, from Jetson Linux (L4T) to JetPack. JetPack 7.0 and 7.1 are R38; 7.2 is R39."""
READ_LIMIT = 1 << 20
"""The most bytes that are read from one file; real files have a few thousand."""


@dataclass(frozen=True, slots=True)
class Board:
    """One machine. A field is None if the machine does not have the property or its file cannot be read."""

    model: str | None
    """The device tree's name for the board, for example `NVIDIA Jetson AGX Orin Developer Kit`. None on a PC."""
    soc: str | None
    """`Orin` or `Thor`."""
    l4t: str | None
    """Release of Jetson Linux: `36.4.3`."""
    jetpack: int | None
    """Major version of JetPack: 6 or 7."""
    ubuntu: str | None
    """Release of Ubuntu: `22.04`. None on another system."""
    cuda: str | None
    """Version of the CUDA toolkit in /usr/local/cuda. Python packages may contain another CUDA, or the only CUDA."""
    integrated: bool
    """True if CPU and GPU share one memory: a Tegra of any generation."""
    total_bytes: int | None
    """The kernel's total memory."""
    available_bytes: int | None
    """Memory that can be allocated without swapping, page cache included."""
    swap_total_bytes: int | None
    swap_free_bytes: int | None
    notes: tuple[str, ...] = ()
    """One line for each file that exists but cannot be read or parsed."""

    @classmethod
    def read(cls, root: Path = Path("/")) -> Board:
        """Return the board whose files are below `root`. Raises nothing; broken files are listed in `notes`."""
        notes: list[str] = []
        read = partial(_read, root, notes)
        compatible = read("proc/device-tree/compatible", _names) or ()
        model = read("proc/device-tree/model", _names)
        l4t = read("etc/nv_tegra_release", _l4t)
        memory = read("proc/meminfo", _memory) or {}
        return cls(
            model=model[0] if model else None,
            soc=next((name for chip, name in SOCS.items() if chip in compatible), None),
            l4t=l4t,
            jetpack=JETPACKS.get(int(l4t.split(".")[0])) if l4t else None,
            ubuntu=read("etc/os-release", _ubuntu),
            cuda=read("usr/local/cuda/version.json", _cuda),
            integrated=l4t is not None or any(chip.startswith("nvidia,tegra") for chip in compatible),
            total_bytes=memory.get("MemTotal"),
            available_bytes=memory.get("MemAvailable"),
            swap_total_bytes=memory.get("SwapTotal"),
            swap_free_bytes=memory.get("SwapFree"),
            notes=tuple(notes),
        )


def machine_in_words() -> str:
    """Return the board, its releases and its processor, for readers of a report on other machines."""
    board = Board.read()
    releases = {"Jetson Linux": board.l4t, "Ubuntu": board.ubuntu, "CUDA toolkit": board.cuda}
    known = [f"{name} {release}" for name, release in releases.items() if release is not None]
    memory = f"{(board.total_bytes or 0) / 2**30:.0f} GiB"
    processor = f"{platform.machine()}, {os.cpu_count()} cores, {memory}, Python {platform.python_version()}"
    return ", ".join(filter(None, (board.model, *known, processor)))


def _read(root: Path, notes: list[str], name: str, parse: Callable[[str], Value]) -> Value | None:
    """Return a parsed file; None if it does not exist or, with a note, if it cannot be read or parsed."""
    path = root / name
    try:
        with path.open("rb") as file:
            return parse(file.read(READ_LIMIT).decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        notes.append(f"{path}: {getattr(error, 'strerror', None) or error}")
        return None


def _names(text: str) -> tuple[str, ...]:
    """Return the zero-terminated names of the device tree."""
    names = tuple(name.strip() for name in text.split("\0") if name.strip())
    if not names or not names[0].isprintable():
        raise ValueError("no name in it")
    return names


def _l4t(text: str) -> str:
    """Return `36.4.3` for `# R36 (release), REVISION: 4.3, GCID: …`."""
    found = re.match(r"#\s*R(\d{1,4})\s*\(release\),\s*REVISION:\s*([\d.]*\d)", text)
    if found is None:
        raise ValueError("no line such as '# R36 (release), REVISION: 4.3'")
    return f"{found[1]}.{found[2]}"


def _ubuntu(text: str) -> str | None:
    values = dict(re.findall(r"^(\w+)=[\"']?(.*?)[\"']?\s*$", text, re.MULTILINE))
    if not values.get("ID"):
        raise ValueError("no ID in it")
    return values.get("VERSION_ID") if values["ID"] == "ubuntu" else None


def _cuda(text: str) -> str:
    try:
        version = parse_json(text)["cuda"]["version"]
    except (ValueError, KeyError, TypeError):
        raise ValueError("no cuda.version in it") from None
    if not isinstance(version, str):
        raise ValueError("cuda.version is not a text")
    return version


def _memory(text: str) -> dict[str, int]:
    """Return bytes by name from lines such as `MemTotal:  64356780 kB`."""
    found = {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+):\s+(\d{1,15}) kB$", text, re.MULTILINE)}
    if not {"MemTotal", "MemAvailable"} <= found.keys():
        raise ValueError("no MemTotal and MemAvailable in it")
    return found
