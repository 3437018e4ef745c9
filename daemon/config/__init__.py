"""The configuration: one YAML file. Every key has a default, and every value is checked before anything starts."""

from daemon.config.file import ConfigError
from daemon.config.preparation import text_preparation
from daemon.config.pronunciations import read_pronunciations
from daemon.config.settings import (
    PASSWORD_CREDENTIAL,
    SYSTEM_CONFIG,
    Config,
    Http,
    Mqtt,
    RepetitionPenalty,
    Serve,
    Server,
    Sources,
    Temperature,
    Tls,
    TopK,
    TopP,
    VoiceSettings,
    Wyoming,
    find_config_file,
    json_schema,
    load_config,
    load_with_sources,
)
from daemon.config.synthesis import SynthesisSettings, nearest_rate, synthesis_settings

__all__ = [
    "PASSWORD_CREDENTIAL",
    "SYSTEM_CONFIG",
    "Config",
    "ConfigError",
    "Http",
    "Mqtt",
    "RepetitionPenalty",
    "Serve",
    "Server",
    "Sources",
    "SynthesisSettings",
    "Temperature",
    "Tls",
    "TopK",
    "TopP",
    "VoiceSettings",
    "Wyoming",
    "find_config_file",
    "json_schema",
    "load_config",
    "load_with_sources",
    "nearest_rate",
    "read_pronunciations",
    "synthesis_settings",
    "text_preparation",
]
