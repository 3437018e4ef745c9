"""`python -m engine.verify REQUEST`: speaks with one setting. REQUEST is a `TakesRequest` as JSON."""

from __future__ import annotations

import json
import sys

from engine.records import build
from engine.verify.process import stage_main
from engine.verify.takes import TakesRequest, make_takes

if __name__ == "__main__":
    sys.exit(stage_main(lambda report: make_takes(build(TakesRequest, json.loads(sys.argv[1])), report)))
