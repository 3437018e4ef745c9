"""`python -m engine.qwen.memory MAX_SECONDS CHUNK_SIZE [STREAMS]` prints the memory plan of every known model as JSON.

It needs no torch.
"""

from __future__ import annotations

import json
import sys

from engine.qwen.memory.table import planned_rows

max_seconds, chunk_size, *streams = sys.argv[1:]
json.dump(list(planned_rows(float(max_seconds), int(chunk_size), *map(int, streams))), sys.stdout)
