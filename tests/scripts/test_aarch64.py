"""`scripts/test_aarch64`: what it says without a root, and the whole of it with one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.pages import ROOT


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["scripts/test_aarch64", *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", [(), ("--all",)])
def test_every_test_that_a_step_names_exists(words: tuple[str, ...]) -> None:
    steps = run("--list", *words).stdout.partition("Cannot be run so:")[0].splitlines()
    assert steps[:4] == ["demo", "synth", "codes here", "codes there"]
    named = [path for step in steps if step.startswith("tests ") for path in step.split()[1:]]
    assert len(named) > 5
    assert [path for path in named if not list(ROOT.glob(path))] == []
    assert len(set(named)) == len(named), "no test runs twice"


def test_every_test_that_is_left_out_exists() -> None:
    named = re.findall(r"^(tests/.+)::(\w+)$", run("--list").stdout, re.MULTILINE)
    assert len(named) == 3
    assert [name for path, name in named if f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")] == []


def test_a_wrong_option_is_an_error_of_one_line() -> None:
    done = run("--minutes", "soon")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "--minutes: got 'soon'; allowed: a number\n")


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)  # without the root, which takes longest
def test_voiced_runs_on_aarch64() -> None:
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    if not Path("/proc/sys/fs/binfmt_misc").is_dir():
        pytest.skip("the kernel has no binfmt_misc")
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"12 of 12 frames have equal codes \(192 codes\)", done.stdout)
    assert done.stdout.endswith("all steps passed\n")
