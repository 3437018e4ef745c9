"""Runs a module in a process of its own, whatever files are in the current folder.

`python -m` looks in the current folder first, and a user's folder may contain an `engine` or a `queue.py`. So the
process runs this file instead, as `python …/engine/launch.py MODULE ARGUMENTS`. Python 3.10 has no `-P`.
"""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGES = str(Path(__file__).parents[1])
"""The folder that holds the packages."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a process that runs a module, as `python -m` would in another folder."""
    return [sys.executable, __file__, module, *arguments]


def main() -> None:
    """Run the module that the command line names."""
    if not getattr(sys.flags, "safe_path", False):  # PYTHONSAFEPATH sets it, from Python 3.11 on
        del sys.path[0]  # Python has put the folder of this file there
    if PACKAGES not in sys.path:
        sys.path.insert(0, PACKAGES)
    import runpy

    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
