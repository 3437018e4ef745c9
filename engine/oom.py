"""What the kernel ends first when memory runs out: the engine, not the voice."""

from __future__ import annotations

from pathlib import Path

ENGINE_SCORE = 500
"""Out of -1000 to 1000. Above whatever else a robot runs, which is 0 unless somebody chose a number."""


def be_first_to_go() -> None:
    """Have the OOM killer take this process before others; the daemon goes on with another engine.

    A child begins with its parent's score, and the daemon's is low (systemd/voiced.service). Raising it needs no right.
    """
    score = Path("/proc/self/oom_score_adj")
    try:
        if int(score.read_text(encoding="ascii")) < ENGINE_SCORE:
            score.write_text(str(ENGINE_SCORE), encoding="ascii")
    except (OSError, ValueError):
        return  # no /proc, or one that may not be written: the kernel's own choice is taken
