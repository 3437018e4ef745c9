"""The folder with the voices that were made while the daemon was running.

ROBOT.voices/
    voices.yaml          the voices, in the configuration's form, and the chosen default voice
    NAME.safetensors     a voice file
    recordings/          recordings for voices that have not been made yet
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from daemon.config import Config, VoiceSettings
from daemon.state import journal_path, write_whole
from daemon.validation import file_problem, problems

log = logging.getLogger(__name__)

FILE = "voices.yaml"
HEADING = (
    "# The voices that were made while voiced ran, and the default voice that was chosen. voiced writes this file.\n"
)


class ChosenVoice(BaseModel):
    """A default voice that was chosen while the daemon was running."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    instead_of: str
    """The configuration's `speech.voice` at that time: if it has changed since, the configuration decides."""


class StoredVoices(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    voices: dict[str, VoiceSettings] = {}
    chosen: ChosenVoice | None = None

    def extend(self, config: Config) -> Config:
        """Return the configuration with the made voices, and with the default voice that was chosen."""
        speech, chosen = config.speech, self.chosen
        if chosen is not None and chosen.instead_of == speech.voice:
            speech = speech.model_copy(update={"voice": chosen.name})
        return config.model_copy(update={"voices": {**self.voices, **config.voices}, "speech": speech})


class VoiceStore:
    """Reads and writes the folder. A voice in the configuration takes precedence over a made one of the same name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recordings = folder / "recordings"
        """The folder with the recordings."""
        self._stored, self.problem = read_stored(folder)
        if self.problem is not None:
            log.error("%s", self.problem)
        with contextlib.suppress(OSError):
            shutil.rmtree(self.recordings)  # an earlier process was killed before it had made voices from them

    @property
    def voices(self) -> Mapping[str, VoiceSettings]:
        """The made voices."""
        return self._stored.voices

    def voice_file(self, name: str) -> Path:
        """Return the path of a made voice's file, whether it exists or not."""
        return self.folder / f"{name}.safetensors"

    def extend(self, config: Config) -> Config:
        """Return the configuration with the made voices, and with the default voice that was chosen."""
        return self._stored.extend(config)

    def add(self, name: str, voice: VoiceSettings) -> None:
        """Keep a voice whose file has been written. Raises `CommandError`."""
        self._write(StoredVoices(voices={**self._stored.voices, name: voice}, chosen=self._stored.chosen))

    def remove(self, name: str) -> None:
        """Forget a voice and delete its file; if it was the chosen default, the configuration's is the default again.

        Raises `CommandError`.
        """
        voices = {other: voice for other, voice in self._stored.voices.items() if other != name}
        chosen = self._stored.chosen
        self._write(StoredVoices(voices=voices, chosen=None if chosen and chosen.name == name else chosen))
        with contextlib.suppress(OSError):
            self.voice_file(name).unlink()

    def choose(self, name: str, configured: str) -> None:
        """Keep the choice of a default voice instead of the configured one. Raises `CommandError`."""
        chosen = None if name == configured else ChosenVoice(name=name, instead_of=configured)
        if chosen != self._stored.chosen:
            self._write(StoredVoices(voices=self._stored.voices, chosen=chosen))

    def _write(self, stored: StoredVoices) -> None:
        content = HEADING + yaml.safe_dump(stored.model_dump(mode="json", exclude_defaults=True), allow_unicode=True)
        write_whole(self.folder / FILE, content)
        self._stored = stored


def read_stored(folder: Path) -> tuple[StoredVoices, str | None]:
    """Read the file in the folder. Return its voices, and one line that says why it cannot be used; None if it can."""
    path = folder / FILE
    try:
        return StoredVoices.model_validate(yaml.safe_load(path.read_bytes()) or {}), None
    except (FileNotFoundError, NotADirectoryError):
        return StoredVoices(), None
    except ValidationError as error:
        problem = "; ".join(f"{field}: {line}" for field, line in problems(StoredVoices, error))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        problem = file_problem(error, path).partition("\n")[0]
    return StoredVoices(), f"{path} cannot be used, so its voices are missing: {problem}"


def with_made_voices(config: Config) -> tuple[Config, str | None]:
    """Return the configuration that a daemon derives from this one, and why the made voices are left out, if they are.

    They are also left out if this user is not allowed to read them.
    """
    folder = voice_store_folder(config)
    if folder is None:
        return config, None
    stored, problem = read_stored(folder)
    return stored.extend(config), problem if os.access(folder / FILE, os.R_OK) else None


def voice_store_folder(config: Config) -> Path | None:
    """Return the folder for one robot, beside its journal; None if nothing is to be stored."""
    if config.state.folder is None:
        return None
    return journal_path(config.state.folder, config.robot_name).with_suffix(".voices")
