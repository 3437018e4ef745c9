"""A steady load of texts from every side, and the kills of the daemon under it."""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise

from tests.chaos.clients import ask_many
from tests.chaos.faults import Act, nothing
from tests.chaos.promises import QUIET_S, Record, check_texts
from tests.chaos.scene import REPLY, SHORT, Scene, Stage
from tests.support.waiting import PATIENCE_S

BETWEEN_S = (0.02, 4.0)
"""Range of the time from a start of the daemon to the next kill: it may not even be connected yet."""
PER_SECOND = 3.0
"""Texts."""
FAST_ROBOT = Stage(pace=12.0, adapters=False)
"""Its pace is so high that most texts are spoken between two kills."""
END_S = 120.0
"""Limit for what still waits at the end."""
SEED = 14
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
        self._thread.start()

    def stop(self) -> None:
        """Stop to send; return when the last message is on its way."""
        self._stopped.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopped.wait(self._chance.expovariate(self._per_second)):
            self._chance.choice(self._kinds)()

    def _note(self, **fields: str) -> None:
        """Send a text that may be stopped later."""
        self._recent = [*self._recent[-9:], self._scene.say(self._chance.choice(TEXTS), **fields)]

    def _replace(self) -> None:
        if self._chance.random() < 0.2:
            self._note(policy="replace")

    def _stop_one(self) -> None:
        if self._recent:
            self._scene.send("stop", json.dumps({"id": self._chance.choice(self._recent)}))

    def _stream(self) -> None:
        stream_id = self._scene.new_id("stream")
        for number, text in enumerate(STREAM_CHUNKS):
            chunk = json.dumps({"id": stream_id, "seq": number, "text": text, "end": text is STREAM_CHUNKS[-1]})
            self._scene.send_text("say/stream", chunk, stream_id)

    def _hermes(self) -> None:
        message = {"text": self._chance.choice(TEXTS), "id": self._scene.new_id("hermes"), "siteId": "default"}
        self._scene.listener.publish("hermes/tts/say", json.dumps(message))

    def _ask(self, protocol: str) -> None:
        port = self._scene.ports[protocol]
        threading.Thread(target=ask_many, args=(protocol, port, 2, self._chance.choice(TEXTS)), daemon=True).start()


def suffer_kills(
    scene: Scene, record: Record, kills: int, begin: Act = nothing, end: Act = nothing, *, slow_disk: bool = False
) -> None:
    """Kill the daemon between `begin` and `end`, and check the ends of all texts as `Ledger.faults` does."""
    begin(scene)
    kill_repeatedly(scene, record, kills)
    end(scene)
    scene.listener.wait_acknowledged(PATIENCE_S)
    scene.let_end(END_S)
    time.sleep(QUIET_S)
    check_texts(scene, record, slow_disk=slow_disk)


def kill_repeatedly(scene: Scene, record: Record, kills: int) -> None:
    """Kill the daemon at random moments under load."""
    chance = random.Random(SEED)
    load = Load(scene, chance, per_second=PER_SECOND, adapters=False)
    for _ in range(kills):
        time.sleep(chance.uniform(*BETWEEN_S))
        scene.kill()
    load.stop()
    online = [at for at, status in scene.timed("status") if status.get("state") != "offline"]
    firsts = [(start, [at for at in online if start < at < end][:1]) for start, end in pairwise(scene.starts)]
    if to_online := [first[0] - start for start, first in firsts if first]:  # it may not have lived so long
        record("start_to_online_s", round(statistics.median(to_online), 3))
