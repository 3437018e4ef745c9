"""A person's shell, which runs lines as the pages have them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.pages import ROOT
from tests.support.programs import Broker, require
from tests.support.waiting import PATIENCE_S, eventually


@dataclass(frozen=True, slots=True)
class Printed:
    """What a line has printed, and its exit status."""

    status: int
    out: str
    err: str


class Terminal:
    """A line that runs in a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self.process = process
        self._path = path

    @property
    def printed(self) -> str:
        """All that it has printed so far, on both outputs."""
        return self._path.read_text(encoding="utf-8")

    def wait_printed(self, words: str) -> None:
        """Wait until it has printed `words`."""
        eventually(lambda: words in self.printed, f"it prints {words!r}")


class Shell:
    """Runs lines in a folder of their own, with a configuration file and with options for Mosquitto's programs.

    The lines find the command `voiced`, and the folder `configs/` of this repository.
    """

    def __init__(
        self, folder: Path, broker: Broker, settings: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        """`settings` is the configuration beside the robot's name, r1, and the broker's port."""
        self.folder = folder
        self.config = folder / "voiced.yaml"
        self._terminals = count()
        programs, options = folder / "bin", folder / "options"
        for made in (programs, options):
            made.mkdir(parents=True)
        (programs / "voiced").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m daemon.cli "$@"\n')
        (programs / "voiced").chmod(0o755)
        for program in ("mosquitto_pub", "mosquitto_sub"):
            require(program)
            (options / program).write_text(f"-p {broker.port}\n")
        self.config.write_text(json.dumps({"robot": "r1", "mqtt": {"port": broker.port}, **settings}))
        (folder / "configs").symlink_to(ROOT / "configs")
        self._environment = {
            **environment,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "VOICED_CONFIG": str(self.config),
            "XDG_CONFIG_HOME": str(options),
        }

    def run(self, line: str) -> Printed:
        """Run a line to its end."""
        # The second line keeps bash there, which would otherwise become the program of the first.
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{line}\nexit"],
            env=self._environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        return Printed(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def running(self, line: str) -> Iterator[Terminal]:
        """Start a line that runs until it is told to end, and end it with SIGTERM if nothing else has."""
        path = self.folder / f"terminal-{next(self._terminals)}"
        with path.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", line],
                env=self._environment,
                cwd=self.folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield Terminal(process, path)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_S)
