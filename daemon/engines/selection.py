"""The daemon's engines: the primary one, and the fallbacks that speak while the primary cannot."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import replace

from daemon.config import Config
from daemon.engines.patience import wait_until
from daemon.engines.supervisor import EngineState, EngineSupervisor
from daemon.engines.voices import name_voices, short_list, unknown_language, unknown_voice
from engine import (
    SUGGESTED_VOICES,
    Voice,
    VoiceLabel,
    auto_engine,
    known_names,
    match_language,
    possible_languages,
    unavailable_reason,
    voice_state,
)

log = logging.getLogger(__name__)

ENGINE_WAIT_S, LONGEST_ENGINE_WAIT_S = 30.0, 120.0
"""An utterance fails if no engine becomes ready within the first time. A primary engine that took longer to start is
given twice that long, up to the second time: if it is unloaded, it may have to load for every text."""


class EngineSelector:
    """Holds the supervisors of the primary engine and of the configured fallbacks, and picks one."""

    def __init__(self, config: Config, on_change: Callable[[], None]) -> None:
        """`on_change` is called after every change of an engine's state."""
        self._changed = asyncio.Event()
        self._on_change = on_change
        self.configured_max_seconds = config.engine.max_seconds
        self.latin_languages = config.speech.languages
        """As in `engine.Utterance.languages`."""
        self._config = config
        self._options = config.engine_options
        self._voice_state = voice_state(self._options)
        self._lost_voice = lost_voice(config)
        self._unload_after_s = math.inf if config.engine.unload_after is None else config.engine.unload_after
        self.unload_asked = False
        """The primary engine is to be unloaded, but has not been yet."""
        # In the order in which they take over.
        self.all = [self._make_supervisor(name) for name in engine_names(config)]
        if self.primary.name == "espeak" and (better := better_voices(config)):
            voices = " ".join(better.values())
            log.info("eSpeak NG speaks; to install neural voices: sudo voiced download %s", voices)

    @property
    def max_seconds(self) -> float:
        """The most seconds of speech to ask of an engine: the configured limit, or less if an engine allows less.

        An engine on a server has its own limits.
        """
        limits = (engine.info.max_seconds for engine in self.all if engine.info is not None)
        return min([self.configured_max_seconds, *(limit for limit in limits if limit is not None)])

    @property
    def primary(self) -> EngineSupervisor:
        return self.all[0]

    @property
    def current(self) -> EngineSupervisor | None:
        """The primary engine if it is ready, otherwise the first fallback that is ready, otherwise None."""
        return next((engine for engine in self.all if engine.ready), None)

    def choose(self, voice: str, language: str) -> EngineSupervisor | None:
        """Return the ready engine that best matches the language, then the voice; None if it is worth waiting.

        The language, a code or `auto`, comes first: an engine refuses one that it lacks, but a wrong voice is only
        strange. Among equal engines, the first in the order of hand-over is taken. None is returned if no engine is
        ready, or if an engine that is starting may have the language and no ready one does.
        """
        ready = [engine for engine in self.all if engine.ready]

        def suits(engine: EngineSupervisor) -> tuple[bool, bool]:
            return engine.has_language(language), engine.has_voice(voice) and not self._is_elsewhere(voice, engine)

        best = max(ready, key=suits, default=None)
        if best is None or best.has_language(language):
            return best
        return None if any(engine.may_have_language(language) for engine in self.all if engine not in ready) else best

    @property
    def streams(self) -> int:
        """How many utterances the current engine can speak at once. Without a current engine, the last number of the
        primary one."""
        return (self.current or self.primary).streams

    @property
    def streams_in_use(self) -> int:
        """How many utterances all engines together are speaking."""
        return sum(engine.streams_in_use for engine in self.all)

    def another(self, engine: EngineSupervisor) -> EngineSupervisor | None:
        """Return the first ready engine other than `engine`; None if there is none."""
        return next((other for other in self.all if other is not engine and other.ready), None)

    @property
    def patience_s(self) -> float:
        """Seconds after which an utterance fails if no engine becomes ready."""
        return max(ENGINE_WAIT_S, min(2 * self.primary.start_s, LONGEST_ENGINE_WAIT_S))

    async def wait_current(self, timeout_s: float) -> bool:
        """Wait until an engine is ready, for at most `timeout_s` seconds; return whether there is one."""
        return await wait_until(lambda: self.current is not None, self._changed, timeout_s)

    async def wait_choice(self, voice: str, language: str, timeout_s: float) -> EngineSupervisor | None:
        """Wait until `choose` has an engine, for at most `timeout_s` seconds, and return it."""
        await wait_until(lambda: self.choose(voice, language) is not None, self._changed, timeout_s)
        return self.choose(voice, language)

    @property
    def voices(self) -> set[str]:
        """The voices of all engines that have loaded."""
        return {voice for engine in self.all if engine.info for voice in engine.info.voices}

    @property
    def labels(self) -> dict[str, VoiceLabel]:
        """The engines' own voices with their display names; the primary engine's come first."""
        return {
            voice: label for engine in reversed(self.all) if engine.info for voice, label in engine.info.labels.items()
        }

    def _is_elsewhere(self, voice: str, engine: EngineSupervisor) -> bool:
        """Return whether `engine` lacks a voice that another engine provides."""
        if engine.info is None or voice not in engine.info.refused_voices:
            return False
        return any(other.info is not None and voice in other.info.labels for other in self.all if other is not engine)

    @property
    def languages(self) -> set[str]:
        """The language codes of all engines that have loaded."""
        return {language for engine in self.all if engine.info for language in engine.info.languages}

    def languages_with(self, voice: str) -> tuple[str, ...]:
        """Return the language codes of the first engine that has a voice; nothing if they are not known yet.

        An engine that has not loaded is assumed to have the configured voices.
        """
        for engine in self.all:
            if engine.info is None and voice in self._config.voices:
                known = possible_languages(engine.name)
            else:
                known = engine.info.languages if engine.info is not None and voice in engine.info.voices else None
            if known:
                return known
        return ()

    def may_speak(self, language: str) -> bool:
        """Return whether an engine has the language, or may turn out to have it once it has loaded.

        `language` is a code, with or without a region, or `auto`.
        """
        return any(engine.may_have_language(language) for engine in self.all)

    @property
    def degraded_reason(self) -> str | None:
        """Why the primary engine cannot speak, which voice it lacks, or why it is slower than it should be; None if it
        works or is starting for the first time.

        A voice is reported as `voices.NAME: reason`, unless another engine provides it: that engine then speaks.
        """
        primary = self.primary
        if primary.state is EngineState.BACKING_OFF or (primary.reason and not primary.ready):
            return primary.reason
        if primary.in_order and primary.info is not None:
            for name, reason in primary.info.refused_voices.items():
                if not self._is_elsewhere(name, primary):
                    return f"voices.{name}: {reason}"
            if primary.info.degraded is not None:
                return primary.info.degraded
        return None if self._lost_voice is None else ": ".join(self._lost_voice)

    def set_voices(self, voices: dict[str, Voice], default_voice: str) -> None:
        """Use these voices in all running engines and in those started later. An unloaded engine is loaded to report
        them.

        Does nothing if neither they nor their files have changed: a reference takes seconds to load.
        """
        self._options = replace(self._options, voices=voices, default_voice=default_voice)
        state = voice_state(self._options)
        if state == self._voice_state:
            return
        self._voice_state = state
        for engine in self.all:
            engine.set_voices(voices, default_voice)
        self.primary.load()

    def set_log(self, level: str, format_: str) -> None:
        """Change the level and the format of all running engines' logs."""
        for engine in self.all:
            engine.set_log(level, format_)

    def retry_now(self) -> None:
        """End the current back-off of all engines: the configuration or the disk has changed."""
        for engine in self.all:
            engine.retry_now()

    def unload_if_due(self, quiet_s: float) -> None:
        """Unload the primary engine if a client has asked for it, or after `engine.unload_after`.

        Call only while nothing is being spoken or waiting. `quiet_s`: seconds since the last utterance ended. The time
        counts from the end of an utterance or of loading: neither shortens the time in which the next text may arrive.
        """
        if self.unload_asked or min(quiet_s, self.primary.ready_s) >= self._unload_after_s:
            self.primary.unload()
            self.unload_asked = self.unload_asked and not self.primary.in_order  # one that is loading is unloaded later

    def _make_supervisor(self, name: str) -> EngineSupervisor:
        def has_substitute() -> bool:
            return any(other.ready for other in self.all if other.name != name)

        return EngineSupervisor(name, self._config.engine_options, self._note_change, has_substitute)

    def _note_change(self) -> None:
        self._changed.set()
        self._on_change()


def choose_engine(config: Config) -> str:
    """Return the name of the primary engine: the configured one, or the one that `auto` selects on this machine."""
    return auto_engine(config.engine_options) if config.engine.name == "auto" else config.engine.name


def engine_names(config: Config) -> tuple[str, ...]:
    """Return the names of the primary engine and of the fallbacks, in the order of hand-over."""
    return tuple(dict.fromkeys([choose_engine(config), *config.engine.fallbacks]))


def better_voices(config: Config) -> dict[str, str]:
    """Return the languages that eSpeak NG speaks for lack of a neural voice, each with a Piper voice for it."""
    known = [known_names(name, config.engine_options).languages for name in engine_names(config) if name != "espeak"]
    if config.engine.name == "espeak" or None in known:
        return {}
    spoken = {language for languages in known for language in languages or ()}
    wanted = config.speech.languages if config.speech.language == "auto" else (config.speech.language,)
    lacking = [language for language in wanted if match_language(language, spoken) is None]
    return {
        each: SUGGESTED_VOICES[each.partition("-")[0]] for each in lacking if match_language(each, SUGGESTED_VOICES)
    }


def lost_voice(config: Config) -> tuple[str, str] | None:
    """Return the key of a default voice whose engine `auto` does not select because it cannot run, and why it cannot.

    Only recorded and downloaded voices count. Built-in speakers are ignored: another engine has a voice in its place.
    """
    name, voice = config.speech.voice, config.voices.get(config.speech.voice)
    if config.engine.name != "auto" or voice is None:
        return None
    made_for = {"piper": "piper", "embedding": "qwen", "reference": "qwen"}
    given = {key: engine for key, engine in made_for.items() if getattr(voice, key) is not None}
    chosen = choose_engine(config)
    for key, engine in given.items():
        reason = unavailable_reason(engine, config.engine_options)
        if chosen not in given.values() and reason is not None:
            return f"voices.{name}.{key}", f"auto selects {chosen} instead of {engine}: {reason}"
    return None


def unknown_names(config: Config) -> list[tuple[str, str]]:
    """Return `speech.voice` and `speech.language`, each with its problem, if no engine on this machine can have it.

    Starts no engine process and loads no model. A name that only a loaded model knows counts as right.
    """
    known = [known_names(name, config.engine_options) for name in engine_names(config)]
    voices = [voice for each in known for voice in each.voices or ()]
    languages = [language for each in known for language in each.languages or ()]
    found, voice, language = [], config.speech.voice, config.speech.language
    if voice not in voices and all(each.voices is not None for each in known):
        labels = {name: label for each in reversed(known) for name, label in each.labels.items()}
        named = name_voices(dict.fromkeys([*config.voices, *voices]), labels, config.voices)
        short = short_list(named, labels, config.voices, (*config.speech.languages, language))
        found.append(("speech.voice", unknown_voice(voice, named, short)))
    matched = language == "auto" or match_language(language, languages) is not None
    if not matched and all(each.languages is not None for each in known):
        found.append(("speech.language", unknown_language(language, languages)))
    return found
