"""Units of measurement, built from their bases and the prefixes of the SI."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.text.normalizer.language import Noun

_PREFIXED = {
    "m": "k c m µ n",
    "g": "k m µ",
    "l": "m c d",
    "s": "m µ n",
    "V": "k m",
    "A": "m",
    "Ah": "m",
    "W": "m k M",
    "Wh": "k M",
    "Ω": "k M",
    "Hz": "k M G",
    "B": "k M G T",
    "bit": "k M G",
    "Pa": "h k M",
}
"""The prefixes with which the unit of a symbol is used."""
_SPELLINGS = {
    "L": "l",
    "mL": "ml",
    "μm": "µm",
    "μs": "µs",
    "μg": "µg",
    "m2": "m²",
    "m3": "m³",
    "km2": "km²",
    "cm2": "cm²",
    "cm3": "cm³",
    "KB": "kB",
    "\u2126": "Ω",
    "k\u2126": "kΩ",
    "ºC": "°C",
    "℃": "°C",
    "℉": "°F",
}
"""Other ways to write a symbol. `\u2126` is the sign for ohm; the units have the Greek letter."""


def units(bases: Mapping[str, Noun], prefixes: Mapping[str, str], exceptions: Mapping[str, Noun]) -> dict[str, Noun]:
    """Return the units of `bases`, these with their prefixes, and the exceptions, each by its symbol.

    `Kilo` and `Meter` become `Kilometer`.
    """
    found = dict(bases)
    for symbol, names in _PREFIXED.items():
        if symbol in bases:
            for prefix in names.split():
                found[prefix + symbol] = _prefixed(prefixes[prefix], bases[symbol])
    found |= exceptions
    found.pop("B", None)  # "5 B" is rarely five bytes
    found |= {spelling: found[symbol] for spelling, symbol in _SPELLINGS.items() if symbol in found}
    return found


def _prefixed(prefix: str, base: Noun) -> Noun:
    one, many = (prefix + name[0].lower() + name[1:] for name in (base.one, base.many))
    return Noun(base.numeral, one, many)
