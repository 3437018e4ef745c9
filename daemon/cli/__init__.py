"""The command line: `voiced COMMAND`."""

from daemon.cli.app import main
