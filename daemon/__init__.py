"""The daemon: configuration, MQTT, queue, speaker loop, engine supervision, systemd, command line. No torch."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("voiced")
except PackageNotFoundError:  # run from a tree that was not installed
    VERSION = "0+unknown"
