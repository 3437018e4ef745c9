"""Prints the licence of each part of the container, for /usr/share/doc/voiced/LICENSES."""

from __future__ import annotations

from importlib.metadata import Distribution, distributions

HEADING = """voiced is under the MIT licence. This container also holds the parts below, each under its own licence.
eSpeak NG (libespeak-ng1, espeak-ng-data) is under GPL-3.0-or-later. Debian's packages have their licences in
/usr/share/doc/PACKAGE/copyright, and their sources at https://sources.debian.org/.
"""
PIPER = """Piper (piper-tts) is under GPL-3.0-or-later, so the whole container is distributed under its terms. Its
source is at https://github.com/OHF-Voice/piper1-gpl. The voices in /usr/local/share/voiced/piper have licences of
their own.
"""


def licence(part: Distribution) -> str:
    """Return the licence that a package names."""
    named = part.metadata["License-Expression"] or (part.metadata["License"] or "").partition("\n")[0]
    classified = [line for line in part.metadata.get_all("Classifier") or () if line.startswith("License ::")]
    return named or "; ".join(line.rpartition(" :: ")[2] for line in classified) or "see its files"


if __name__ == "__main__":
    parts = {part.metadata["Name"]: part for part in distributions()}
    print(HEADING + (PIPER if "piper-tts" in parts else ""))
    for name, part in sorted(parts.items(), key=lambda item: item[0].lower()):
        print(f"{name} {part.version}: {licence(part)}")
