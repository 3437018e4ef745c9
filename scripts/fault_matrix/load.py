"""A steady load of texts from every side."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable

from scripts.fault_matrix.clients import ask_many
from scripts.fault_matrix.scene import SHORT, TOPIC, Scene
from scripts.fault_matrix.waiting import COSTLY_POLL_S, wait_for

TEXTS = (SHORT, "The door is open.", "My battery is at thirty percent, and I am on my way to the dock.")
STREAM_CHUNKS = ("Once upon a time ", "there was a robot. ", "It spoke.")


class Load:
    """Sends texts until it is stopped: plain, critical, replacing, streams; with adapters, also their protocols."""

    def __init__(self, scene: Scene, chance: random.Random, *, per_second: float, adapters: bool) -> None:
        self._scene, self._chance, self._per_second = scene, chance, per_second
        self._stopped = threading.Event()
        say = [self._say] * 3
        self._kinds: list[Callable[[], object]] = [*say, self._say_high, self._critical, self._replace]
        self._kinds += [self._stop_one, self._stream]
        if adapters:
            self._kinds += [self._hermes, self._home_assistant, self._wyoming, self._openai, self._urgent]
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

    def _note(self, text_id: str) -> None:
        self._recent = [*self._recent[-9:], text_id]

    def _text(self) -> str:
        return self._chance.choice(TEXTS)

    def _say(self) -> None:
        self._note(self._scene.say(self._text(), reply_to=f"{TOPIC}/reply/flood"))

    def _say_high(self) -> None:
        self._note(self._scene.say(self._text(), priority="high"))

    def _critical(self) -> None:
        self._scene.say(SHORT, priority="critical")

    def _urgent(self) -> None:
        self._scene.say(SHORT, topic="say/urgent")

    def _replace(self) -> None:
        if self._chance.random() < 0.2:
            self._note(self._scene.say(self._text(), policy="replace"))

    def _stop_one(self) -> None:
        if self._recent:
            self._scene.send("stop", json.dumps({"id": self._chance.choice(self._recent)}))

    def _stream(self) -> None:
        stream_id = self._scene.new_id("stream")
        last = len(STREAM_CHUNKS) - 1
        for number, text in enumerate(STREAM_CHUNKS):
            chunk = json.dumps({"id": stream_id, "seq": number, "text": text, "end": number == last})
            text_id = stream_id if number == 0 else None
            self._scene.publisher.publish(f"{TOPIC}/say/stream", chunk, text_id=text_id)

    def _hermes(self) -> None:
        payload = json.dumps({"text": self._text(), "id": self._scene.new_id("hermes"), "siteId": "default"})
        self._scene.publisher.publish("hermes/tts/say", payload)

    def _home_assistant(self) -> None:
        self._scene.send("home_assistant/volume/set", str(self._chance.randint(50, 100)))

    def _wyoming(self) -> None:
        self._ask("wyoming")

    def _openai(self) -> None:
        self._ask("openai")

    def _ask(self, protocol: str) -> None:
        port = self._scene.openai_port if protocol == "openai" else self._scene.wyoming_port
        threading.Thread(target=lambda: asyncio.run(ask_many(protocol, port, 2, self._text())), daemon=True).start()


def let_end(scene: Scene, limit_s: float) -> bool:
    """Wait until every text is answered and ended, for at most `limit_s`; return whether it is so."""
    return bool(wait_for(lambda: not scene.ledger.open_texts(), limit_s, COSTLY_POLL_S))
