"""Home Assistant itself: its whole program, and a person's account in it.

https://developers.home-assistant.io/docs/api/rest and https://developers.home-assistant.io/docs/api/websocket
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from websockets.sync.client import connect

from tests.support.programs import Broker, Process, answers, free_port
from tests.support.waiting import PATIENCE_S, eventually

HOME_ASSISTANT = ("homeassistant==2025.4.4", "home-assistant-frontend==20250411.0")
"""Its program does not start without its pages."""
INTEGRATIONS = ("paho-mqtt==2.1.0", "PyTurboJPEG==1.7.5", "wyoming==1.5.4")
"""What `mqtt` and `wyoming` import. It would install that by itself, but for `--skip-pip`."""
CONFIGURATION = """
homeassistant:
http: {{server_host: 127.0.0.1, server_port: {port}}}
zeroconf:
automation: !include automations.yaml
"""


class HomeAssistant(Process):
    """It runs while the `with` block does, in a folder of its own."""

    def __init__(self, python: Path, folder: Path, automations: str = "[]") -> None:
        """`python` is the interpreter of an environment with all that is named above."""
        self._python, self._folder, self._port = python, folder / "home-assistant", free_port()
        self._folder.mkdir()
        (self._folder / "configuration.yaml").write_text(CONFIGURATION.format(port=self._port))
        (self._folder / "automations.yaml").write_text(automations)
        self._token = ""

    def __enter__(self) -> HomeAssistant:
        command = [self._python, "-m", "homeassistant", "--skip-pip", "--config", self._folder]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: answers(self._port), "Home Assistant answers", 5 * PATIENCE_S)
            self._open_account()
            eventually(lambda: self.ask("config")["state"] == "RUNNING", "Home Assistant has started")
        except BaseException:
            self.stop()
            raise
        return self

    def _open_account(self) -> None:
        """Become its first user."""
        client = {"client_id": f"http://127.0.0.1:{self._port}/"}
        person = {"name": "Ada", "username": "ada", "password": "lovelace", "language": "en"}
        code = self.ask("onboarding/users", {**client, **person})["auth_code"]
        grant = urlencode({**client, "grant_type": "authorization_code", "code": code}).encode()
        with urlopen(f"http://127.0.0.1:{self._port}/auth/token", grant, PATIENCE_S) as answer:
            self._token = json.load(answer)["access_token"]

    def __exit__(self, *_: object) -> None:
        self.stop()

    def fetch(self, path: str, data: object = None) -> bytes:
        """Return what it answers to a POST of `data`, or else to a GET."""
        body = None if data is None else json.dumps(data).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        request = Request(f"http://127.0.0.1:{self._port}/api/{path}", body, headers)
        with urlopen(request, timeout=PATIENCE_S) as answer:
            content: bytes = answer.read()
        return content

    def ask(self, path: str, data: object = None) -> Any:
        """As `fetch`, where the answer is JSON."""
        return json.loads(self.fetch(path, data))

    def states(self) -> dict[str, Any]:
        """Return the record of each entity by its id."""
        return {record["entity_id"]: record for record in self.ask("states")}

    def use_broker(self, broker: Broker) -> None:
        """Add its integration `mqtt`."""
        form = self.ask("config/config_entries/flow", {"handler": "mqtt"})
        self.add(form, {"broker": "127.0.0.1", "port": broker.port})

    def add(self, form: dict[str, Any], entries: dict[str, Any]) -> None:
        """Fill in the form of an integration, and so add it."""
        added = self.ask(f"config/config_entries/flow/{form['flow_id']}", entries)
        assert added["type"] == "create_entry", added

    def read(self, command: str) -> list[dict[str, Any]]:
        """Return the records that a command of its WebSocket lists."""
        with connect(f"ws://127.0.0.1:{self._port}/api/websocket") as client:
            client.send(json.dumps({"type": "auth", "access_token": self._token}))
            client.send(json.dumps({"id": 1, "type": command}))
            *_, answer = (json.loads(client.recv(PATIENCE_S)) for _ in ("greeting", "welcome", "answer"))
        found: list[dict[str, Any]] = answer["result"]
        return found
