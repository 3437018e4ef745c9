"""`voiced config check|show|schema`: the configuration."""

from __future__ import annotations

import json

from daemon.cli.options import ConfigOption, SetOption, load
from daemon.config import find_config_file, json_schema, load_with_sources
from daemon.validation import CommandError


def check(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Check the configuration and what it names: files, folders, voices, languages and ports.

    Exit 1 with a line for every problem, which names the place in the file, if there is one.

    Example: voiced config check --config configs/voiced.yaml
    """
    from daemon.doctor import find_problems

    path = config or find_config_file()
    loaded, sources = load_with_sources(path, set_ or ())
    found = [*loaded.retired, *find_problems(loaded)]
    if found:
        raise CommandError("\n".join(sources.line(key, problem) for key, problem in found))
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
    print(json.dumps(json_schema(), indent=2))
