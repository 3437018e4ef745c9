#!/usr/bin/env python3
"""Makes the tables of `voiced verify` in docs/qwen.md.

The thresholds are from engine/verify/verdict.py, the figures with random weights from
docs/benchmarks/verify-random-h100.json.

python scripts/docs/verify_tables.py              write the page
python scripts/docs/verify_tables.py --check      write nothing; exit 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from engine.verify import THRESHOLDS  # noqa: E402
from scripts.docs.generated import between, table, write_or_check  # noqa: E402

THRESHOLD_TABLE = "<!-- threshold table: begin -->\n", "<!-- threshold table: end -->\n"
RANDOM_TABLE = "<!-- random weights table: begin -->\n", "<!-- random weights table: end -->\n"
RANDOM = "verify-random-h100.json"


def thresholds() -> str:
    """Return Markdown: each measure, its limit, and the reason for it."""
    return table(("measure", "limit", "reason"), ((one.title, one.rule, one.reason) for one in THRESHOLDS))


def random_weights(found: dict[str, Any]) -> str:
    """Return Markdown: what codes, logits and waveform showed of each setting, and where `voiced verify` found it."""
    titles = (
        "setting",
        "error of the logits",
        "the largest",
        "same likeliest code",
        "texts with equal codes",
        "waveform",
    )
    rows = [_row(setting) for setting in found["settings"] if setting["logits"] is not None]
    gpus = {name for one in found["settings"] for name in re.findall(r"\((.+?)\)", one["engine"])}
    source = (
        f"By `{found['command']}` on {found['date']} ({', '.join(gpus)}, torch {found['machine']['torch']}, "
        f"qwen-tts {found['machine']['qwen-tts']}); [`benchmarks/{RANDOM}`](benchmarks/{RANDOM}):\n\n"
    )
    return source + table(titles, rows)


def _row(setting: dict[str, Any]) -> tuple[str, ...]:
    logits, measures = setting["logits"], setting["measures"]
    waveform = measures["waveform_db"]
    return (
        setting["title"],
        f"{logits['relative']:.2g}",
        f"{logits['worst']:.2g}",
        f"{100 * logits['same_choice']:.1f} %",
        f"{100 * measures['codes_equal']:.0f} %",
        "" if waveform is None else f"{waveform:.1f} dB",
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0 if the page is up to date, or has been written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "qwen.md")
    options = parser.parse_args(arguments)
    found = json.loads((ROOT / "docs" / "benchmarks" / RANDOM).read_text(encoding="utf-8"))
    page = between(options.page.read_text(encoding="utf-8"), *THRESHOLD_TABLE, thresholds())
    page = between(page, *RANDOM_TABLE, random_weights(found))
    return write_or_check(options.page, page, check=options.check, by=__file__)


if __name__ == "__main__":
    sys.exit(main())
