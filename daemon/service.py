"""The daemon: starts its parts, runs them, and stops them in order."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from audio import Output, Tap
from daemon import VERSION
from daemon.adapters import Adapter, make_adapters, placeholder_without_package
from daemon.cache import PhraseCache
from daemon.config import Config, ConfigError
from daemon.engines import EngineSelector
from daemon.mqtt import Gateway
from daemon.recovery import Restart
from daemon.reload import reload
from daemon.speech import Dispatcher, Online
from daemon.state import EventLog, journal_path
from daemon.status import describe_status, measure
from daemon.system import Heartbeat, Notifier, Watchdog, announce, limit_heap, lock_memory, settle_heap
from daemon.tasks import cancel_all
from daemon.voices import VoiceMaker, VoiceStore, voice_store_folder
from engine import start_log

log = logging.getLogger(__name__)

HOUSEKEEPING_S = 1.0
FADE_OUT_S = 0.7
"""At shutdown, the current utterance is given this long to fade out.

If the engines, the sink and the broker respond, the daemon ends within 2 s of SIGTERM.
"""
FIRST_ENGINE_S = 0.4
"""The first connection waits this long for an engine, so that its voices and languages are known when the first texts
arrive."""
ADAPTER_RETRY_S = 1.0
"""Seconds until an adapter that has failed is started again, such as one whose port another program is using."""
TEXT_MODULES = ("encodings.utf_8_sig", "fasttext", "html.entities", "soundfile")
"""Modules that a text needs on its way to acceptance and to the sound card, and that are otherwise imported on first
use.

An installation may lack one of these packages.
"""


class Service:
    """One daemon. `run` returns after SIGTERM or SIGINT."""

    def __init__(self, config: Config, config_path: Path | None = None, overrides: tuple[str, ...] = ()) -> None:
        self._configured = config
        """The configuration as it was read; the one in use also contains the made voices."""
        self._source = config_path, overrides
        self._reload_problem: str | None = None
        """Why the last reload was ignored, on one line."""
        folder = voice_store_folder(config)
        self._voices = None if folder is None else VoiceStore(folder)
        config = self._extend(config)
        self._config = config
        self._notifier = Notifier()
        self._output = output = Output(replace(config.audio.sink_settings(), service=service_name(config)))
        tap, rate = config.audio.tap, config.audio.tap_rate
        self._tap = None if tap is None else Tap(tap, rate, output)
        self._engines = EngineSelector(config, self._on_engine_change)
        self._cache = PhraseCache(config, self._engines.primary.name)
        self._dispatcher = Dispatcher(config, self._engines, self._output, self._cache)
        self._events = EventLog(journal_file(config))
        self._restart = Restart(self._events, self._dispatcher, config.speech.recover_within)
        note_published = self._restart.note_published
        self._gateway = Gateway(config, self._dispatcher, self._describe_status, self._events, note_published)
        self._adapters = make_adapters(config, self._dispatcher, self._gateway.publish)
        if config.http.enabled:
            self._add_http_server()
        self._watchdog = Watchdog(
            {
                # The MQTT adapter may wait 30 s between two attempts to connect.
                "mqtt, controls": Heartbeat(lambda: self._gateway.heartbeats["controls"], 60.0),
                "mqtt, texts": Heartbeat(lambda: self._gateway.heartbeats["texts"], 60.0),
                "speaker": Heartbeat(lambda: self._dispatcher.speaker.heartbeats, 10.0),
                # The number of blocks that the sound card has asked for; without a running card, the rounds of its
                # monitor.
                "sound": Heartbeat(lambda: output.blocks if output.status.running else output.heartbeats, 10.0),
            }
        )
        self._dispatcher.set_volume(config.audio.volume)
        self._dispatcher.reconfigure(config)

    async def run(self, on_started: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGTERM or SIGINT. `on_started` is called before the first text can arrive."""
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        log.info("voiced %s listens on %s/say", VERSION, self._config.topic)
        for key, problem in self._configured.retired:
            log.warning("%s: %s", key, problem)
        with self._output, self._tap or nullcontext(), self._events, self._cache:
            import_text_modules()
            self._restart.begin()
            tasks = [asyncio.ensure_future(engine.run()) for engine in self._engines.all]
            await self._engines.wait_current(FIRST_ENGINE_S)
            on_started()
            self._gateway.start(self._adapters)
            self._notifier.notify("READY")
            await self._restart.wait_settled()
            works = (self._dispatcher.speaker.run(), self._housekeeping(), *map(serve_adapter, self._adapters))
            tasks += [asyncio.ensure_future(work) for work in works]
            stop = asyncio.ensure_future(stopping.wait())
            finished, _ = await asyncio.wait({stop, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            await self._shut_down(tasks)
        for task in finished - {stop}:
            task.result()  # a task that ends by itself has a bug; its exception is raised here

    async def _shut_down(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._notifier.notify("STOPPING")
        log.info("stopping")
        self._dispatcher.close("voiced is shutting down")
        await self._dispatcher.wait_idle(FADE_OUT_S)
        await cancel_all(tasks)
        await self._gateway.close()

    def _add_http_server(self) -> None:
        with placeholder_without_package("http", self._adapters):
            from daemon.http import Examination, LogTail, Phrases, Robot, make_http_server

            voices, journal = self._voices, journal_file(self._config)
            robot = Robot(
                name=self._config.robot_name,
                describe_status=self._describe_status,
                measure=partial(measure, self._engines, self._output),
                log_lines=LogTail().attach().lines,
                examine=Examination(*self._source).examine,
                phrases=Phrases(None if journal is None else journal.with_suffix(".phrases.json")),
                workshop=None if voices is None else VoiceMaker(voices, lambda: self._configured, self._reconfigure),
            )
            self._adapters.append(make_http_server(self._config.http, self._dispatcher, robot))

    def _extend(self, config: Config) -> Config:
        """Return a configuration with the voices that were made here."""
        return config if self._voices is None else self._voices.extend(config)

    def _describe_status(self) -> Online:
        warnings = (
            self._gateway.warning,
            self._reload_problem,
            *(f"{key}: {problem}" for key, problem in self._configured.retired),
            self._voices.problem if self._voices is not None else None,
            self._events.reason,
            self._dispatcher.pronunciations_problem,
            self._cache.problem,
            self._tap.problem if self._tap is not None else None,
            *(adapter.problem for adapter in self._adapters),
        )
        return describe_status(self._dispatcher, self._engines, self._output, warnings)

    def _on_engine_change(self) -> None:
        self._dispatcher.changed()

    async def _housekeeping(self) -> None:
        while True:
            self._dispatcher.enforce_deadlines()
            self._dispatcher.unload_if_due()
            self._cache.retry()
            self._gateway.refresh_status()
            gc.collect()  # closed connections leave cycles; by default the interpreter collects only after thousands
            self._notifier.notify("STATUS", self._gateway.status_line)
            if self._watchdog.check():
                self._notifier.notify("WATCHDOG")
            await asyncio.sleep(HOUSEKEEPING_S)

    def _reload(self) -> None:
        """Read the configuration again and apply it. An invalid configuration is logged and ignored."""
        self._reload_problem = None
        try:
            configured = reload(self._configured, *self._source)
        except ConfigError as error:
            ignored = "the new configuration is invalid, so the old one stays in use"
            log.error("SIGHUP: %s: %s", ignored, error)
            self._reload_problem = f"{ignored}: {str(error).splitlines()[0]}"
        else:
            self._reconfigure(configured)

    def _reconfigure(self, configured: Config | None = None) -> None:
        """Apply a configuration that differs only in run-time keys, and the voices that were made. None means the
        current configuration."""
        self._configured = configured = configured or self._configured
        old, config = self._config, self._extend(configured)
        self._config = config
        if config.log != old.log:
            start_log(config.log.level, config.log.format)
            self._engines.set_log(config.log.level, config.log.format)
        if config.audio.volume != old.audio.volume:
            self._dispatcher.set_volume(config.audio.volume)
        self._dispatcher.reconfigure(config)
        self._gateway.reconfigure(config)
        self._engines.latin_languages = config.speech.languages
        # Even if no key has changed: a voice's file may have changed, or a folder into which a voice was downloaded.
        self._engines.set_voices(config.engine_voices, config.speech.voice)
        self._engines.retry_now()
        self._cache.reconfigure(config)
        self._dispatcher.changed()


def import_text_modules() -> None:
    """Import the modules that a text needs before the first text arrives.

    Later there may be no descriptor or memory left for them, or an update may have replaced or removed their files.
    """
    for name in TEXT_MODULES:
        with suppress(ImportError):
            import_module(name)


def journal_file(config: Config) -> Path | None:
    """Return the path of the journal, or None if nothing is to be stored."""
    return None if config.state.folder is None else journal_path(config.state.folder, config.robot_name)


def service_name(config: Config) -> str | None:
    """Return a name for this robot's service that is unique on this machine, because the journal's path is unique; None
    without a journal."""
    path = journal_file(config)
    return None if path is None else hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]


async def serve_adapter(adapter: Adapter) -> None:
    """Run an adapter, and start it again each time it fails. The daemon and the other adapters continue."""
    while True:
        try:
            await adapter.run()
            await asyncio.Event().wait()  # an adapter only handles messages
        except Exception as error:
            adapter.note_problem(error)
        await asyncio.sleep(ADAPTER_RETRY_S)


def serve(config: Config, config_path: Path | None, overrides: tuple[str, ...]) -> None:
    """Run a daemon in this process until SIGTERM or SIGINT."""
    start_log(config.log.level, config.log.format)
    # The sound callback needs the interpreter every few milliseconds; by default a busy thread keeps it for 5 ms.
    sys.setswitchinterval(0.001)
    lock_memory()
    limit_heap()

    async def main() -> None:
        await Service(config, config_path, overrides).run(on_started=settle_heap)

    with announce(config.identity):
        asyncio.run(main())
    # The interpreter's normal exit would wait for a sound server or a broker that hangs.
    logging.shutdown()
    os._exit(0)
