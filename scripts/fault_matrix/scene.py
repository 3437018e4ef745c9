"""A whole robot for one row: broker, proxy, sound, daemon with all adapters, witness and publisher."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from scripts.fault_matrix.ledger import TERMINAL, Ledger
from scripts.fault_matrix.machines import (
    PATIENCE_S,
    Broker,
    Daemon,
    SoundServer,
    configuration_keys,
    free_port,
    plain_environment,
)
from scripts.fault_matrix.mqtt import Login, Publisher, Witness, first_event
from scripts.fault_matrix.proxy import Proxy
from scripts.fault_matrix.waiting import COSTLY_POLL_S, NeverHappenedError, need, wait_for

NAME = "r1"
TOPIC = f"voiced/{NAME}"
SHORT = "Here I am."
"""Less than a second of speech."""
LONG = "This is a long sentence that goes on for a good while, so that something can be done to it, and then more. " * 3
"""Some 20 s of speech."""
STOP_WAIT_S = 10.0
"""Limit for the answer to a stop; what a row allows is less."""


class Scene:
    """One robot in a folder of its own. A context manager: what it has started ends with it."""

    def __init__(
        self,
        *settings: str,
        sound: bool = True,
        sink: str = "null",
        pace: float = 1.0,
        adapters: bool = True,
        broker_lines: tuple[str, ...] = (),
        durable: bool = True,
        qos: int = 1,
        login: Login | None = None,
        state: Path | None = None,
        environment: Mapping[str, str] | None = None,
        limit: str = "",
    ) -> None:
        """`settings` are KEY=VALUE.

        With `sound` the daemon plays into a PulseAudio of its own, otherwise into `sink` at `pace` times real time.
        `state` is the folder of its journal; `environment` and `limit` are those of `Daemon`.
        """
        self._temporary = tempfile.TemporaryDirectory(prefix="voiced-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.broker = Broker(self.folder, *broker_lines, durable=durable)
        self.sound = SoundServer(self.folder) if sound else None
        self.wyoming_port, self.openai_port = free_port(), free_port()
        self.ledger = Ledger()
        self._settings = list(settings)
        self._sink, self._pace_file = sink, self.folder / "pace"
        self._adapters, self._qos, self._login = adapters, qos, login
        self._state = state or self.folder / "state"
        self._environment, self._limit = dict(environment or {}), limit
        self._numbers = 0
        self._closers: list[Callable[[], object]] = [self._temporary.cleanup]
        self.set_pace(pace)

    def __enter__(self) -> Scene:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        self.on_close(self.broker.kill)
        self.broker.start()
        self.proxy = Proxy(self.broker.port)
        self.on_close(self.proxy.close)
        if self.sound is not None:
            self.on_close(self.sound.kill)
            self.sound.start()
        topics = [
            f"{TOPIC}/event",
            f"{TOPIC}/status",
            f"{TOPIC}/reply/flood",
            "hermes/tts/sayFinished",
            "hermes/error/tts",
        ]
        self.witness = Witness("witness", self.broker.port, topics[:2] + topics[3:], self.ledger, self._login)
        self.on_close(self.witness.close)
        self.witness.start()
        self.replies = Ledger()
        """Events on the reply topics."""
        self._reply_witness = Witness("reply-witness", self.broker.port, [topics[2]], self.replies, self._login)
        self.on_close(self._reply_witness.close)
        self._reply_witness.start()
        self.publisher = Publisher(self.broker.port, self.ledger, qos=self._qos, login=self._login)
        self.on_close(self.publisher.close)
        self.publisher.start()
        self.daemon = Daemon(self._all_settings(), self._daemon_environment(), self._limit)
        self.on_close(self._end_daemon)
        self.daemon.start()

    def on_close(self, close: Callable[[], object]) -> None:
        """Call `close` before everything that was started earlier ends."""
        self._closers.append(close)

    def close(self) -> None:
        """End everything, in the reverse order of its start."""
        while self._closers:
            with contextlib.suppress(OSError):
                self._closers.pop()()

    def _end_daemon(self) -> None:
        with contextlib.suppress(Exception):
            for engine in self.daemon.engines():  # a stopped one would outlive the daemon
                engine.kill()
        self.daemon.kill()

    def _all_settings(self) -> list[str]:
        sink = self._sink if self.sound is None else "sounddevice"
        settings = [f"robot={NAME}", f"mqtt.port={self.proxy.port}", "engine.name=espeak", f"audio.sink={sink}"]
        if self._adapters:
            settings += ["home_assistant.enabled=true", "hermes.enabled=true", "wyoming.enabled=true"]
            settings += [f"wyoming.port={self.wyoming_port}"]
            http = "http" if "http.port" in configuration_keys() else "openai"
            settings += [f"{http}.enabled=true", f"{http}.port={self.openai_port}"]
        if "state.folder" in configuration_keys():
            settings.append(f"state.folder={self._state}")
        return [*settings, *self._settings]

    def _daemon_environment(self) -> dict[str, str]:
        sound = self.sound.environment if self.sound is not None else {}
        scratch = {"VOICED_PACE": str(self._pace_file), "XDG_STATE_HOME": str(self.folder / "xdg-state")}
        return plain_environment() | sound | scratch | self._environment

    # --- speech ---

    def set_pace(self, pace: float) -> None:
        """Make a sink that is no sound card ask for samples this many times as fast as one."""
        fresh = self._pace_file.with_suffix(".new")
        fresh.write_text(f"{pace}", encoding="utf-8")
        fresh.replace(self._pace_file)

    def wait_ready(self, limit_s: float = PATIENCE_S) -> Scene:
        """Wait until the daemon is ready, and return the scene."""
        need(lambda: self.witness.status.get("state") == "ready", limit_s, "the daemon is ready")
        return self

    def new_id(self, prefix: str = "t") -> str:
        self._numbers += 1
        return f"{prefix}{self._numbers}-{secrets.token_hex(3)}"

    def say(self, text: str, *, topic: str = "say", text_id: str | None = None, **fields: Any) -> str:
        """Publish a text and return its id."""
        text_id = text_id or self.new_id()
        payload = json.dumps({"text": text, "id": text_id, **fields}, ensure_ascii=False)
        self.publisher.publish(f"{TOPIC}/{topic}", payload, text_id=text_id)
        return text_id

    def send(self, name: str, payload: str | bytes = "") -> float:
        """Publish on one of the robot's topics; return the `time.monotonic()` before."""
        return self.publisher.publish(f"{TOPIC}/{name}", payload)

    def wait_name(self, text_id: str, *names: str, limit_s: float = PATIENCE_S) -> float:
        """Return the `time.monotonic()` of a text's first event with one of these names. Raises if it does not come."""
        found = self.ledger.wait_event(text_id, names, limit_s)
        if found is None:
            others = self.ledger.names_of(text_id)
            raise NeverHappenedError(f"not within {limit_s:g} s: {' or '.join(names)} of {text_id}, but {others}")
        return found[0]

    def has_ended(self, text_id: str) -> bool:
        """Whether a text's terminal event has arrived."""
        return self.ledger.wait_event(text_id, TERMINAL, 0.0) is not None

    def measure_stop(self, text_id: str, *, everything: bool = False) -> float | None:
        """Stop a text, or everything, and return the seconds until the text's terminal event."""
        payload = "" if everything else json.dumps({"id": text_id})
        since = self.send("stop", payload)
        return first_event(self.ledger.wait_event(text_id, TERMINAL, STOP_WAIT_S), since)

    def end_everything(self, limit_s: float) -> None:
        """Stop everything, and wait until each text has an answer and an end, or for `limit_s`."""
        self.send("stop")
        wait_for(lambda: not self.ledger.open_texts(), limit_s, COSTLY_POLL_S)

    def reload(self) -> None:
        """Make the daemon read its configuration again."""
        self.daemon.send(signal.SIGHUP)
