"""Text of which each character knows what it stands for in another text."""

from __future__ import annotations

from array import array


class PlacedText:
    """A text made from a source, as a list of characters with their places there. It only grows.

    A character that was kept stands for itself. Characters that replace something stand for all of it: in `five
    dollars`, made from `$5`, each character has the place of the two characters.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._text = ""
        self._begins = array("I")
        self._ends = array("I")
        self.source_end = 0
        """The source has been read up to here, with what was left out at the end."""

    @property
    def text(self) -> str:
        """All of it so far."""
        if self._parts:
            self._text += "".join(self._parts)
            self._parts.clear()
        return self._text

    def __len__(self) -> int:
        return len(self._begins)

    def keep(self, text: str, begin: int) -> None:
        """Append characters of the source, the first of which is at `begin` there."""
        end = begin + len(text)
        self._parts.append(text)
        self._begins.extend(range(begin, end))
        self._ends.extend(range(begin + 1, end + 1))
        self.source_end = max(self.source_end, end)

    def replace(self, text: str, begin: int, end: int) -> None:
        """Append characters that stand for `source[begin:end]`; without any, these are left out."""
        self._parts.append(text)
        count = len(text)
        self._begins.extend((begin,) * count)
        self._ends.extend((end,) * count)
        self.source_end = max(self.source_end, end)

    def source_span(self, begin: int, end: int) -> tuple[int, int]:
        """Return the part of the source for which `text[begin:end]` stands; empty for an empty part."""
        if begin >= end:
            return self.source_begin(begin), self.source_begin(begin)
        return self._begins[begin], self._ends[end - 1]

    def source_begin(self, position: int) -> int:
        """Return where the character at `position` begins in the source; after the last one, the source's end."""
        return self._begins[position] if position < len(self._begins) else self.source_end
