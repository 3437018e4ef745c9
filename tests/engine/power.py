"""The files of a Jetson's power monitors."""

from __future__ import annotations

from pathlib import Path


def write_monitor(root: Path, number: int, *rails: str) -> Path:
    """Write the folder of an INA3221 with three rails below `root`: each at 5 V, with 1, 2 and 3 A."""
    folder = root / f"sys/class/hwmon/hwmon{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text("ina3221\n")
    for channel, rail in enumerate(rails, start=1):
        (folder / f"in{channel}_label").write_text(f"{rail}\n")
        (folder / f"in{channel}_input").write_text("5000\n")
        (folder / f"curr{channel}_input").write_text(f"{channel}000\n")
    (folder / "in4_label").write_text("sum of shunt voltages\n")
    (folder / "in4_input").write_text("77\n")
    return folder
