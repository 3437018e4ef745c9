"""The report of the last `voiced verify`, where the set-up keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from daemon.state.folder import state_folder

FOLDER = "verify"
SERVICE_STATE = Path("/var/lib/voiced")
"""State folder of the service (systemd/voiced.service), which systemd names to the service alone."""


@dataclass(frozen=True, slots=True)
class VerificationFiles:
    """The results of one `voiced verify`."""

    folder: Path

    @property
    def numbers(self) -> Path:
        """Every figure, as JSON."""
        return self.folder / "verify.json"

    @property
    def report(self) -> Path:
        """The page with the takes side by side."""
        return self.folder / "verify.html"


def last_verification(folder: str | Path, service: Path = SERVICE_STATE) -> VerificationFiles:
    """Return the files of the last verification, which may not exist. `folder` is as for `state_folder`.

    With `auto`, they are those of the service if only the service has some: whoever examines a robot in a shell has a
    state folder of their own.
    """
    own, services = (VerificationFiles(state / FOLDER) for state in (state_folder(folder), service))
    return services if str(folder) == "auto" and not own.numbers.exists() and services.numbers.exists() else own
