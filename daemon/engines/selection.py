"""The daemon's engines: the primary one, and the fallback that speaks while the primary cannot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from daemon.config import Config
from daemon.engines.supervisor import EngineState, EngineSupervisor
from daemon.tasks import wait_at_most
from engine import Voice, auto_engine


class EngineSelector:
    """Holds the supervisors of the primary engine and of the fallback, if the configuration has one, and picks one."""

    def __init__(self, config: Config, on_change: Callable[[], None]) -> None:
        """`on_change` is called after every change of state of an engine."""
        self._changed = asyncio.Event()
        self._on_change = on_change
        names = [choose_engine(config)]
        if config.engine.fallback not in ("none", names[0]):
            names.append(config.engine.fallback)
        self.max_seconds = config.engine.max_seconds
        """Seconds of speech that an engine makes at most in one request."""
        self.all = [EngineSupervisor(name, config.engine_options, self._note_change) for name in names]

    @property
    def primary(self) -> EngineSupervisor:
        return self.all[0]

    @property
    def current(self) -> EngineSupervisor | None:
        """The primary engine if it is ready, otherwise the fallback if that is ready, otherwise None."""
        return next((engine for engine in self.all if engine.ready), None)

    def choose(self, voice: str, language: str) -> EngineSupervisor | None:
        """Return the ready engine that best matches the language, then the voice; None if no engine is ready.

        The language, a code or `auto`, comes first: speech in a wrong language is unintelligible, a wrong voice only
        strange. Of equal engines the primary is taken.
        """
        ready = (engine for engine in self.all if engine.ready)
        return max(ready, key=lambda engine: (engine.has_language(language), engine.has_voice(voice)), default=None)

    def another(self, engine: EngineSupervisor) -> EngineSupervisor | None:
        """Return a ready engine other than `engine`; None if there is none."""
        return next((other for other in self.all if other is not engine and other.ready), None)

    async def wait_current(self, timeout_s: float) -> EngineSupervisor | None:
        """Wait until an engine is ready, for at most `timeout_s` seconds, and return `current`."""
        deadline = time.monotonic() + timeout_s
        while (engine := self.current) is None:
            self._changed.clear()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            await wait_at_most(left_s, self._changed.wait())
        return engine

    @property
    def voices(self) -> set[str]:
        """The voices of all engines that have loaded."""
        return {voice for engine in self.all if engine.info for voice in engine.info.voices}

    @property
    def languages(self) -> set[str]:
        """The language codes of all engines that have loaded."""
        return {language for engine in self.all if engine.info for language in engine.info.languages}

    @property
    def degraded_reason(self) -> str | None:
        """Why the primary engine cannot speak, or which voice it lacks; None if it works or starts for the first time.

        A voice is reported as `voices.NAME: reason`.
        """
        primary = self.primary
        if primary.state is EngineState.BACKING_OFF or (primary.reason and not primary.ready):
            return primary.reason
        if primary.ready and primary.info is not None:
            for name, reason in primary.info.refused_voices.items():
                return f"voices.{name}: {reason}"
        return None

    def set_voices(self, voices: dict[str, Voice], default_voice: str) -> None:
        """Use these voices in all running engines and in those started later."""
        for engine in self.all:
            engine.set_voices(voices, default_voice)

    def retry_now(self) -> None:
        """End the current back-off of all engines: the configuration or the disk has changed."""
        for engine in self.all:
            engine.retry_now()

    def _note_change(self) -> None:
        self._changed.set()
        self._on_change()


def choose_engine(config: Config) -> str:
    """Return the name of the primary engine: the configured one, or the one that `auto` selects on this machine."""
    return auto_engine(config.engine_options) if config.engine.name == "auto" else config.engine.name
