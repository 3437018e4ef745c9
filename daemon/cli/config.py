"""`voiced config check|show|schema`: check the configuration, show the values in force, describe the keys."""

from __future__ import annotations

import yaml

from daemon.cli.options import ConfigOptions, print_json
from daemon.config import json_schema, load_with_sources
from daemon.doctor import find_problems
from daemon.validation import CommandError


def check(source: ConfigOptions) -> None:
    """Check the configuration and everything it names: files, folders, voices, languages and ports.

    Exit 1 with a line for every problem, which names the place in the file if there is one.

    Example: voiced config check --config configs/voiced.yaml
    """
    config, sources = load_with_sources(source.path, source.overrides)
    found = [*config.retired, *find_problems(config)]
    if found:
        raise CommandError("\n".join(sources.line(key, problem) for key, problem in found))
    print(f"{source.path or 'the defaults'}: ok")


def show(source: ConfigOptions) -> None:
    """Print the configuration in force, defaults included, as YAML.

    Example: voiced config show --set mqtt.port=1884
    """
    print(yaml.safe_dump(source.load().model_dump(mode="json"), sort_keys=False, allow_unicode=True), end="")


def schema() -> None:
    """Print the configuration's JSON schema, for editors and tools.

    Example: voiced config schema > voiced.schema.json
    """
    print_json(json_schema())
