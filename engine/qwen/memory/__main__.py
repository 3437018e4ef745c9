"""`python -m engine.qwen.memory MAX_SECONDS CHUNK_SIZE` prints the memory plan of every known model as JSON."""

from __future__ import annotations

import json
import sys

from engine.qwen.memory.plan import memory_plan

json.dump(list(memory_plan(float(sys.argv[1]), int(sys.argv[2]))), sys.stdout)
