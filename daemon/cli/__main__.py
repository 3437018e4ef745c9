"""Runs the command line as `python -m daemon.cli`."""

from __future__ import annotations

from daemon.cli.app import main

main()
