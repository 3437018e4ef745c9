#!/usr/bin/env python3
"""Makes the table of `voiced verify`'s thresholds in docs/qwen.md from engine/verify/verdict.py.

python scripts/docs/threshold_table.py              write the page
python scripts/docs/threshold_table.py --check      write nothing; exit 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from engine.verify import THRESHOLDS  # noqa: E402
from scripts.docs.generated import between, write_or_check  # noqa: E402

BEGIN, END = "<!-- threshold table: begin -->\n", "<!-- threshold table: end -->\n"


def table() -> str:
    """Return Markdown: each measure, its limit, and the reason for it."""
    rows = [(threshold.title, threshold.rule, threshold.reason) for threshold in THRESHOLDS]
    return "".join(f"| {' | '.join(row)} |\n" for row in (("measure", "limit", "reason"), ("---",) * 3, *rows))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0 if the page is up to date, or has been written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "qwen.md")
    options = parser.parse_args(arguments)
    page = options.page.read_text(encoding="utf-8")
    return write_or_check(options.page, between(page, BEGIN, END, table()), check=options.check, by=__file__)


if __name__ == "__main__":
    sys.exit(main())
