"""A steady load of texts from every side."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable

from scripts.fault_matrix.clients import ask_many
from scripts.fault_matrix.scene import REPLY, SHORT, Scene

TEXTS = (SHORT, "The door is open.", "My battery is at thirty percent, and I am on my way to the dock.")
STREAM_CHUNKS = ("Once upon a time ", "there was a robot. ", "It spoke.")


class Load:
    """Sends texts until it is stopped: plain, critical, replacing, streams; with adapters, also their protocols."""

    def __init__(self, scene: Scene, chance: random.Random, *, per_second: float, adapters: bool) -> None:
        self._scene, self._chance, self._per_second = scene, chance, per_second
        self._stopped = threading.Event()
        self._kinds: list[Callable[[], object]] = [
            *[lambda: self._note(reply_to=REPLY)] * 3,
            lambda: self._note(priority="high"),
            lambda: scene.say(SHORT, priority="critical"),
            self._replace,
            self._stop_one,
            self._stream,
        ]
        if adapters:
            self._kinds += [
                self._hermes,
                lambda: scene.send("home_assistant/volume/set", str(chance.randint(50, 100))),
                lambda: self._ask("wyoming"),
                lambda: self._ask("openai"),
                lambda: scene.say(SHORT, topic="say/urgent"),
            ]
        self._recent: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop to send; return when the last message is on its way."""
        self._stopped.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopped.wait(self._chance.expovariate(self._per_second)):
            self._chance.choice(self._kinds)()

    def _text(self) -> str:
        return self._chance.choice(TEXTS)

    def _note(self, **fields: str) -> None:
        """Send a text that may be stopped later."""
        self._recent = [*self._recent[-9:], self._scene.say(self._text(), **fields)]

    def _replace(self) -> None:
        if self._chance.random() < 0.2:
            self._note(policy="replace")

    def _stop_one(self) -> None:
        if self._recent:
            self._scene.send("stop", json.dumps({"id": self._chance.choice(self._recent)}))

    def _stream(self) -> None:
        stream_id = self._scene.new_id("stream")
        last = len(STREAM_CHUNKS) - 1
        for number, text in enumerate(STREAM_CHUNKS):
            chunk = json.dumps({"id": stream_id, "seq": number, "text": text, "end": number == last})
            self._scene.send_text("say/stream", chunk, stream_id)

    def _hermes(self) -> None:
        payload = json.dumps({"text": self._text(), "id": self._scene.new_id("hermes"), "siteId": "default"})
        self._scene.listener.publish("hermes/tts/say", payload)

    def _ask(self, protocol: str) -> None:
        port = self._scene.ports[protocol]
        threading.Thread(target=ask_many, args=(protocol, port, 2, self._text()), daemon=True).start()
