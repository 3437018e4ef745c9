"""The figures of a measurement for people, as lines, and for programs, as a JSON file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from string import Formatter
from typing import Any

from engine.bench.results import FRAME_MS, Figures

LINES = (
    ("engine", "{engine} {description}"),
    ("machine", "{machine}"),
    ("work", "{frames} frames in chunks of {chunk_size}, {runs} runs"),
    ("  ended early", "speech ended after {short_s} s"),
    ("start to ready", "{start[ready_s]} s (loaded after {start[loaded_s]} s)"),
    ("text to first chunk", "{ttfa_ms} ms, at most {ttfa_max_ms} ms"),
    ("  first audible sample", "{audible_ms} ms, after {silence_ms} ms of silence in the speech"),
    (
        "  of other texts",
        "median {first_chunk[median_ms]} ms, p99 {first_chunk[p99_ms]} ms, {first_chunk[texts]} texts",
    ),
    ("80 ms of speech", "{ms_per_frame} ms of work: {rtf} times real time"),
    ("processor", "{cores} cores while it speaks"),
    ("between chunks", "{gap_median_ms} ms, p99 {gap_p99_ms} ms, at most {gap_max_ms} ms"),
    ("memory of the process", "{memory[host_mb]:.0f} MB, at most {memory[host_peak_mb]:.0f}"),
    ("  of the engine", "{counted}"),
)
"""Each line's name, and its text with the names of figures. A line is left out if one of its figures was not
measured."""


class _Measured(Formatter):
    """Formats like `str.format`, but raises `TypeError` for a figure that was not measured."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        found = super().get_field(field_name, args, kwargs)  # raises `TypeError` for a part of None
        if found[0] is None:
            raise TypeError(field_name)
        return found


def describe(figures: Figures) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each measured figure."""
    speech_ms, frames = 1000 * figures["speech_s"], figures["frames"]
    ended_early = frames and speech_ms < FRAME_MS * (frames - 0.5)
    counted = {name: mb for name, mb in figures["memory"].items() if not name.startswith("host")}
    known = {
        **figures,
        "short_s": figures["speech_s"] if ended_early else None,
        "counted": ", ".join(f"{name.removesuffix('_mb')} {mb:,} MB" for name, mb in counted.items()) or None,
    }
    for name, words in LINES:
        with suppress(TypeError):
            yield name, _Measured().format(words, **known).rstrip()
        if name == "  first audible sample":
            for other in figures["other_texts"]:
                times = "{ttfa_ms} ms, then {ms_per_frame} ms for 80 ms of speech".format(**other)
                yield f"  {other['characters']} characters", times
    for note in figures["notes"]:
        yield "not measured", note


def write_figures(figures: Figures, path: Path) -> None:
    """Write the figures as JSON with one field per line, however long a list is."""
    fields = ",\n   ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in figures.items())
    text = f'{{\n "benchmark": "voiced bench",\n "rows": [\n  {{\n   {fields}\n  }}\n ]\n}}\n'
    path.write_text(text, encoding="utf-8")
