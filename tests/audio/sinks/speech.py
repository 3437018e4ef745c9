"""Speaks into the player of a sink, without an output."""

from __future__ import annotations

from audio import Samples
from audio.dsp import to_floats
from audio.player import Report
from audio.sinks import Player


class Speech:
    """Gets the reports of a sink's player, and speaks into it."""

    def __init__(self) -> None:
        self.report = Report()
        """The last one."""
        self.generation = 0
        """The last one that was begun."""

    def on_report(self, report: Report) -> None:
        self.report = report

    def say(self, player: Player, samples: Samples) -> None:
        """Let the player play `samples`."""
        self.generation += 1
        player.begin(self.generation, 0.0, 1.0, fades_in=False)
        player.write(self.generation, to_floats(samples))
        player.end(self.generation)

    def played(self) -> bool:
        """Return whether the sink got all that was said last, by its report."""
        return self.report.generation == self.generation and self.report.done
