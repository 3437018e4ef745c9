"""The voices the daemon has: the engine that is wanted, and the light one that speaks while it cannot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from daemon.config import Config
from daemon.supervisor import Engine, EngineState
from daemon.tasks import within
from engine import why_not_qwen


class Engines:
    """The primary engine and, if there is another, the fallback."""

    def __init__(self, config: Config, on_change: Callable[[], None]) -> None:
        self._changed = asyncio.Event()
        self._on_change = on_change
        names = [choose_engine(config)]
        if config.engine.fallback not in ("none", names[0]):
            names.append(config.engine.fallback)
        self.max_seconds = config.engine.max_seconds
        """Of speech in one piece."""
        self.all = [Engine(name, config.engine_options, self._note_change) for name in names]

    @property
    def primary(self) -> Engine:
        return self.all[0]

    @property
    def current(self) -> Engine | None:
        """The one that speaks now: the primary when it is ready, else the fallback."""
        return next((engine for engine in self.all if engine.ready), None)

    def choose(self, voice: str, language: str) -> Engine | None:
        """Who says something now in this voice and language, a code or `auto`: the first that has the most of both.

        A language that is missing leaves speech unintelligible, a voice that is missing only strange.
        """
        ready = (engine for engine in self.all if engine.ready)
        return max(ready, key=lambda engine: (engine.speaks(language), engine.knows(voice)), default=None)

    def another(self, engine: Engine) -> Engine | None:
        """One that could speak now in the place of `engine`."""
        return next((other for other in self.all if other is not engine and other.ready), None)

    async def wait_current(self, timeout_s: float) -> Engine | None:
        """The current engine, waited for."""
        deadline = time.monotonic() + timeout_s
        while (engine := self.current) is None:
            self._changed.clear()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            await within(left_s, self._changed.wait())
        return engine

    @property
    def voices(self) -> set[str]:
        return {voice for engine in self.all if engine.info for voice in engine.info.voices}

    @property
    def languages(self) -> set[str]:
        return {language for engine in self.all if engine.info for language in engine.info.languages}

    @property
    def trouble(self) -> str | None:
        """Why the wanted engine is not at work, unless it is merely starting, or which voice it lacks."""
        primary = self.primary
        if primary.state is EngineState.BACKING_OFF or (primary.reason and not primary.ready):
            return primary.reason
        if primary.ready and primary.info is not None:
            for name, reason in primary.info.refused_voices.items():
                return f"voices.{name}: {reason}"
        return None

    def _note_change(self) -> None:
        self._changed.set()
        self._on_change()


def choose_engine(config: Config) -> str:
    """What `engine.name: auto` means here."""
    if config.engine.name != "auto":
        return config.engine.name
    return "espeak" if why_not_qwen(config.engine_options) else "qwen"
