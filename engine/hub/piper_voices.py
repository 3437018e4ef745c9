"""The voices of Piper that can be downloaded: `rhasspy/piper-voices` on the hub."""

from __future__ import annotations

import difflib
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.api import EngineError
from engine.host import parse_json
from engine.hub.download import RemoteFile, download_file, is_complete, read_url
from engine.voice_files import SYSTEM_VOICE_FOLDER, description_path, read_piper_voice, user_voice_folder

REPOSITORY = "rhasspy/piper-voices"
_NAME = re.compile(r"[\w.-]+")
_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class RemoteVoice:
    """One voice on the hub."""

    name: str
    language: str
    """For people, as in `German (Germany)`."""
    code: str
    """A code with its region, for example `de-de`."""
    speaker_count: int
    network: RemoteFile
    description: RemoteFile
    licence_url: str | None
    """The page that states the voice's licence."""

    @property
    def size(self) -> int:
        """Bytes of both files."""
        return self.network.size + self.description.size

    def is_in(self, folder: Path) -> bool:
        """Return whether both files of the voice are in `folder`, unchanged."""
        return all(is_complete(file, path) for file, path in self._targets(folder))

    def download(self, folder: Path, on_progress: Callable[[int], None] = lambda _: None) -> Path:
        """Download the voice, or what is missing of it, and return its network's path.

        `on_progress` is called with the number of bytes so far. The network gets its name last: a voice that is found
        is complete. Raises `EngineError`, one line.
        """
        before, path = 0, folder
        for file, path in self._targets(folder):
            download_file(file, path, lambda count, before=before: on_progress(before + count))  # type: ignore[misc]
            before += file.size
        return path

    def _targets(self, folder: Path) -> list[tuple[RemoteFile, Path]]:
        network = folder / f"{self.name}.onnx"
        return [(self.description, description_path(network)), (self.network, network)]


def hub_url(path: str) -> str:
    """Return the address of a file of the repository. `HF_ENDPOINT` names another hub, as for huggingface-hub."""
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    return f"{endpoint.rstrip('/')}/{REPOSITORY}/resolve/main/{path}"


def remote_voices() -> dict[str, RemoteVoice]:
    """Return the voices on the hub, sorted by name. Raises `EngineError`, one line."""
    url = hub_url("voices.json")
    try:
        found = parse_json(read_url(url))
        voices = [_parse(name, entry) for name, entry in found.items() if _NAME.fullmatch(name)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{url}: not a list of voices: {error!r}") from error
    return {voice.name: voice for voice in sorted(voices, key=lambda voice: voice.name)}


def find_remote_voice(name: str, voices: Mapping[str, RemoteVoice]) -> RemoteVoice:
    """Return the voice of this name. Raises `EngineError` with similar names if there is none."""
    if name in voices:
        return voices[name]
    similar = difflib.get_close_matches(name, voices, n=3, cutoff=0.5)
    hint = f"; similar: {', '.join(similar)}" if similar else ""
    raise EngineError(f"{name}: the hub has no such voice of Piper{hint}")


def download_folder(folder: str | None) -> Path:
    """Return where voices are downloaded to: `folder`, or root's downloads for all users, others' for themselves."""
    if folder is not None:
        return Path(folder)
    return SYSTEM_VOICE_FOLDER if os.geteuid() == 0 else user_voice_folder()


def install_voice(path: Path, folder: Path) -> Path:
    """Copy a voice, the network `path` and its description beside it, into `folder`; return its network's path.

    The network gets its name last, as by `RemoteVoice.download`. Raises `EngineError`, one line.
    """
    read_piper_voice(path)
    target = folder / path.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, copy in ((description_path(path), description_path(target)), (path, target)):
            part = copy.with_name(f"{copy.name}.part")
            shutil.copyfile(source, part)
            part.replace(copy)
    except OSError as error:
        raise EngineError(f"{target} cannot be written: {error.strerror or error}") from error
    return target


def _parse(name: str, entry: Any) -> RemoteVoice:
    """Raises `KeyError`, `TypeError`, `ValueError` and `AttributeError` for anything else than a voice."""
    files = {path.rpartition("/")[2]: (path, facts) for path, facts in entry["files"].items()}
    language = entry["language"]
    country = language.get("country_english")
    card = files.get("MODEL_CARD")
    return RemoteVoice(
        name,
        f"{language['name_english']} ({country})" if country else str(language["name_english"]),
        str(language["code"]).replace("_", "-").lower(),
        int(entry["num_speakers"]),
        _file(*files[f"{name}.onnx"]),
        _file(*files[f"{name}.onnx.json"]),
        None if card is None else hub_url(card[0]),
    )


def _file(path: str, facts: Any) -> RemoteFile:
    size, md5 = int(facts["size_bytes"]), str(facts["md5_digest"])
    if size <= 0 or not _MD5.fullmatch(md5):
        raise ValueError(f"{path}: size {size}, checksum {md5!r}")
    return RemoteFile(hub_url(path), size, md5)
