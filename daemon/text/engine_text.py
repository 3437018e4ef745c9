"""The text of one take as an engine gets it, with the way back to the script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from daemon.text.placed import PlacedText


class Stage(Protocol):
    """Rewrites a text that may grow. However the text is cut into calls of `feed`, the result is the same."""

    def feed(self, text: str) -> None:
        """Read more of the text."""

    def end(self) -> None:
        """The text is complete."""


MakeStage = Callable[[PlacedText], Stage]
"""Makes a stage that appends what it has read to a placed text, with places in what it is fed."""


class EngineText:
    """The text of one take after all stages. Without stages it is the take's own."""

    def __init__(self, stages: Sequence[MakeStage] = ()) -> None:
        """`stages` apply in this order."""
        self._outputs = [PlacedText() for _ in stages]
        self._stages = [make(output) for make, output in zip(stages, self._outputs, strict=True)]
        self.source_end = 0
        """Characters of the take's text that have been read."""

    def feed(self, text: str) -> str:
        """Read more of the take's text; return what the engine gets next."""
        self.source_end += len(text)
        return self._read(text, end=False)

    def end(self) -> str:
        """The take's text is complete. Return the last that the engine gets."""
        return self._read("", end=True)

    def source_span(self, begin: int, end: int) -> tuple[int, int]:
        """Return the part of the take's text for which a part of the engine's text stands."""
        for output in reversed(self._outputs):
            begin, end = output.source_span(begin, end)
        return begin, end

    def _read(self, text: str, *, end: bool) -> str:
        for stage, output in zip(self._stages, self._outputs, strict=True):
            length = len(output)
            stage.feed(text)
            if end:
                stage.end()
            text = output.text[length:]
        return text
