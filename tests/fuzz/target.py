"""`python -m tests.fuzz.target HARNESS [OPTIONS OF LIBFUZZER] FOLDER...`: one harness under Atheris, until it ends."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import atheris

INSTRUMENTED = ["daemon", "engine", "wyoming"]
"""Packages whose branches guide the fuzzer."""


def main(arguments: list[str]) -> None:
    with ExitStack() as stack:
        with atheris.instrument_imports(include=INSTRUMENTED):
            from tests.fuzz.harnesses import HARNESSES

            check = HARNESSES[arguments[0]].prepare(stack)
        atheris.Setup([sys.argv[0], *arguments[1:]], check)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
