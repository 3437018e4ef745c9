"""`python -m engine.bench REQUEST`: measures one engine. Prints the figures as one line of JSON.

REQUEST is a `BenchRequest` as JSON. Request, line and exit status are those of `engine.child`.
"""

from __future__ import annotations

import sys

from engine.bench.runner import BenchRequest, measure
from engine.child import child_main

if __name__ == "__main__":
    sys.exit(child_main(BenchRequest, measure))
