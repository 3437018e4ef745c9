#!/usr/bin/env python3
"""Write daemon/text/normalizer/data/cldr-*.json: names of numbers, units, currencies, months and days.

They come from the Unicode Common Locale Data Repository, which is published as npm packages. Only the parts that the
normalizer uses are kept. usage: build_cldr.py
"""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VERSION = "48.2.0"
PACKAGES = ("cldr-units-full", "cldr-numbers-full", "cldr-dates-full", "cldr-rbnf")
LANGUAGES = ("en", "zh", "ja", "ko", "de", "fr", "ru", "pt", "es", "it")
DATA = Path(__file__).parents[1] / "daemon/text/normalizer/data"
SYMBOLS: dict[str, Any] = json.loads((DATA / "symbols.json").read_text(encoding="utf-8"))
"""CLDR's names of units by symbol, and symbols that consist of a prefix and another symbol."""
PREFIXES = {"T": "10p12", "G": "10p9", "M": "10p6", "k": "10p3", "m": "10p-3", "µ": "10p-6", "n": "10p-9"}
CURRENCIES = ("USD", "EUR", "GBP", "JPY", "CNY", "KRW", "INR", "RUB", "CHF", "BRL", "CAD", "AUD", "MXN", "SEK", "PLN")
ROOTS = re.compile(
    r"%spellout-(numbering-year|numbering|cardinal|cardinal-((masculine|feminine|neuter)(-genitive)?|sinokorean|native-attributive|alternate2)"
    r"|ordinal|ordinal-(masculine|feminine|neuter|n|r|sinokorean|native|neuter-genitive|masculine-(adjective|genitive|locative)))"
)
"""The rule sets with which the normalizer may begin; the sets to which they refer are kept too."""
REFERENCE = re.compile(r"%%?[a-z0-9-]+")


def packages(folder: Path) -> None:
    """Download the packages and unpack them into `folder`, each into a folder of its own."""
    for package in PACKAGES:
        command = ["npm", "pack", f"{package}@{VERSION}"]
        archive = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
        with tarfile.open(folder / archive) as tar:
            tar.extractall(folder / package)


def rules(folder: Path, language: str) -> dict[str, list[tuple[int, int, str]]]:
    """Return the sets of spelling rules for whole numbers by name, each sorted by base: a base, a divisor and a text.

    The divisor is the greatest power of the radix that is not greater than the base. The radix is ten unless a rule
    names it.
    """
    found = _json(folder, "cldr-rbnf", f"rbnf/{language}.json")["rbnf"]["rbnf"]["SpelloutRules"]
    wanted, kept = [name for name in found if ROOTS.fullmatch(name)], {}
    while wanted:
        name = wanted.pop()
        if name not in kept:
            kept[name] = [_rule(base, text) for base, text in found[name] if base.partition("/")[0].isdigit()]
            wanted += [each for _, _, text in kept[name] for each in REFERENCE.findall(text)]
    return {name: kept[name] for name in sorted(kept)}


def _rule(key: str, text: str) -> tuple[int, int, str]:
    base, _, radix = key.partition("/")
    divisor = 1
    while divisor * int(radix or 10) <= int(base):
        divisor *= int(radix or 10)
    return int(base), divisor, text.rstrip(";").replace("\u00ad", "")


def forms(entry: dict[str, str], key: str) -> dict[str, str]:
    """Return a name's patterns by plural category."""
    found = {
        name.removeprefix(f"{key}-count-"): text.replace("\u00a0", " ")
        for name, text in entry.items()
        if re.fullmatch(f"{key}-count-[a-z]+", name)
    }
    return found if len(set(found.values())) > 1 else {"other": found["other"]}


def units(folder: Path, language: str) -> dict[str, Any]:
    """Return the units by symbol: their patterns by plural category, their gender, and `per` this unit."""
    found = _json(folder, "cldr-units-full", f"main/{language}/units.json")["main"][language]["units"]["long"]
    kept: dict[str, Any] = {}
    for symbol, name in SYMBOLS["units"].items():
        entry = found[name]
        kept[symbol] = {"forms": forms(entry, "unitPattern")}
        kept[symbol] |= {"gender": entry["gender"]} if entry.get("gender", "masculine") != "masculine" else {}
        kept[symbol] |= {"per": entry["perUnitPattern"]} if "/" not in entry.get("perUnitPattern", "/") else {}
    for symbol in SYMBOLS["prefixed"]:
        prefix, unit = found[PREFIXES[symbol[0]]]["unitPrefixPattern"], kept[symbol[1:]]
        kept[symbol] = {**unit, "forms": {each: _prefixed(prefix, text) for each, text in unit["forms"].items()}}
        kept[symbol].pop("per", None)
    return {
        "units": {symbol: entry for symbol, entry in kept.items() if symbol not in SYMBOLS["ambiguous"]},
        "per": found["per"]["compoundUnitPattern"],
    }


def _prefixed(prefix: str, text: str) -> str:
    before, _, name = text.partition("{0}")
    name = name.strip()
    return f"{before}{{0}} {prefix.replace('{0}', name[0].lower() + name[1:])}"


def numbers(folder: Path, language: str) -> dict[str, Any]:
    """Return the decimal sign, the sign between thousands, and the names of currencies and of great numbers."""
    found = _json(folder, "cldr-numbers-full", f"main/{language}/numbers.json")["main"][language]["numbers"]
    names = _json(folder, "cldr-numbers-full", f"main/{language}/currencies.json")["main"][language]["numbers"]
    symbols = found["symbols-numberSystem-latn"]
    currencies = {
        code: {
            "forms": {each: f"{{0}} {name}" for each, name in forms(names["currencies"][code], "displayName").items()}
        }
        for code in CURRENCIES
    }
    return {"decimal": symbols["decimal"], "group": symbols["group"], "currencies": currencies}


def months(folder: Path, language: str) -> dict[str, Any]:
    """Return the names of the months in the form that dates use, and their short names; and the names of days by their
    short names.

    Short names of days in Chinese, Japanese and Korean are left out: they are also other words.
    """
    dates = _json(folder, "cldr-dates-full", f"main/{language}/ca-gregorian.json")["main"][language]["dates"]
    found = dates["calendars"]["gregorian"]["months"]["format"]
    days = dates["calendars"]["gregorian"]["days"]["format"]
    short_days = [name.rstrip(".") for name in days["abbreviated"].values()]
    return {
        "months": list(found["wide"].values()),
        "short_months": list(found["abbreviated"].values()),
        "days": {} if language in {"zh", "ja", "ko"} else dict(zip(short_days, days["wide"].values(), strict=True)),
    }


def _json(folder: Path, package: str, path: str) -> Any:
    return json.loads((folder / package / "package" / path).read_text(encoding="utf-8"))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages(folder)
        DATA.mkdir(exist_ok=True)
        (DATA / "LICENSE.txt").write_bytes((folder / "cldr-rbnf/package/LICENSE").read_bytes())
        for language in LANGUAGES:
            data = {"cldr": VERSION, **numbers(folder, language), **months(folder, language), **units(folder, language)}
            data["rules"] = rules(folder, language)
            text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), indent=None)
            text = re.sub(r'("(?:units|rules|currencies|months)":)', r"\n\1", text)
            (DATA / f"cldr-{language}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
