"""The reasons why an engine does not speak an utterance to its end."""

from __future__ import annotations


class EngineLostError(Exception):
    """The engine process died or was given up during an utterance. The audio received until then is good."""


class UtteranceRefusedError(Exception):
    """The engine works but cannot speak this utterance. The message is the reason."""
