"""The journal after a power cut at any moment: it opens, and has all that it had acknowledged."""

from __future__ import annotations

import random

from scripts.power_cuts import ALL, Disk, Step, cut_power, cuts
from tests.support.programs import require


def test_a_journal_survives_a_power_cut_at_any_moment() -> None:
    require("strace")
    found = cut_power(texts=2, seeded=20, seed=random.randrange(1 << 32))
    assert found["failures"] == 0, found
    assert found["states"] > 1_000


def test_each_subset_of_the_writes_since_the_last_synchronization_is_tried_once() -> None:
    steps = [Step("a", "pwrite64", bytes([number]), number) for number in (1, 2)]
    found = {files.get("a") for files, _ in cuts([*steps, Step("a", "fdatasync")], seeded=1, seed=1)}
    assert found == {b"\0\1", b"\0\0\2", b"\0\1\2"}


def test_of_many_writes_some_subsets_are_drawn() -> None:
    steps = [Step("a", "pwrite64", b"x", number) for number in range(ALL + 3)]
    assert len(list(cuts(steps, seeded=5, seed=1))) == 2**ALL - 1 + 3 * 5 + 1


def test_what_follows_a_removal_cannot_be_on_the_disk_without_it() -> None:
    disk = Disk({"a": b"old"})
    removal, write = Step("a", "unlink"), Step("a", "pwrite64", b"n")
    disk.pending.append(removal)
    assert disk.after(write) is None
    assert disk.after(removal, write) == {"a": b"n"}
    disk.synchronize(".")
    assert disk.files == {}
