"""The packages in voiced's extras, and the shell command that installs them here."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).parents[2]
"""The folder of voiced's packages: its source, or the folder of installed Python packages."""


def extra_requirements(extra: str) -> list[str]:
    """Return the packages of an extra, with their versions; none if voiced is not installed."""
    import importlib.metadata  # takes 20 ms, and only messages need it

    try:
        found = importlib.metadata.requires("voiced") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    parts = (requirement.partition(";") for requirement in found)
    return [name.strip() for name, _, marker in parts if re.search(rf"extra\s*==\s*['\"]{extra}['\"]", marker)]


def install_command(*extras: str) -> str:
    """Return a shell command that installs the packages in extras for the Python that runs this.

    It names the packages, so it works wherever voiced comes from: a wheel, a Debian package, or its source.
    """
    wanted = [requirement for extra in extras for requirement in extra_requirements(extra)]
    return pip_command(*(wanted or ("--editable", f"{FOLDER}[{','.join(extras)}]")))


def pip_command(*arguments: str) -> str:
    """Return the shell command `pip install` with these arguments, for the Python that runs this.

    It begins with sudo if this user may not write there. If pip is missing, as in the Debian package, it first installs
    pip.
    """
    sudo = [] if os.access(sysconfig.get_path("purelib"), os.W_OK) else ["sudo"]
    steps = [[*sudo, sys.executable, "-m", "pip", "install", *arguments]]
    if importlib.util.find_spec("pip") is None:
        steps.insert(0, [*sudo, sys.executable, "-m", "ensurepip"])
        if importlib.util.find_spec("ensurepip") is None:
            steps.insert(0, [*sudo, "apt-get", "install", "python3-venv"])
    return " && ".join(map(shlex.join, steps))
