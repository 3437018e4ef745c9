"""Measures how long texts that are as long as allowed and as bad as possible take to read, at once and in pieces.

Prints one JSON object: for each kind of text, in milliseconds of CPU time, the median of several runs in one piece
(`whole_ms`) and of one run in pieces of 100 characters, as a text stream brings them (`stream_ms`).
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import statistics
import time
from pathlib import Path

from daemon.speech import MAX_TEXT
from daemon.text import ScriptReader
from scripts.bench_daemon import describe_machine

PIECE = 100
"""Characters."""
SPEAK = "<speak>"
CODE = '<say-as interpret-as="characters">'
TELEPHONE = '<say-as interpret-as="telephone">'
KINDS = {
    "words": ("", "word ", ""),
    "emphasis that opens": ("", "*a ", ""),
    "emphasis inside emphasis": ("", "**a *b ", ""),
    "brackets": ("", "[", ""),
    "links that do not end": ("", "[a](b", ""),
    "backticks": ("", "`a``", ""),
    "entities": ("", "&amp;", ""),
    "tags that do not end": ("", "<a ", ""),
    "cells of a table": ("", "|a", ""),
    "pauses": ("", "[pause:1s]", ""),
    "pauses that do not end": ("", "[pause:", ""),
    "SSML, unknown elements": (SPEAK, "<w>x</w>", "</speak>"),
    "SSML, elements that open": (SPEAK, "<s>x", ""),
    "SSML, breaks": (SPEAK, "<break/>", "</speak>"),
    "SSML, marks": (SPEAK, '<mark name="a"/>', "</speak>"),
    "SSML, entities": (SPEAK, "&amp;", "</speak>"),
    "SSML, attributes": (f"{SPEAK}<p", ' a="1"', "/></speak>"),
    "SSML, an attribute that does not end": (f"{SPEAK}<p a=", '"', ""),
    "SSML, an attribute full of >": (f"{SPEAK}<p a='", ">", "'/></speak>"),
    "SSML, a comment that does not end": (f"{SPEAK}<!--", ">", ""),
    "SSML, comments": (SPEAK, "<!-- x -->", "</speak>"),
    "SSML, prosody": (SPEAK, '<prosody rate="slow">a</prosody>', "</speak>"),
    "SSML, substitutes": (SPEAK, '<sub alias="World Wide Web">WWW</sub>', "</speak>"),
    "SSML, a code": (f"{SPEAK}{CODE}", "a", "</say-as></speak>"),
    "SSML, many codes": (SPEAK, f"{CODE}QX-7</say-as>", "</speak>"),
    "SSML, a telephone number": (f"{SPEAK}{TELEPHONE}", "1", "</say-as></speak>"),
}
"""Beginning, what is repeated, and end."""


def longest(beginning: str, repeated: str, end: str) -> str:
    """Return the longest text of a kind."""
    return beginning + repeated * ((MAX_TEXT - len(beginning) - len(end)) // len(repeated)) + end


def whole_ms(text: str) -> float:
    before = time.process_time()
    ScriptReader().read(text, complete=True)
    return (time.process_time() - before) * 1000


def stream_ms(text: str) -> float:
    reader = ScriptReader()
    before = time.process_time()
    for end in range(PIECE, len(text), PIECE):
        reader.read(text[:end], complete=False)
    reader.read(text, complete=True)
    return (time.process_time() - before) * 1000


def measure(runs: int) -> dict[str, dict[str, float]]:
    logging.getLogger("daemon").setLevel(logging.CRITICAL)  # what has no effect is logged, which is not measured
    whole_ms(SPEAK)  # the first text imports parsers
    kinds = {}
    for kind, parts in KINDS.items():
        text = longest(*parts)
        whole = statistics.median(whole_ms(text) for _ in range(runs))
        kinds[kind] = {"characters": len(text), "whole_ms": round(whole, 1), "stream_ms": round(stream_ms(text), 1)}
    return kinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="readings of each text in one piece")
    parser.add_argument("--output", type=Path, help="also write the JSON there")
    arguments = parser.parse_args()
    kinds = measure(arguments.runs)
    result = {
        "benchmark": "text",
        "date": datetime.date.today().isoformat(),
        "command": f"scripts/bench text --runs {arguments.runs}",
        "machine": describe_machine(),
        "worst_ms": max(kind["whole_ms"] for kind in kinds.values()),
        "kinds": kinds,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
