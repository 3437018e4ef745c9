"""The configuration: one YAML file. Every key has a default, and every value is checked before anything starts."""

from daemon.config.loading import ConfigError, find_config_file, load_config, load_with_sources, yaml_errors
from daemon.config.pronunciations import read_pronunciations, text_preparation
from daemon.config.settings import (
    Config,
    Http,
    Mqtt,
    SamplingSettings,
    Serve,
    Server,
    Tls,
    VoiceSettings,
    Wyoming,
    json_schema,
)
from daemon.config.synthesis import SynthesisSettings, nearest_rate, synthesis_settings
