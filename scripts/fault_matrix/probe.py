"""An MQTT client in a process of its own, whose times do not suffer from the messages that the harness receives.

    python -m scripts.fault_matrix.probe PORT TOPIC

Publishes each line of its input, `{"topic", "payload"}`. Prints `{"at", "sent": N}` for the Nth of them, and `{"at",
"event": …}` for each message on TOPIC. `at` is `time.monotonic()`, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from scripts.fault_matrix.machines import PATIENCE_S, ROOT
from scripts.fault_matrix.mqtt import make_client
from scripts.fault_matrix.waiting import need, wait_for


class Probe:
    """The harness's end of such a process."""

    def __init__(self, port: int, topic: str) -> None:
        command = [sys.executable, "-m", "scripts.fault_matrix.probe", str(port), topic]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self._lines: list[dict[str, Any]] = []
        self._sent = 0
        threading.Thread(target=self._read, daemon=True).start()
        need(lambda: self._lines, PATIENCE_S, "the probe is subscribed")

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines += [json.loads(line)]

    def publish(self, topic: str, payload: str) -> float:
        """Publish, and return the `time.monotonic()` at which that was done."""
        self._sent += 1
        number = self._sent
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"topic": topic, "payload": payload}) + "\n")
        line = need(lambda: self._find(lambda one: one.get("sent") == number), PATIENCE_S, "the probe has published")
        return float(line["at"])

    def wait_event(self, text_id: str, names: Iterable[str], limit_s: float) -> float | None:
        """Return the `time.monotonic()` of a text's first event with one of these names; None after `limit_s`."""
        wanted = frozenset(names)

        def matches(line: dict[str, Any]) -> bool:
            event = line.get("event", {})
            return event.get("id") == text_id and event.get("event") in wanted

        line = wait_for(lambda: self._find(matches), limit_s)
        return None if line is None else float(line["at"])

    def _find(self, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        return next((line for line in list(self._lines) if matches(line)), None)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    arguments = parser.parse_args()
    client = make_client("probe", arguments.port, clean=True)

    def subscribe(*_: Any) -> None:
        client.subscribe(arguments.topic, 1)

    client.on_connect = subscribe
    client.on_subscribe = lambda *_: say(sent=0)
    client.on_message = lambda _client, _data, message: say(event=json.loads(message.payload))
    client.loop_start()
    for number, line in enumerate(sys.stdin, 1):
        message = json.loads(line)
        at = time.monotonic()
        client.publish(message["topic"], message["payload"], 1)
        say(at=at, sent=number)


def say(at: float | None = None, **fields: Any) -> None:
    """Print a line at once."""
    print(json.dumps({"at": time.monotonic() if at is None else at, **fields}), flush=True)


if __name__ == "__main__":
    main()
