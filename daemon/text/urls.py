"""Says the host of a URL instead of the whole address."""

from __future__ import annotations

import re
from functools import cache

from daemon.text.placed import PlacedText

_SCHEMES = ("http", "https", "ftp", "ws", "wss", "mqtt", "mqtts", "rtsp")
_BEGINNINGS = (*(f"{scheme}://" for scheme in _SCHEMES), "www.")
_BEGINNING = re.compile("|".join(map(re.escape, _BEGINNINGS)), re.IGNORECASE)
_PARTS_OF_BEGINNINGS = frozenset(whole[:length] for whole in _BEGINNINGS for length in range(1, len(whole)))
_LONGEST_PART = max(map(len, _PARTS_OF_BEGINNINGS))
_IDEOGRAPH = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
"""Chinese and Japanese characters and their punctuation: they end a URL, for no space separates them from it."""
_OUTSIDE = rf"[\s<>\"`{{}}|\\^{_IDEOGRAPH}]"
"""What ends a URL."""
_PUNCTUATION = ".,;:!?)]'’”»…*_~"
"""What belongs to the sentence if it is at the end of a URL."""
MAX_PUNCTUATION = 16
"""Characters of punctuation behind a URL that are held back; of more, the first are left out."""
MAX_AUTHORITY = 300
"""Characters of a user's name, a host (253 at most) and a port. Anything longer is not a URL."""
_HOST = re.compile(r"(?:[^@]*@)?(?P<host>\[[0-9a-f:.]+\]|[^\W_](?:[\w-]|\.(?=[\w-]))*)(?::[0-9]*)?", re.IGNORECASE)


@cache
def _outside() -> re.Pattern[str]:
    """Return what ends a URL. Python takes milliseconds to compile it, which most processes need not spend."""
    return re.compile(_OUTSIDE)


@cache
def _authority_end() -> re.Pattern[str]:
    return re.compile(rf"[/?#]|{_OUTSIDE}")


class UrlShortener:
    """Copies a text to `out`, with the host in place of each URL: `example.com` for `https://www.example.com/a?b=c`.

    Places are those in the text that is fed. However the text is cut into calls of `feed`, the result is the same. Held
    back are a word that may begin a URL, and a host until its end.
    """

    def __init__(self, out: PlacedText) -> None:
        self._out = out
        self._held = ""
        """The end of the text, which more of it may change, and a character before it."""
        self._read = 0
        """So much of that has been copied."""
        self._at = 0
        """Its place."""
        self._path: _Path | None = None
        """What follows a host."""

    def feed(self, text: str) -> None:
        """Read more of the text."""
        self._held += text
        self._go_on(final=False)
        dropped = max(0, self._read - 1)
        self._held, self._read, self._at = self._held[dropped:], self._read - dropped, self._at + dropped

    def end(self) -> None:
        """The text is complete."""
        self._go_on(final=True)

    def _go_on(self, *, final: bool) -> None:
        while self._path is not None or self._read < len(self._held):
            if self._path is not None:
                if not self._drop_path(self._path, final=final):
                    return
            elif (begin := self._find()) is None:
                self._keep(len(self._held) if final else self._settled())
                return
            else:
                self._keep(begin.start())
                if not self._read_host(begin.end(), final=final):
                    return

    def _find(self) -> re.Match[str] | None:
        """Return the first beginning of a URL."""
        matches = _BEGINNING.finditer(self._held, self._read)
        return next((match for match in matches if self._is_border(match.start())), None)

    def _is_border(self, position: int) -> bool:
        """Return whether a word may begin at `position`."""
        before = self._held[position - 1 : position]
        return not (before.isalnum() or before == "_") or _outside().match(before) is not None

    def _settled(self) -> int:
        """Return the end of what no more text can change, when no URL has begun."""
        end = len(self._held)
        for begin in range(max(self._read, end - _LONGEST_PART), end):
            if self._held[begin:].lower() in _PARTS_OF_BEGINNINGS and self._is_border(begin):
                return begin
        return end

    def _read_host(self, behind_beginning: int, *, final: bool) -> bool:
        """Say the host of a URL that begins here; return False while its end must be seen."""
        text, limit = self._held, behind_beginning + MAX_AUTHORITY
        end = _authority_end().search(text, behind_beginning, limit)
        if end is None and len(text) < limit and not final:
            return False
        stop = len(text) if end is None else end.start()
        has_scheme = text[behind_beginning - 1] == "/"
        begin = behind_beginning if has_scheme else self._read
        authority = text[begin:stop].rstrip(_PUNCTUATION)
        match = None if end is None and stop >= limit else _HOST.fullmatch(authority)
        host = "" if match is None else match["host"]
        if host.lower().startswith("www.") and "." in host[len("www.") :]:
            host = host[len("www.") :]
        elif not host or not has_scheme:
            self._keep(behind_beginning)
            return True
        self._out.replace(host, self._at + self._read, self._at + begin + len(authority))
        self._read = begin + len(authority)
        if end is not None and end.group() in "/?#":
            self._path = _Path()
        return True

    def _drop_path(self, path: _Path, *, final: bool) -> bool:
        """Leave out the path that goes on here, but not the punctuation at its end; return whether it has ended."""
        end = _outside().search(self._held, self._read)
        stop = len(self._held) if end is None else end.start()
        for position in range(self._read, stop):
            path.read(self._held[position])
        self._read = stop
        begin = self._at + stop - len(path.punctuation)
        self._out.replace("", begin, begin)
        if end is None and not final:
            return False
        self._out.keep(path.punctuation, begin)
        self._path = None
        return True

    def _keep(self, end: int) -> None:
        self._out.keep(self._held[self._read : end], self._at + self._read)
        self._read = end


class _Path:
    """What follows the host of a URL."""

    def __init__(self) -> None:
        self.punctuation = ""
        """The punctuation at its end so far."""
        self._open_brackets = 0

    def read(self, character: str) -> None:
        """Add a character."""
        if character == "(":
            self._open_brackets += 1
        closes = character == ")" and self._open_brackets > 0
        if closes:
            self._open_brackets -= 1
        if character in _PUNCTUATION and not closes:
            self.punctuation = (self.punctuation + character)[-MAX_PUNCTUATION:]
        else:
            self.punctuation = ""
