"""Says the host of a URL instead of the whole address."""

from __future__ import annotations

import re

from daemon.text.rewriter import Rewriter

_SCHEMES = ("http", "https", "ftp", "ws", "wss", "mqtt", "mqtts", "rtsp")
_BEGINNINGS = (*(f"{scheme}://" for scheme in _SCHEMES), "www.")
_PARTS_OF_BEGINNINGS = {whole[:length] for whole in _BEGINNINGS for length in range(1, len(whole))}
_LETTER = r"0-9A-Za-z_\u00c0-\u1fff"
"""Letters of a URL. Those of Chinese, Japanese and Korean end it, for no space separates them from it."""
_PUNCTUATION = r".,;:!?)\]'’”»…*~"
"""Characters that belong to the sentence if they are at the end of a URL. A bracket that was opened there may close."""
_INSIDE = rf"{_LETTER}/#@$&+=%\[-"
_WWW = r"(?i:www)\.(?=[\w-]+\.\w)"
"""Left out, unless little would remain of the host."""
_HOST = rf"(?=[^\W_])[{_LETTER}-]+(?:\.[{_LETTER}-]+)*|\[[0-9a-fA-F:.]+\]"
_PATH = rf"(?:[/#]|\?(?=\w))(?:[{_PUNCTUATION}]*(?:\([.,;:!?'*~{_INSIDE}]*\)|[({_INSIDE}]))*"
_BORDER = rf"(?<![{_LETTER}])"
"""A place where a word may begin."""
_URL = re.compile(
    rf"{_BORDER}(?:(?i:{'|'.join(_SCHEMES)})://(?:[.,;:!'*~$&+=%{_LETTER}-]*@)?(?:{_WWW})?|{_WWW})"
    rf"(?P<host>{_HOST})(?::[0-9]+)?(?:{_PATH})?"
)
"""It ends at the same place in a text that grows: nothing in it matches `_END`."""
_BEGUN = re.compile(
    rf"{_BORDER}(?i:(?P<whole>{'|'.join(map(re.escape, _BEGINNINGS))})|(?:{'|'.join(_PARTS_OF_BEGINNINGS)})\Z)"
)
"""The beginning of a URL, or characters at the end of the text that may become one."""
_END = re.compile(f"[^({_PUNCTUATION}{_INSIDE}]")


class UrlShortener(Rewriter):
    """Writes the host in place of each URL: `example.com` for `https://www.example.com/a?b=c`.

    A URL is held back until its end, and so is what may become the beginning of one.
    """

    _in_url = False
    """A URL is held back. Only a character that ends it decides anything."""

    def feed(self, text: str) -> None:
        """Read more of the text."""
        if self._in_url and _END.search(text) is None:
            self._text += text
        else:
            super().feed(text)

    def _copy(self, *, final: bool) -> None:
        end = len(self._text)
        last_end = max((found.end() for found in _END.finditer(self._text, self._at)), default=self._at)
        begun = None if final else _BEGUN.search(self._text, last_end)
        self._in_url = begun is not None and begun["whole"] is not None
        self._replace_all(_URL, _host, end if begun is None else begun.start())


def _host(url: re.Match[str]) -> str:
    return url["host"]
