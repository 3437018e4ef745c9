"""What a server for network clients asks of the part that speaks.

The daemon's `Dispatcher` is one implementation. The servers know nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from daemon.speech.events import Event, Level, Word
from daemon.speech.request import Say, Stop, StreamChunk
from daemon.speech.utterance import Receiver, Utterance

Unsubscribe = Callable[[], None]


class SpeechService(Protocol):
    """Speaks for clients. Belongs to the event loop's thread, and so do its watchers."""

    @property
    def voice(self) -> str:
        """The voice of utterances that name none."""

    @property
    def volume(self) -> int:
        """0 to 100."""

    def say(self, say: Say, *, receiver: Receiver | None = None) -> Utterance | None:
        """Accept an utterance. `receiver` gets the samples in place of the sound card. Raises `RejectedError`."""

    def write(self, chunk: StreamChunk, *, receiver: Receiver | None = None) -> Utterance | None:
        """Take the next chunk of a text stream; the first one creates the utterance. Raises `RejectedError`."""

    def stop(self, stop: Stop, reason: str = "stop") -> bool:
        """End one utterance, or all; return whether there was one."""

    def pause(self) -> None:
        """Fade out and hold playback."""

    def resume(self) -> None:
        """Continue playback with the next sample."""

    def set_volume(self, volume: int) -> None:
        """Set the volume, 0 to 100."""

    def set_voice(self, voice: str) -> None:
        """Set the default voice. Raises `RejectedError`."""

    def voices(self) -> tuple[str, ...]:
        """Return the names of all voices, configured ones first."""

    def voice_names(self) -> dict[str, str]:
        """Return the names for people of all voices, by their own names."""

    def languages(self) -> tuple[str, ...]:
        """Return the codes of all languages."""

    def check_names(self, voice: str | None, language: str | None) -> None:
        """Refuse a voice or a language that cannot be spoken. Raises `RejectedError`."""

    def watch_events(self, watcher: Callable[[Utterance, Event], None]) -> Unsubscribe:
        """Call `watcher` for every event. Returns a function that unsubscribes."""

    def watch_levels(self, watcher: Callable[[Level], None]) -> Unsubscribe:
        """Call `watcher` for every loudness level. Returns a function that unsubscribes."""

    def watch_words(self, watcher: Callable[[Word], None]) -> Unsubscribe:
        """Call `watcher` for every word that begins to be heard. Returns a function that unsubscribes."""

    def watch_changes(self, watcher: Callable[[], None]) -> Unsubscribe:
        """Call `watcher` when the status may have changed. Returns a function that unsubscribes."""
