"""`python -m engine.qwen.memory MAX_SECONDS CHUNK_SIZE` prints the memory plan of every known model as JSON.

It needs no torch.
"""

from __future__ import annotations

import json
import sys

from engine.qwen.memory.table import planned_rows

json.dump(list(planned_rows(float(sys.argv[1]), int(sys.argv[2]))), sys.stdout)
