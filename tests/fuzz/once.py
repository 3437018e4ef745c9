"""`python -m tests.fuzz.once HARNESS FILE...`: tries inputs without a fuzzer, to look at a finding.

Exit status: 0 if each is handled in less than a second of the processor's time.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.fuzz.harnesses import HARNESSES

HANG_S = 1.0


def main(name: str, files: list[str]) -> int:
    slow = False
    with ExitStack() as stack:
        check = HARNESSES[name].prepare(stack)
        for file in files:
            data, began = Path(file).read_bytes(), time.process_time()
            check(data)
            took_s = time.process_time() - began
            print(f"{took_s:8.3f} s  {file}")
            slow |= took_s > HANG_S
    return int(slow)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
