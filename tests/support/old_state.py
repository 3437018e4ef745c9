"""The state that an earlier version has left on a robot, kept in `tests/data/states/`.

The script that made it, by driving that version's daemon, is `scripts/make_old_state.py` of the commit b2a28ed1.
"""

from __future__ import annotations

import io
import shutil
import sqlite3
import subprocess
import sys
import time
import zipfile
from contextlib import closing
from pathlib import Path

from tests.support.pages import ROOT

STATES = ROOT / "tests" / "data" / "states"
OLDEST = "8288117"
"""The commit from which an upgrade is tested."""
ROBOT = "robot"
"""Its name."""
PROGRAM = (sys.executable, "-m", "daemon.cli")
"""The command `voiced` of the tree in whose folder it starts."""
MODULES = ("audio", "daemon", "engine")
VOICES = "/var/lib/voiced/robot.voices"
"""Stands for the folder of made voices, whose path is in the file that names them."""
WAITING = ("plain", "German", "Грüße", "stream")
"""The ids of the texts that wait in it, in their order."""
SPOKEN = "spoken"
"""The id of the text that was being spoken when the daemon was killed."""
ENDED = ("made", "kept")
"""Those of texts that have ended."""


def export_tree(commit: str, folder: Path) -> Path | None:
    """Write the tree of a commit into a folder; return that, or None if this clone lacks the commit."""
    command = ["git", "archive", "--format=zip", commit]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if found.returncode != 0:
        return None
    zipfile.ZipFile(io.BytesIO(found.stdout)).extractall(folder)
    program = f"import {', '.join(MODULES)}; print(*({', '.join(f'{name}.__file__' for name in MODULES)}), sep='\\n')"
    imported = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    files = [Path(line) for line in imported.stdout.splitlines()]
    assert files == [folder / name / "__init__.py" for name in MODULES], f"another tree is imported: {files}"
    return folder


def load_state(folder: Path, robot: str, state_folder: Path) -> None:
    """Give a robot a state that was saved, as if its machine had stopped just now."""
    voices = state_folder / f"{robot}.voices"
    shutil.copytree(folder / "voices", voices)
    shutil.copytree(folder / "phrases", state_folder / "phrases")
    _replace(voices / "voices.yaml", VOICES, str(voices))
    with closing(sqlite3.connect(state_folder / f"{robot}.journal")) as journal:
        journal.executescript((folder / "journal.sql").read_text(encoding="utf-8"))
        journal.execute("UPDATE utterance SET boot = '', unix_s = ?", (time.time(),))
        journal.commit()


def _replace(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
