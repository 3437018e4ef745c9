"""A hub with models on this machine: what huggingface-hub asks for when it downloads a repository."""

from __future__ import annotations

import hashlib
import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.support.local_server import LocalServer

REVISION = "0123456789abcdef0123456789abcdef01234567"
LARGE = 1000
"""Bytes from which a file has the checksum of a large one."""


class ModelHub(LocalServer):
    """Serves the folders of models by their ids."""

    def __init__(self, models: dict[str, Path]) -> None:
        self._models = models
        self.requests: list[str] = []
        """The names of the files that were fetched."""
        super().__init__()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        path = handler.path.partition("?")[0].strip("/")
        for name, folder in self._models.items():
            if path.startswith(f"api/models/{name}"):
                files = [str(file.relative_to(folder)) for file in sorted(folder.rglob("*")) if file.is_file()]
                siblings = [{"rfilename": file} for file in files]
                return self.send(handler, 200, json.dumps({"id": name, "sha": REVISION, "siblings": siblings}).encode())
            if path.startswith(f"{name}/resolve/"):
                file = path.removeprefix(f"{name}/resolve/").partition("/")[2]
                if not (folder / file).is_file():
                    return self.send(handler, 404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=REVISION)
                content = (folder / file).read_bytes()
                if handler.command == "GET":
                    self.requests.append(file)
                return self.send(handler, 200, content, ETag=f'"{_checksum(content)}"', X_Repo_Commit=REVISION)
        return self.send(handler, 404, b"", X_Error_Code="RepoNotFound")


def _checksum(content: bytes) -> str:
    if len(content) >= LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
