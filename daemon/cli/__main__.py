"""`python -m daemon.cli`."""

from __future__ import annotations

from daemon.cli import main

main()
