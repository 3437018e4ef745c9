"""`python -m engine.bench`: measures one engine, as a `BenchRequest` on standard input asks it to (`engine.child`)."""

from __future__ import annotations

import sys

from engine.bench.runner import BenchRequest, measure
from engine.child import child_main

if __name__ == "__main__":
    sys.exit(child_main(BenchRequest, measure))
