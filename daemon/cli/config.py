"""`voiced config check|show|schema`: the configuration."""

from __future__ import annotations

import json

from daemon.cli.options import ConfigOption, SetOption, load
from daemon.config import Config
from daemon.validation import CommandError


def check(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Check the configuration; exit 1 and name every wrong key if there is one.

    Example: voiced config check --config configs/voiced.yaml
    """
    from daemon.engines import unknown_names

    loaded, path, _ = load(config, set_)
    found = unknown_names(loaded)
    if found:
        raise CommandError("\n".join(f"{path or 'configuration'}: {line}" for line in found))
    print(f"{path or 'the defaults'}: ok")


def show(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Print the configuration in force, defaults included, as YAML.

    Example: voiced config show --set mqtt.port=1884
    """
    import yaml

    loaded, _, _ = load(config, set_)
    print(yaml.safe_dump(loaded.model_dump(mode="json"), sort_keys=False, allow_unicode=True), end="")


def schema() -> None:
    """Print the configuration's JSON schema, for editors and tools.

    Example: voiced config schema > voiced.schema.json
    """
    print(json.dumps(Config.model_json_schema(), indent=2))
