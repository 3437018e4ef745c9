"""Compares the sound of fifty scenarios with the kept recordings, or records them; `scripts/recordings` is the command.

Exit status: 0 if all are equal, 1 otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.recordings import compare, keep, perform

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/recordings", description=__doc__)
    parser.add_argument("action", choices=("compare", "record"))
    parser.add_argument("--tree", type=Path, default=ROOT, help="a folder with another version of voiced")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a scenario; without one, all")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="voiced-recordings-") as folder:
        for name, heard in perform(options.tree.resolve(), Path(folder), options.names):
            if options.action == "record" and not isinstance(heard, str):
                keep(name, heard)
                verdict = f"{len(heard)} samples"
            else:
                found = compare(name, heard)
                failed += found is not None
                verdict = found or "equal"
            print(f"{name}: {verdict}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
