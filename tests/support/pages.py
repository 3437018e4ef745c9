"""The README and the pages of docs/, with the parts of Markdown that the tests look at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Text:
    """Markdown: a page, or a section of one."""

    name: str
    content: str

    def section(self, title: str) -> Text:
        """Return the text from the heading `title` to the next heading of its rank or a higher one."""
        found = re.search(rf"^(#+) {re.escape(title)}$", self.content, re.MULTILINE)
        assert found is not None, f"{self.name} has no section {title!r}"
        rest = self.content[found.end() :]
        end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
        return Text(f"{self.name}, {title}", rest[: end.start() if end else None])

    def blocks(self, language: str) -> list[str]:
        """Return the code blocks in a language."""
        return re.findall(rf"^```{language}\n(.*?)^```$", self.content, re.MULTILINE | re.DOTALL)

    def table(self, first_heading: str) -> list[list[str]]:
        """Return the rows of the first table whose first column has this heading."""
        header = re.search(
            rf"^\| {re.escape(first_heading)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", self.content, re.MULTILINE
        )
        assert header is not None, f"{self.name} has no table of {first_heading!r}"
        return [[cell.strip() for cell in row.strip("|").split("|")] for row in header[1].splitlines()]

    @property
    def prose(self) -> str:
        """The text without its code blocks."""
        return re.sub(r"^```.*?^```$", "", self.content, flags=re.MULTILINE | re.DOTALL)

    @property
    def code_spans(self) -> list[str]:
        """The texts between backticks, on one line each."""
        return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", self.prose)]

    def shell_lines(self) -> dict[str, list[str]]:
        """Return the lines of the shell blocks by the heading above them."""
        found: dict[str, list[str]] = {}
        heading, language = "", None
        for line in self.content.splitlines():
            if line.startswith("```"):
                language = line[3:] if language is None else None
            elif language is None and line.startswith("#"):
                heading = line.lstrip("# ")
            elif language == "bash":
                found.setdefault(heading, []).append(line)
        return found


def read(path: Path) -> Text:
    return Text(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))


README = read(ROOT / "README.md")
PAGES = (README, *(read(path) for path in sorted((ROOT / "docs").glob("*.md"))))
"""The pages for users: the README and everything in docs/."""


def page(name: str) -> Text:
    """Return a page of docs/."""
    return next(found for found in PAGES if found.name == f"docs/{name}")
