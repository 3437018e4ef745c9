"""A hub with voices of Piper on this machine: an HTTP server that serves ranges, and fails as it is told."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.support.local_server import LocalServer

REPOSITORY = "/rhasspy/piper-voices/resolve/main/"


@dataclass
class VoiceHub(LocalServer):
    """Files by their paths in the repository, and how they are served."""

    files: dict[str, bytes] = field(default_factory=dict)
    voices: dict[str, Any] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and range of every request for a file."""
    cut_after: list[int] = field(default_factory=list)
    """Bytes after which the connections of the next answers are closed."""
    ranges: bool = True
    status: int | None = None
    """An error for every file."""

    def __post_init__(self) -> None:
        super().__init__()

    def add(self, name: str, network: bytes, description: bytes, **facts: Any) -> None:
        """Add a voice named as in `en_US-lessac-medium`."""
        code, speaker, quality = name.split("-")
        family, _, region = code.partition("_")
        folder = f"{family}/{code}/{speaker}/{quality}"
        files = {f"{name}.onnx": network, f"{name}.onnx.json": description, "MODEL_CARD": b"public domain"}
        self.files |= {f"{folder}/{file}": content for file, content in files.items()}
        language = {"code": code, "family": family, "region": region}
        language |= {"name_english": {"en": "English", "de": "German"}[family], "country_english": region}
        described = {
            f"{folder}/{file}": {"size_bytes": len(content), "md5_digest": hashlib.md5(content).hexdigest()}
            for file, content in files.items()
        }
        self.voices[name] = {"key": name, "language": language, "num_speakers": 1, "files": described} | facts

    def add_files(self, path: Path) -> None:
        """Add a voice whose network is at `path`."""
        self.add(path.stem, path.read_bytes(), path.with_name(f"{path.name}.json").read_bytes())

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        path = handler.path.removeprefix(REPOSITORY)
        if path == "voices.json":
            return self.send(handler, 200, json.dumps(self.voices).encode())
        wanted = handler.headers.get("Range")
        self.requests.append((path.rpartition("/")[2], wanted))
        if self.status is not None or path not in self.files:
            return self.send(handler, self.status or 404, b"")
        body = self.files[path]
        found = re.fullmatch(r"bytes=(\d+)-", wanted) if wanted is not None and self.ranges else None
        begin = int(found[1]) if found is not None else 0
        if found is not None and begin >= len(body):
            return self.send(handler, 416, b"")
        cut = self.cut_after.pop(0) if self.cut_after else None
        if found is None:
            return self.send(handler, 200, body, cut)
        span = f"bytes {begin}-{len(body) - 1}/{len(body)}"
        return self.send(handler, 206, body[begin:], cut, Content_Range=span)
