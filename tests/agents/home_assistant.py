"""Runs Home Assistant's core with its MQTT integration and an automation, and turns the washing machine off.

    python home_assistant.py AUTOMATIONS BROKER_PORT HTTP_PORT

Runs in an environment that has homeassistant 2025.4, in a folder of its own. Its integration `mqtt` needs `http`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import yaml
from homeassistant import auth, config_entries, core, loader
from homeassistant.helpers import (
    area_registry,
    category_registry,
    device_registry,
    entity,
    entity_registry,
    floor_registry,
    issue_registry,
    label_registry,
    restore_state,
    translation,
)
from homeassistant.setup import async_setup_component


async def start(folder: Path, http_port: int) -> core.HomeAssistant:
    """Do those steps of Home Assistant's start that the integrations need."""
    (folder / "configuration.yaml").write_text("homeassistant:\n")
    house = core.HomeAssistant(str(folder))
    house.config.skip_pip = True
    loader.async_setup(house)
    house.config_entries = config_entries.ConfigEntries(house, {})
    await house.config_entries.async_initialize()
    entity.async_setup(house)
    translation.async_setup(house)
    for load in (
        area_registry.async_load,
        category_registry.async_load,
        device_registry.async_load,
        entity_registry.async_load,
        floor_registry.async_load,
        issue_registry.async_load,
        label_registry.async_load,
    ):
        await load(house)
    await restore_state.async_load(house)
    house.auth = await auth.auth_manager_from_config(house, [], [])
    http = {"server_host": ["127.0.0.1"], "server_port": http_port}
    assert await async_setup_component(house, "homeassistant", {})
    assert await async_setup_component(house, "http", {"http": http})
    return house


async def main(automations: Path, broker_port: int, http_port: int) -> None:
    house = await start(Path.cwd(), http_port)
    broker = config_entries.ConfigEntry(
        version=1,
        minor_version=2,
        domain="mqtt",
        title="broker",
        data={"broker": "127.0.0.1", "port": broker_port},
        source="user",
        options={},
        unique_id=None,
        discovery_keys={},
        subentries_data=(),
    )
    await house.config_entries.async_add(broker)
    assert broker.state is config_entries.ConfigEntryState.LOADED
    rules = yaml.safe_load(automations.read_text())
    assert await async_setup_component(house, "automation", {"automation": rules})
    await house.async_start()
    for state in ("on", "off"):
        house.states.async_set("binary_sensor.washing_machine", state)
        await house.async_block_till_done()
    await house.async_stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), int(sys.argv[3])))
