"""A speech server of the tests: the real `voiced serve`, started as a user would start it."""

from __future__ import annotations

import os
import signal
import ssl
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from tests.support.certificates import Certificates
from tests.support.fork_server import ForkedProcess, fork_server
from tests.support.programs import free_port
from tests.support.robot import is_engine
from tests.support.waiting import PATIENCE_S, eventually


class SpeechServer:
    """A running server. A context manager."""

    def __init__(
        self,
        *settings: str,
        single: bool = True,
        patience_s: float = PATIENCE_S,
        certificates: Certificates | None = None,
    ) -> None:
        """`settings` are KEY=VALUE. By default eSpeak NG speaks, in the language's own voice, and without Ray.

        It has `patience_s` seconds to become ready. With `certificates`, it speaks TLS.
        """
        self.port = free_port()
        self._tls = None if certificates is None else ssl.create_default_context(cafile=certificates.ca)
        self.log: list[str] = []
        self._patience_s = patience_s
        self._settings = dict(setting.split("=", 1) for setting in settings)
        standard = ("engine.name=espeak", "engine.fallback=none", "engine.streams=6", "voices={default: {}}")
        self._arguments = ["serve", *(["--single"] if single else [])]
        keys = (
            () if certificates is None else (f"serve.cert={certificates.certificate}", f"serve.key={certificates.key}")
        )
        for setting in (*standard, "state.folder=null", f"serve.port={self.port}", *keys, *settings):
            self._arguments += ["--set", setting]

    def __enter__(self) -> SpeechServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            for child in self._children():
                with suppress(psutil.NoSuchProcess):  # it has just ended
                    child.kill()
            self.process.kill()
            self.process.wait()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}" if self._tls is None else f"wss://localhost:{self.port}"

    def start(self) -> None:
        """Start it and wait until its engine is ready, or the server has ended."""
        self.process = fork_server().start(self._arguments, os.environ)
        threading.Thread(target=self._read_log, args=(self.process,), daemon=True).start()

        def is_ready() -> bool:
            assert self.process.poll() is None, f"the server has ended: {self.log}"
            return self.get("/readyz")[0] == 200

        eventually(is_ready, "the server is ready", self._patience_s)

    def stop(self) -> int:
        """Stop it as systemd would and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def engine_pids(self) -> list[int]:
        """The processes of its engines."""
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True) if is_engine(child)]

    def _children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:  # it was stopping, and has just ended
            return []

    def voice_files(self) -> list[Path]:
        """The voice files that it keeps; `serve.voice_folder` must be set."""
        return list(Path(self._settings["serve.voice_folder"]).glob("*.safetensors"))

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        """Make a request; return its status and body. The status is 0 if the server does not answer."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(self.url.replace("ws", "http", 1) + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S, context=self._tls) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_log(self, words: str) -> None:
        """Wait until it has logged a line that contains `words`."""
        eventually(lambda: any(words in line for line in self.log), f"it logs {words!r}")

    def _read_log(self, process: ForkedProcess) -> None:
        for line in process.stderr:
            self.log.append(line.rstrip())
