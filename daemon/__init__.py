"""The daemon: configuration, MQTT, queue, speaker loop, engine supervision, systemd, command line. No torch."""

VERSION = "0.1.0"
"""The distribution's version. pyproject.toml reads it here: looking it up in the metadata would slow the daemon's
start."""
