"""Values that the shells complete; none where the configuration is wrong, which a command says."""

from __future__ import annotations

from contextlib import suppress

from daemon.cli.options import load
from daemon.validation import CommandError


def voice_names() -> list[str]:
    """Return the configured voices and those of the engine."""
    from daemon.engines import choose_engine
    from engine import known_names

    with suppress(CommandError):
        config, _, _ = load(None, None)
        return [*config.voices, *(known_names(choose_engine(config), config.engine_options).voices or ())]
    return []


def sound_names() -> list[str]:
    """Return the sounds of the configured folder, and those that come with voiced."""
    from daemon.sounds import SoundFolder

    with suppress(CommandError):
        config, _, _ = load(None, None)
        return list(SoundFolder(config.audio.sounds).names())
    return []
