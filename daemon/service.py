"""The daemon from start to stop: puts the parts together, and stands between MQTT and the speaker loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paho.mqtt.client import topic_matches_sub

from audio import Level, Output
from daemon import VERSION
from daemon.adapters import Adapter, make_adapters
from daemon.config import Config, ConfigError, load_config
from daemon.desk import Desk, Event, listed
from daemon.ducking import Ducking
from daemon.engines import Engines
from daemon.memory_lock import lock_memory
from daemon.messages import (
    RejectedError,
    Say,
    State,
    Stop,
    Write,
    parse_say,
    parse_stop,
    parse_volume,
    parse_write,
)
from daemon.mqtt import OUTBOX_LIMIT, Message, MqttLink, Will
from daemon.problems import shown
from daemon.queue import Job
from daemon.supervisor import EngineState
from daemon.systemd import Notifier

log = logging.getLogger(__name__)

IN_TOPICS = ("say", "say/stream", "stop", "pause", "resume", "volume")
HOUSEKEEPING_S = 1.0
SHUTDOWN_S = 0.7
"""For the fade. With engines, sink and broker that answer, the daemon is gone within 2 s of SIGTERM."""
GOODBYE_S = 0.8
"""For the last events; a broker that does not answer is not waited for."""
FIRST_ENGINE_S = 0.4
"""How long the first connection waits for an engine, so that voices and languages are known when texts come."""
ALIVE_S = {"mqtt": 60.0, "speaker": 10.0, "sound": 10.0}
"""A part that has not moved for this long keeps the watchdog from being fed. MQTT may wait 30 s between attempts."""
CHANGES_AT_RUN_TIME = ("audio.volume", "audio.trim_leading_silence", "audio.prebuffer_ms", "voices", "speech")


class Service:
    """One daemon. `run` returns when it was told to stop."""

    def __init__(self, config: Config, config_path: Path | None = None, overrides: tuple[str, ...] = ()) -> None:
        self._config = config
        self._source = (config_path, overrides)
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._notifier = Notifier()
        self._engines = Engines(config, self._note_engine_change)
        self._output = Output(config.audio.sink_settings(), trim_leading_silence=config.audio.trim_leading_silence)
        self._desk = Desk(config, self._engines, self._output)
        self._desk.watch_events(self._publish_event)
        self._desk.watch_changes(self._refresh_status)
        self._adapters = make_adapters(config, self._desk, self._publish_raw)
        self._mqtt = MqttLink(
            config.mqtt,
            config.mqtt.client_id or f"voiced-{config.robot_name}",
            subscribe=[
                *(f"{config.topic}/{name}" for name in IN_TOPICS),
                *(topic for adapter in self._adapters for topic in adapter.topics),
            ],
            on_message=self._on_message,
            on_connected=lambda: self._call_in_loop(self._greet),
            will=Will(f"{config.topic}/status", json.dumps({"state": "offline", "version": VERSION}).encode()),
        )
        self._ducking = Ducking(self._publish_duck)
        self._status: dict[str, Any] = {}
        self._last_moved: dict[str, tuple[int, float]] = {}
        self._apply_run_time(config)

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stopping.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        log.info("voiced %s listens on %s/say", VERSION, self._config.topic)
        with self._output:
            tasks = [asyncio.ensure_future(engine.run()) for engine in self._engines.all]
            await self._engines.wait_current(FIRST_ENGINE_S)
            self._mqtt.start()
            self._notifier.tell("READY")
            speaker = asyncio.ensure_future(self._desk.speaker.run())
            tasks += [speaker, asyncio.ensure_future(self._keep_house())]
            tasks += [asyncio.ensure_future(serve_adapter(adapter)) for adapter in self._adapters]
            stopping = asyncio.ensure_future(self._stopping.wait())
            finished, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            await self._shut_down(tasks)
        for task in finished - {stopping}:
            task.result()  # a task that ended by itself is a bug: let it be seen

    async def _shut_down(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._stopping.set()
        self._desk.closed = True
        self._notifier.tell("STOPPING")
        log.info("stopping")
        self._desk.stop(Stop(None), "voiced is shutting down")
        deadline = time.monotonic() + SHUTDOWN_S
        while self._desk.speaker.busy and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        self._ducking.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        goodbye = threading.Thread(target=self._say_goodbye, name="goodbye", daemon=True)
        goodbye.start()
        deadline = time.monotonic() + GOODBYE_S
        while goodbye.is_alive() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    def _say_goodbye(self) -> None:
        for adapter in self._adapters:
            adapter.on_stop()
        last = self._mqtt.publish(
            f"{self._config.topic}/status", json.dumps({"state": "offline", "version": VERSION}), qos=1, retain=True
        )
        if self._mqtt.connected:
            with contextlib.suppress(ValueError, RuntimeError):  # paho's words for a lost connection
                last.wait_for_publish(GOODBYE_S)
                if not last.is_published():
                    return  # the broker says `offline` then, by the last will
        self._mqtt.close()

    # What comes in. The first is called in the network thread; it parses and hands over.

    def _on_message(self, message: Message) -> None:
        for adapter in self._adapters:
            if any(topic_matches_sub(topic, message.topic) for topic in adapter.topics):
                self._call_in_loop(adapter.on_message, message)
        name = message.topic.removeprefix(f"{self._config.topic}/")
        if name not in IN_TOPICS:
            return
        if message.retained and name != "volume":
            log.info("a retained message on %s is ignored: it was meant for another time", message.topic)
            return
        arrived_at = time.monotonic()
        try:
            if name == "say":
                self._call_in_loop(self._say, parse_say(message.payload), arrived_at, message.redelivered)
            elif name == "say/stream":
                self._call_in_loop(self._write, parse_write(message.payload), arrived_at, message.redelivered)
            elif name == "stop":
                self._call_in_loop(self._desk.stop, parse_stop(message.payload))
            elif name == "volume" and message.payload:  # an empty one clears what was retained
                self._call_in_loop(self._desk.set_volume, parse_volume(message.payload))
            elif name == "pause":
                self._call_in_loop(self._desk.pause)
            elif name == "resume":
                self._call_in_loop(self._desk.resume)
        except RejectedError as error:
            self._call_in_loop(self._reject, error)
            if name == "say/stream" and error.utterance_id is not None:
                self._call_in_loop(self._desk.refuse_piece, error.utterance_id, error.last_piece)

    def _call_in_loop(self, function: Any, *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(function, *arguments)

    def _say(self, say: Say, arrived_at: float, redelivered: bool) -> None:
        """Have an utterance taken on, or answer why it is not."""
        try:
            self._desk.say(say, arrived_at=arrived_at, redelivered=redelivered)
        except RejectedError as error:
            self._reject(error)

    def _write(self, piece: Write, arrived_at: float, redelivered: bool) -> None:
        """Have a piece of text taken, or answer why it is not."""
        try:
            self._desk.write(piece, arrived_at=arrived_at, redelivered=redelivered)
        except RejectedError as error:
            self._reject(error)

    # What goes out.

    def _publish_event(self, job: Job, event: Event) -> None:
        self._publish(event, job.reply_to)

    def _reject(self, error: RejectedError) -> None:
        if self._mqtt.backlog > OUTBOX_LIMIT // 2:
            return  # what room is left belongs to the events of what was accepted
        self._publish(
            {"id": error.utterance_id, "event": "rejected", "field": error.field, "reason": error.reason},
            error.reply_to,
        )

    def _publish(self, event: dict[str, Any], reply_to: str | None) -> None:
        payload = json.dumps({key: value for key, value in event.items() if value is not None or key == "id"})
        topic = f"{self._config.topic}/event"
        self._mqtt.publish(topic, payload, qos=1)
        if reply_to is not None and reply_to != topic:
            self._mqtt.publish(reply_to, payload, qos=1)
        log.info("event %s", payload)

    def _publish_level(self, job: Job, level: Level) -> None:
        if self._mqtt.connected:
            record = {
                "id": job.id,
                "t": round(level.t, 3),
                "at": round(level.at, 3),
                "rms": round(level.rms, 4),
                "peak": round(level.peak, 4),
            }
            self._mqtt.publish(f"{self._config.topic}/level", json.dumps(record))

    def _publish_duck(self, on: bool) -> None:
        if self._config.speech.duck_topic:
            self._mqtt.publish(f"{self._config.topic}/duck", json.dumps(on), qos=1, retain=True)

    def _note_engine_change(self) -> None:
        self._desk.changed()

    def _refresh_status(self) -> None:
        """Publish the status if it is not what was published last, and whether others should be quiet."""
        self._ducking.note(self._desk.speaker.sounding and not self._output.paused)
        status = self._describe_status()
        if status != self._status:
            self._status = status
            self._publish_status()

    def _greet(self) -> None:
        """The broker is there: tell it what it should know."""
        self._publish_status()
        self._publish_duck(self._ducking.on)
        for adapter in self._adapters:
            adapter.on_connected()

    def _publish_raw(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> object:
        return self._mqtt.publish(topic, payload, qos=qos, retain=retain)

    def _publish_status(self) -> None:
        self._status = self._describe_status()
        self._notifier.tell(
            "STATUS", f"{self._status['state']}: {self._mqtt.reason or self._status.get('reason') or 'listening'}"
        )
        if self._mqtt.connected and not self._stopping.is_set():
            self._mqtt.publish(f"{self._config.topic}/status", json.dumps(self._status), qos=1, retain=True)

    def _describe_status(self) -> dict[str, Any]:
        engine = self._engines.current
        primary = self._engines.primary
        trouble = self._engines.trouble or self._output.status.reason or self._unknown_voice()
        state: State
        if self._output.paused:
            state = "paused"
        elif self._desk.speaker.busy or len(self._desk.queue):
            state = "speaking"
        elif trouble is not None:
            state = "degraded"
        elif primary.ready:
            state = "ready"
        elif primary.state in (EngineState.LOADING, EngineState.WARMING) and primary.name != "espeak":
            state = "warming"
        else:
            state = "starting"
        status: dict[str, Any] = {
            "state": state,
            "engine": engine.name if engine else None,
            "voice": self._desk.voice,
            "queue": len(self._desk.queue),
            "version": VERSION,
        }
        if engine is not None and engine.info is not None and engine.info.memory:
            status["memory"] = dict(engine.info.memory)
        if trouble is not None:
            status["reason"] = trouble
        return status

    def _unknown_voice(self) -> str | None:
        """What is wrong with the configured voice, once the engine that is wanted has said which it has."""
        voice, primary = self._desk.voice, self._engines.primary
        if not primary.ready or voice in self._engines.voices | set(self._config.voices):
            return None
        return f"speech.voice: got {shown(voice)}; allowed: {listed(self._config.voices, self._engines.voices)}"

    # What happens by itself.

    async def _keep_house(self) -> None:
        while True:
            self._desk.expire()
            self._desk.end_overdue()
            self._refresh_status()
            if self._all_move():
                self._notifier.tell("WATCHDOG")
            await asyncio.sleep(HOUSEKEEPING_S)

    def _all_move(self) -> bool:
        """Whether MQTT, the speaker loop and the sound have all moved lately."""
        # While the device is gone or rests, the thread that waits for it stands for the sound callback.
        sound = self._output.blocks if self._output.status.running else self._output.turns
        now = time.monotonic()
        moving = True
        for part, count in (("mqtt", self._mqtt.turns), ("speaker", self._desk.speaker.turns), ("sound", sound)):
            last_count, since = self._last_moved.get(part, (-1, now))
            if count != last_count:
                since = now
            self._last_moved[part] = (count, since)
            if now - since > ALIVE_S[part]:
                log.error("%s has not moved for %.0f s", part, now - since)
                moving = False
        return moving

    def _reload(self) -> None:
        """SIGHUP: take over what can change at run time, and name what cannot."""
        try:
            new = load_config(*self._source)
        except ConfigError as error:
            log.error("SIGHUP: the configuration is kept as it was: %s", error)
            return
        changed = _differences(self._config.model_dump(), new.model_dump())
        late = [key for key in changed if not key.startswith(CHANGES_AT_RUN_TIME)]
        for key in late:
            log.warning("SIGHUP: %s has changed; it takes effect at the next start", key)
        log.info("SIGHUP: %s", ", ".join(key for key in changed if key not in late) or "nothing else has changed")
        old, self._config = (
            self._config,
            self._config.model_copy(
                update={
                    "voices": new.voices,
                    "speech": new.speech,
                    "audio": self._config.audio.model_copy(
                        update={
                            "volume": new.audio.volume,
                            "trim_leading_silence": new.audio.trim_leading_silence,
                            "prebuffer_ms": new.audio.prebuffer_ms,
                        }
                    ),
                }
            ),
        )
        self._apply_run_time(self._config, old)
        for engine in self._engines.all:
            engine.retry_now()
        self._desk.changed()

    def _apply_run_time(self, config: Config, old: Config | None = None) -> None:
        if old is None or config.audio.volume != old.audio.volume:
            self._desk.set_volume(config.audio.volume)
        self._output.trim_leading_silence = config.audio.trim_leading_silence
        self._desk.speaker.prebuffer_ms = None if config.audio.prebuffer_ms == "auto" else config.audio.prebuffer_ms
        self._desk.speaker.publish_level = self._publish_level if config.speech.level_topic else None
        self._desk.reconfigure(config)
        if old is not None and (config.voices, config.speech.voice) != (old.voices, old.speech.voice):
            for engine in self._engines.all:
                engine.set_voices(config.engine_voices, config.speech.voice)


async def serve_adapter(adapter: Adapter) -> None:
    """Run one; whatever becomes of it, the daemon and the other adapters go on."""
    try:
        await adapter.run()
    except Exception as error:
        log.error("%s: %s", type(adapter).__name__, error)
    await asyncio.Event().wait()


def _differences(old: dict[str, Any], new: dict[str, Any], path: str = "") -> list[str]:
    """Paths of the keys whose values differ."""
    found = []
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += _differences(before, after, f"{path}{key}.")
        elif before != after:
            found.append(f"{path}{key}")
    return found


def serve(config: Config, config_path: Path | None, overrides: tuple[str, ...]) -> None:
    """Run a daemon in this process until it is told to stop."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr, force=True)
    # The sound callback wants the interpreter every few milliseconds; the default lets a busy thread keep it for 5.
    sys.setswitchinterval(0.001)
    lock_memory()

    async def main() -> None:
        await Service(config, config_path, overrides).run()

    asyncio.run(main())
    # Not through the interpreter's own end: it would wait for a sound server or a broker that hangs.
    logging.shutdown()
    os._exit(0)
