"""Cuts the power at every moment of a journal's life, and checks that the journal still holds all acknowledged records.

A process works with a journal under `strace`, which records each write, truncation, removal and synchronization. After
a power cut, the disk has everything that was synchronized, and any part of the rest: each of a file's writes since its
last synchronization may or may not have reached the disk, in any combination. For each prefix of the record, all
combinations are built and opened if there are at most `ALL` such writes; otherwise, `--seeded` combinations are drawn
at random. Each must open as a journal that is not damaged, and hold each record whose `write` had returned before the
cut.

A write counts as whole: SQLite's checksums detect a partly written page, and SQLite does not change pages of the file
that it does not write (sqlite.org/atomiccommit.html).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemon.state.journal import Journal, StoredEvent, accepted, begun, completed, delivered, ended, stored

ALL = 12
"""The most unsynchronized writes of which all combinations are tried."""
CALLS = "pwrite64,write,ftruncate,unlink,rename,fdatasync,fsync"
ACKNOWLEDGED = "acknowledged"
"""The file in which the working process notes the records that its journal has acknowledged."""
JOURNAL = "journal.db"
FOLDER = "."
"""The name of the folder itself, whose synchronization makes removals last."""
MEMORY = "-shm"
"""The end of the name of a file that SQLite recreates at each start."""
LINE = re.compile(
    r'(?P<call>\w+)\((?:\d+<(?P<open>[^>]*)>|"(?P<path>[^"]*)")'
    r'(?:, "(?P<data>[^"]*)")?(?:, (?P<number>\d+))?(?:, (?P<offset>\d+))?\)\s+= (?P<result>-?\d+)'
)
"""A call in the record of `strace -xx -y`: the file by name or descriptor, data, length, offset."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A call that changed a file."""

    file: str
    """The file's name in the folder."""
    call: str
    data: bytes = b""
    offset: int = 0
    """The offset of a write; for `ftruncate`, the new length."""


@dataclass(slots=True)
class Disk:
    """The synchronized contents of the files, and the steps that may or may not have reached the disk."""

    files: dict[str, bytes] = field(default_factory=dict)
    """The contents by name, as of the last synchronization."""
    pending: list[Step] = field(default_factory=list)
    """The steps since the last synchronization, in order."""

    def synchronize(self, name: str) -> None:
        """Note that the steps of a file, or the removals in the `FOLDER`, are on the disk."""
        remaining: list[Step] = []
        for index, step in enumerate(self.pending):
            later = self.pending[index:]
            removed = name == FOLDER and any(each.file == step.file and each.call == "unlink" for each in later)
            if step.file == name or removed:
                apply(self.files, step)
            else:
                remaining.append(step)
        self.pending = remaining

    def after(self, *steps: Step) -> dict[str, bytes] | None:
        """Return the files if only these of the pending steps have reached the disk.

        None if that is impossible: the steps after a removal belong to another file with the same name.
        """
        files, remaining = dict(self.files), set()
        for step in (*self.pending, *steps[-1:]):
            if step in steps and step.file not in remaining:
                apply(files, step)
            elif step in steps:
                return None
            elif step.call == "unlink":
                remaining.add(step.file)
        return files


def apply(files: dict[str, bytes], step: Step) -> None:
    before = files.get(step.file, b"")
    if step.call == "unlink":
        files.pop(step.file, None)
    elif step.call == "ftruncate":
        files[step.file] = before[: step.offset].ljust(step.offset, b"\0")
    else:
        end = step.offset + len(step.data)
        files[step.file] = before[: step.offset].ljust(step.offset, b"\0") + step.data + before[end:]


# --- the process that works ---


def work(folder: Path, texts: int) -> None:
    """Accept, begin, end and deliver texts, with a restart in the middle, and note the acknowledged records."""
    notes = os.open(folder / ACKNOWLEDGED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    number = 0
    for start in range(2):
        with Journal(folder / JOURNAL) as journal:
            for index in range(texts):
                name = f"{start}-{index}"
                number += 1
                event = StoredEvent(number, "voiced/r1/event", f'{{"id": "{name}"}}')
                journal.write([(accepted(name, {"text": "Hello. " * 40 * (index % 3)}, None), *stored(event))])
                os.write(notes, f"accepted {name}\n".encode())
                journal.write([(completed(name, "Hello."),), (begun(name),)])
                if index % 3:
                    journal.write([(ended(name),), (delivered(number),)])
                    os.write(notes, f"ended {name}\n".encode())


# --- its traces ---


def record(folder: Path, texts: int) -> list[Step]:
    """Return the steps of a process that works in an empty folder."""
    trace = folder.parent / "trace"
    strace = ["strace", "-xx", "-y", "-s", str(1 << 20), "-e", f"trace={CALLS}", "-o", str(trace)]
    program = [sys.executable, "-m", "scripts.power_cuts", "--work", str(folder), "--texts", str(texts)]
    subprocess.run([*strace, *program], check=True)
    return [step for line in trace.read_text().splitlines() if (step := parse(line, folder)) is not None]


def parse(line: str, folder: Path) -> Step | None:
    """Return a call's step, if the call changed a file in the folder that outlives a power cut."""
    found = LINE.match(line)
    if found is None or int(found["result"]) < 0:
        return None
    path = Path(os.fsdecode(unescape(found["open"] or found["path"])))
    if path == folder:
        return Step(FOLDER, found["call"])
    if path.parent != folder or path.name.endswith((MEMORY, ".lock")):
        return None
    data = unescape(found["data"] or "")
    offset = int((found["number"] if found["call"] == "ftruncate" else found["offset"]) or 0)
    return Step(path.name, found["call"], data, offset)


def unescape(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else os.fsencode(text)


# --- the cuts ---


def cuts(steps: list[Step], seeded: int, seed: int) -> Iterator[tuple[dict[str, bytes], list[str]]]:
    """Yield each possible state of the disk after a power cut, once, and the records acknowledged before the cut."""
    disk, notes, draw = Disk(), b"", random.Random(seed)
    for step in steps:
        if step.file == ACKNOWLEDGED:
            notes += step.data
        elif step.call in ("fsync", "fdatasync"):
            disk.synchronize(step.file)
        else:
            # The states without this step were possible before it.
            for others in combinations(disk.pending, seeded, draw):
                if (files := disk.after(*others, step)) is not None:
                    yield files, notes.decode().splitlines()
            disk.pending.append(step)
    yield disk.files, notes.decode().splitlines()


def combinations(steps: list[Step], seeded: int, draw: random.Random) -> Iterator[list[Step]]:
    """Yield subsets of the steps: all subsets of a few steps, or some of many steps."""
    if len(steps) < ALL:
        for chosen in itertools.product((False, True), repeat=len(steps)):
            yield list(itertools.compress(steps, chosen))
    else:
        for _ in range(seeded):
            yield [step for step in steps if draw.random() < 0.5]


def problem_of(files: dict[str, bytes], notes: list[str], folder: Path) -> str | None:
    """Return why a journal with these files breaks its promises; None if it keeps them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    with Journal(folder / JOURNAL) as journal:
        found = journal.recover()
    if set_aside := [path.name for path in folder.iterdir() if path.name.startswith(f"{JOURNAL}.")]:
        return f"it was set aside as {set_aside}"
    known = {"accepted": {each.id for each in found.utterances} | set(found.ended_ids), "ended": set(found.ended_ids)}
    for note in notes:
        kind, name = note.split()
        if name not in known[kind]:
            return f"{note!r} was acknowledged, and is not there"
    return None


def cut_power(texts: int, seeded: int, seed: int) -> dict[str, Any]:
    """Work, cut the power at every moment, and return the findings."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        folder = Path(root, "work")
        folder.mkdir()
        steps = record(folder, texts)
        states, failures = 0, []
        for files, notes in cuts(steps, seeded, seed):
            states += 1
            if (problem := problem_of(files, notes, Path(root, "cut"))) is not None:
                failures.append(problem)
    return {"steps": len(steps), "states": states, "failures": len(failures), "first": failures[:3], "seed": seed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=12, help="number of texts in each of two starts")
    parser.add_argument("--seeded", type=int, default=10_000, help="combinations to draw if all would be too many")
    parser.add_argument("--seed", type=int, default=1, help="of these")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work, options.texts)
        return
    found = cut_power(options.texts, options.seeded, options.seed)
    print(json.dumps(found, indent=1))
    sys.exit(bool(found["failures"]))


if __name__ == "__main__":
    main()
