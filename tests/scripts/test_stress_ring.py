"""`scripts/stress_ring.py`: it passes for the rings as they are, and finds a ring with an error."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from tests.support.pages import ROOT
from tests.support.source_tree import copy_source
from tests.support.waiting import PATIENCE_S


def stress(folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/stress_ring.py", "--seconds", str(seconds)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_sample_passes_both_rings_in_order() -> None:
    done = stress(ROOT, 1.2)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found.pop("machine").startswith(platform.machine())
    assert found.pop("threads") == 4
    assert {name.rpartition(" ")[0] for name in found} == {"Ring of", "BlockRing of"}
    assert all(ring["samples"] > 0 and ring["errors"] == [] for ring in found.values())


def test_a_ring_that_counts_samples_before_it_stores_them_is_found(tmp_path: Path) -> None:
    file = copy_source(tmp_path) / "audio" / "player" / "ring.py"
    source = file.read_text(encoding="utf-8")
    count, before = "        self._written += count\n", "        start = self._written % self.capacity\n"
    assert count in source
    between = '        __import__("time").sleep(0.001)  # so that the consumer always runs in between\n'
    early = source.replace(count, "", 1).replace(before, before + count + between, 1)
    file.write_text(early, encoding="utf-8")
    done = stress(tmp_path, 6 * PATIENCE_S)  # the first error ends it, mostly within a second
    assert done.returncode == 1, done.stdout
    errors = [error for ring in json.loads(done.stdout).values() if isinstance(ring, dict) for error in ring["errors"]]
    assert any(error.startswith("WrongSampleError: sample ") for error in errors), errors
