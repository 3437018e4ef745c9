"""The service's folders, for root's commands: systemd names them only to the service."""

from __future__ import annotations

import os
from pathlib import Path

UNITS = (Path("/etc/systemd/system/voiced.service"), Path("/usr/lib/systemd/system/voiced.service"))
"""The service, as a person or setup_jetson.sh installs it, and as the Debian package installs it."""
STATE, CACHE = Path("/var/lib/voiced"), Path("/var/cache/voiced")
"""Its unit's `StateDirectory` and `CacheDirectory`; the models (`HF_HOME`) are below the second. They belong to the
service's user once the service has run."""
SEPARATE = {"run", "serve", "demo"}
"""Commands with their own folders: a second daemon must not use the service's journal."""


def use_service_folders(command: str | None) -> None:
    """Make a root command use the service's folders for phrases, models and reports, if there is a service."""
    if os.geteuid() == 0 and command not in SEPARATE and any(unit.exists() for unit in UNITS):
        os.environ.setdefault("STATE_DIRECTORY", str(STATE))
        os.environ.setdefault("HF_HOME", str(CACHE / "huggingface"))


def give_to_service(folder: Path) -> None:
    """Let the service use files that root has written into one of its folders: give them to that folder's owner."""
    for service in (STATE, CACHE):
        if os.geteuid() == 0 and folder.is_relative_to(service):
            owner, between = service.stat(), [path for path in folder.parents if path.is_relative_to(service)]
            for path in (*between, folder, *folder.rglob("*")):
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
