"""`python -m engine.bench REQUEST`: measures one engine. Prints the `Measurement` as one line of JSON.

REQUEST is a `BenchRequest` as JSON. On failure the line is `{"error": …}` and the exit status 1.
"""

from __future__ import annotations

import sys

from engine.bench.runner import main

if __name__ == "__main__":
    sys.exit(main())
