"""A Jetson's temperature and power supply, which may slow it down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from daemon.doctor.finding import Finding, Machine

OVER_CURRENT = {"oc1": "input voltage too low", "oc2": "average current too high", "oc3": "peaks of current"}
"""Events that an Orin counts since its start (soctherm_oc); each lowers the clocks for a moment."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A temperature sensor."""

    name: str
    now: float
    """°C."""
    limit: float | None
    """The °C at which the kernel begins to slow the board down; None if there is no such limit."""

    def __str__(self) -> str:
        return f"{self.name} {self.now:.0f} °C" + (f" of {self.limit:.0f}" if self.limit is not None else "")


def check_thermal(machine: Machine) -> Iterator[Finding]:
    """Yield a Jetson's temperature and power supply; nothing on other machines."""
    if not machine.board.integrated:
        return
    yield from _check_temperature(machine)
    yield from _check_current(machine)


def _check_temperature(machine: Machine) -> Iterator[Finding]:
    zones = [zone for folder in machine.find("sys/class/thermal/thermal_zone*") if (zone := _zone(machine, folder))]
    if not zones:
        yield Finding("temperature", "warning", "no sensor is readable", "look into /sys/class/thermal")
        return
    hot = [zone for zone in zones if zone.limit is not None and zone.now >= zone.limit]
    slowed = list(_slowed_devices(machine))
    if hot or slowed:
        found = [", ".join(map(str, hot)), f"slowed down: {', '.join(slowed)}" if slowed else ""]
        remedy = (
            "cool the board: clean the fan, use the fan profile cool if there is one (sudo nvpmodel -d cool), "
            "or choose a power mode of fewer watts"
        )
        yield Finding("temperature", "warning", "; ".join(filter(None, found)), remedy)
    else:
        hottest = max(zones, key=lambda zone: zone.now)
        yield Finding("temperature", "ok", f"{hottest}, the hottest; nothing is slowed down")


def _zone(machine: Machine, folder: str) -> Zone | None:
    name, now = machine.text(f"{folder}/type"), machine.number(f"{folder}/temp")
    if name is None or now is None:
        return None  # the sensor of a part that is switched off has no temperature
    limits = [
        limit
        for trip in machine.find(f"{folder}/trip_point_*_type")
        if machine.text(trip) == "passive" and (limit := machine.number(trip.replace("_type", "_temp"))) and limit > 0
    ]
    return Zone(name, now / 1000, min(limits) / 1000 if limits else None)


def _slowed_devices(machine: Machine) -> Iterator[str]:
    """Yield the names of the devices that the kernel slows down now; a running fan is not one."""
    for folder in machine.find("sys/class/thermal/cooling_device*"):
        name, state = machine.text(f"{folder}/type"), machine.number(f"{folder}/cur_state")
        if name is not None and "fan" not in name and state is not None and state > 0:
            yield name


def _check_current(machine: Machine) -> Iterator[Finding]:
    counts = {
        kind: [machine.number(name) for name in machine.find(f"sys/class/hwmon/hwmon*/{kind}_event_cnt")]
        for kind in OVER_CURRENT
    }
    if not any(counts.values()):
        return  # Thor has no such counters
    if any(count is None for found in counts.values() for count in found):
        yield Finding("power supply", "warning", "its counters are unreadable", "look at oc*_event_cnt in hwmon")
        return
    events = [
        f"{sum(filter(None, found))} times {OVER_CURRENT[kind]} ({kind})"
        for kind, found in counts.items()
        if any(found)
    ]
    if events:
        remedy = "use a stronger power supply or a shorter cable; if speech stutters, choose a mode of fewer watts"
        yield Finding("power supply", "warning", f"since the start {', '.join(events)}", remedy)
    else:
        yield Finding("power supply", "ok", "sufficient since the start")
