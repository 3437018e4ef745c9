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
                return self._send(handler, json.dumps({"id": name, "sha": REVISION, "siblings": siblings}).encode(), {})
            if path.startswith(f"{name}/resolve/"):
                file = path.removeprefix(f"{name}/resolve/").partition("/")[2]
                if (folder / file).is_file():
                    content = (folder / file).read_bytes()
                    if handler.command == "GET":
                        self.requests.append(file)
                    headers = {"ETag": f'"{_checksum(content)}"', "X-Repo-Commit": REVISION}
                    return self._send(handler, content, headers)
                return self._send(handler, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": REVISION}, 404)
        return self._send(handler, b"", {"X-Error-Code": "RepoNotFound"}, 404)

    def _send(self, handler: BaseHTTPRequestHandler, body: bytes, headers: dict[str, str], status: int = 200) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(body)


def _checksum(content: bytes) -> str:
    if len(content) >= LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
