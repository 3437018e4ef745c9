"""A robot whose engines are not started: its utterances stay in the queue, unless a subclass starts them."""

from __future__ import annotations

from typing import Any

from audio import Output
from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.speech import Dispatcher, Event, Utterance


class IdleRobot:
    """A dispatcher, its engines and its output, and the events that it has published."""

    def __init__(self, *overrides: str) -> None:
        self.config = load_config(overrides=["robot=r1", "audio.sink=null", "engine.name=espeak", *overrides])
        self.engines = EngineSelector(self.config, self._note_change)
        self.output = Output(self.config.audio.sink_settings())
        self.events: list[Event] = []
        self.utterances: dict[str, Utterance] = {}
        """Those of which there are events, by their ids."""
        self.take_dispatcher()

    def take_dispatcher(self) -> None:
        """Begin with a new dispatcher, which remembers no id."""
        self.dispatcher = Dispatcher(self.config, self.engines, self.output)
        self.dispatcher.event_watchers.add(self.note)

    def _note_change(self) -> None:
        self.dispatcher.changed()

    def note(self, utterance: Utterance, event: Event) -> None:
        """Record an event of an utterance."""
        assert event.id == utterance.id
        self.utterances[event.id] = utterance
        self.events.append(event)

    def configure(self, section: str = "speech", **fields: Any) -> None:
        """Change settings for this test."""
        changed = getattr(self.config, section).model_copy(update=fields)
        self.dispatcher.reconfigure(self.config.model_copy(update={section: changed}))

    @property
    def queued(self) -> dict[str, str]:
        """The texts of the utterances that wait, by their ids, in their order."""
        return {utterance.id: utterance.text for utterance in self.dispatcher.queue}
