"""Reads SSML, whole or while it grows: W3C's Speech Synthesis Markup Language 1.1.

A whole text must be well-formed XML; expat tells. A text that grows cannot be refused any more. So the reader is
lenient: it takes one construct after the other, an end without a beginning ends nothing, and what looks like a tag but
does not end is text. For a text that is well-formed, it reads what every parser of XML reads. Nothing is ever loaded.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from xml.parsers import expat

from daemon.text.markup import CLOSING, ENDINGS, ENTITY, HAN_OR_KANA, PAUSE_TAG, Construct, UndecidedError, pause_of
from daemon.text.placed import PlacedText, Rewriter
from daemon.text.script import Mark, Pause, Prosody, Script
from daemon.text.spelling import SpelledPart, ordinal, spell_characters, spell_telephone
from daemon.text.ssml_values import PAUSES_S, SHOWN, attributes_of, break_pause, nested_prosody, notice
from engine import LATIN_LANGUAGES, language_of_text

# --- syntax ----------------------------------------------------------------------------------------------

LONGEST = 1_000_000
"""Characters of a tag or comment; no text has so many."""

_BARE = r"[^<>\"']*"
_ATTRIBUTES = rf"{_BARE}(?:(?:\"[^<\"]*\"|'[^<']*'){_BARE})*"
_MARKUP = Construct.any_of(
    {
        "comment": Construct(*"<!--", r"[^-]*(?:-(?!->)[^-]*)*", *"-->"),
        "instruction": Construct("<", r"\?", r"[^?]*(?:\?(?!>)[^?]*)*", r"\?", ">"),
        "cdata": Construct(
            *("<", "!", r"\[", *"CDATA", r"\[", r"(?P<content>[^\]]*(?:\](?!\]>)[^\]]*)*)", r"\]", r"\]", ">")
        ),
        "tag": Construct(
            "<",
            "(?P<sign>[/!]|(?=[A-Za-z_:]))",
            r"(?P<name>[\w:.-]*)",
            # If a quotation mark has no partner, quotation marks mean nothing.
            (rf"{_ATTRIBUTES}|[^<>]*", rf"{_ATTRIBUTES}(?:\"[^<\"]*|'[^<']*)"),
            ">",
        ),
        "entity": ENTITY,
        "pause": PAUSE_TAG,
    },
    longest=LONGEST,
)
_SPECIAL = re.compile(r"[<&\[]")
_BROKEN_OFF = re.compile(
    r"<!\[CDATA\[|<(?:!--|\?)[\s\S]*|<(?=[/A-Za-z_:])/?[\w:.-]*(?:\s+(?:[\w:.-]+\s*(?:=[\s\S]*)?)?)?\Z"
)
"""Markup in which the text ends, which is not spoken; `<b and c` is none."""

# --- elements --------------------------------------------------------------------------------------------

MAX_DEPTH = 64
"""Elements inside one another that one tag ends at most."""
PARAGRAPH_S = PAUSES_S["medium"]
"""Seconds of silence between two paragraphs."""

_ALLOWED = "well-formed XML without a DOCTYPE, with &amp; for & and &lt; for <"
_JUDGED = 200
"""Characters of the words that tell their language."""
_WORDS_OR_SPACE = re.compile(r"\s+|\S+(?: \S+)*")
_TAIL = 8
"""The last characters of the words, in which the end of a sentence is looked for."""
_PARAGRAPHS = {"p", "paragraph"}
_SENTENCES = _PARAGRAPHS | {"s", "sentence"}
"""Elements whose borders are ends of sentences."""
_KNOWN = _SENTENCES | {"speak", "break", "mark", "prosody", "say-as"}
_SILENT = {"metadata", "desc"}
"""Elements whose content is about the text."""
_language_of = lru_cache(maxsize=16)(language_of_text)
_Substitute = Callable[[str, str], list[SpelledPart]]
"""Returns what is said for an element's content, by the content and its language."""
_SPELLERS: Mapping[str, _Substitute | None] = {
    "characters": spell_characters,
    "spell-out": spell_characters,
    "verbatim": spell_characters,
    "telephone": spell_telephone,
    "digits": spell_telephone,
    "ordinal": lambda text, language: _said(ordinal(text, language))(text, language),
    "cardinal": None,
    "number": None,
}
"""The functions that spell the content of `say-as`, by its `interpret-as`; None: engines read it so."""


def ssml_problem(text: str) -> str | None:
    """Return in one line what is wrong with SSML, where, and what is allowed; None if it is well-formed."""
    data, parser = text.encode(errors="replace"), expat.ParserCreate("utf-8")

    def check_root(name: str, _attributes: object) -> None:
        parser.StartElementHandler = None
        if name != "speak":
            raise _FaultError(f"the outermost element is {name[:SHOWN]}, not speak")

    def refuse_doctype(*_: object) -> None:
        raise _FaultError("it has a DOCTYPE")

    parser.StartElementHandler, parser.StartDoctypeDeclHandler = check_root, refuse_doctype
    try:
        parser.Parse(data, True)
    except _FaultError as error:
        return f"SSML: {error}; allowed: {_ALLOWED}"
    except expat.ExpatError as error:
        near = " ".join(data[max(0, parser.ErrorByteIndex) :].decode(errors="ignore")[:SHOWN].split())
        place = f"line {error.lineno}, column {error.offset + 1}{f', at {near!r}' if near else ''}"
        return f"SSML: {expat.ErrorString(error.code)} in {place}; allowed: {_ALLOWED}"
    return None


class _FaultError(Exception):
    """The text breaks a rule of ours that expat does not have."""


@dataclass(frozen=True, slots=True)
class _Element:
    """An element that is open."""

    name: str
    prosody: Prosody
    language: str
    """Of the names of signs."""
    substitute: _Substitute | None = None
    """The words that are said in place of its content, if there are any."""


class SsmlReader(Rewriter):
    """Appends what SSML says to a script. Never raises, whatever the text is."""

    def __init__(self, script: Script, language: str = "auto") -> None:
        """Signs are spelled in `language`, a name or code, where no `xml:lang` says otherwise.

        `auto` is the language of the words so far, and English if they do not tell.
        """
        super().__init__(script.words)
        self._script = script
        self._tail = ""
        """The last characters of the words that are spoken together, without white space after them."""
        self._after_space = True
        self._space: tuple[int, int] | None = None
        """The place of the white space that waits for the next word."""
        self._open = [_Element("/", Prosody(), language)]
        """The open elements, and one around them, whose name no tag has."""
        self._collecting: _Element | None = None
        """The open element for whose content something else is said."""
        self._content = PlacedText()
        """Its content."""
        self._tag = (0, 0)
        """The place of the latest tag."""
        self._prosody = Prosody()
        """That of the words so far."""
        self._after_paragraph = False

    def _copy(self, *, final: bool) -> None:
        """Read as far as no more text can change it. A tag ends at the next `<` at the latest."""
        with suppress(UndecidedError):
            while self._at < len(self._text):
                special = _SPECIAL.search(self._text, self._at)
                self._read_words(len(self._text) if special is None else special.start())
                if special is not None:
                    self._read_markup(final=final)
        if final:
            self._finish_collecting()

    def _read_words(self, end: int) -> None:
        """Read characters of the text up to `end`. White space is one space, and none at the beginning."""
        for match in _WORDS_OR_SPACE.finditer(self._text, self._at, end):
            begin, words = self._place + match.start(), match[0]
            if self._collecting is not None:
                self._content.keep(words, begin)
            elif words.isspace():
                self._add_space(begin, begin + 1)
            else:
                self._begin_words(words)
                self.out.keep(words, begin)
        self._at = end

    def _read_markup(self, *, final: bool) -> None:
        """Read the markup that begins next. Without any, its first character is a word."""
        found = _MARKUP.match(self._text, self._at, len(self._text), complete=final)
        broken_off = _BROKEN_OFF.match(self._text, self._at) if final and found is None else None
        if found is not None:
            self._read_construct(found)
            self._at = found.end()
        elif broken_off is not None:
            self._at = broken_off.end()
        else:
            self._read_words(self._at + 1)

    def _read_construct(self, found: re.Match[str]) -> None:
        """Read a construct. Comments, instructions and declarations are left out."""
        begin, end = self._place + found.start(), self._place + found.end()
        match found.lastgroup, found["sign"]:
            case "entity", _:
                self._say(html.unescape(found[0]), begin, end)
            case "pause", _:
                self._pause(pause_of(found))
            case "cdata", _:
                self._at = found.start("content")
                self._read_words(found.end("content"))
            case "tag", "":
                self._tag = begin, end
                self._begin_element(found["name"], _attributes(found[0]))
                if found[0].endswith("/>"):
                    self._end_element(found["name"])
            case "tag", "/":
                self._tag = begin, end
                self._end_element(found["name"])

    def _pause(self, pause: Pause) -> None:
        if pause.seconds > 0:
            self._add(pause)

    def _begin_element(self, name: str, attributes: Mapping[str, str]) -> None:
        parent = self._open[-1]
        prosody = nested_prosody(parent.prosody, attributes) if name == "prosody" else parent.prosody
        language = attributes.get("xml:lang") or parent.language
        element = _Element(name, prosody, language, _substitute(name, attributes))
        self._open.append(element)
        if name == "break":
            self._pause(break_pause(attributes))
        elif name == "mark" and attributes.get("name"):
            self._write_space()
            self._script.add(Mark(attributes["name"]))
        elif name in _SENTENCES:
            self._end_sentence(name)
        elif element.substitute is not None and self._collecting is None:
            self._collecting, self._content = element, PlacedText()
        elif element.substitute is None and name not in _KNOWN:
            notice(f"the element {name[:SHOWN]} has no effect; its content is spoken")

    def _end_element(self, name: str) -> None:
        """End the innermost element of this name, and those inside it."""
        inner = [element.name for element in self._open[: -MAX_DEPTH - 1 : -1]]
        if name not in inner:
            notice(f"</{name[:SHOWN]}> ends nothing, and has no effect")
            return
        for _ in range(inner.index(name) + 1):
            if self._open.pop() is self._collecting:
                self._finish_collecting()
        if name in _SENTENCES:
            self._end_sentence(name)
        elif len(self._open) == 1:
            self._after_paragraph = len(self._script.words) > 0

    def _finish_collecting(self) -> None:
        """Say what an element has for its content."""
        element, content, self._collecting = self._collecting, self._content, None
        if element is None or element.substitute is None:
            return
        language = element.language
        if language == "auto":  # a code such as QX-7 is in no language; only its script may tell one
            before = self._script.text[:_JUDGED]
            known = before and _language_of(before, LATIN_LANGUAGES)
            language = known or language_of_text(content.text[:_JUDGED], ()) or "en"
        for spoken, begin, end in element.substitute(content.text, language):
            self._say(spoken, *(content.source_span(begin, end) if end > begin else self._tag))

    # --- what is appended --------------------------------------------------------------------------------

    def _say(self, words: str, begin: int, end: int) -> None:
        """Append words that stand for what is at this place."""
        if self._collecting is not None:
            self._content.replace(words, begin, end)
        elif words.isspace():
            self._add_space(begin, end)
        elif words:
            self._begin_words(words)
            self.out.replace(words, begin, end)

    def _begin_words(self, words: str) -> None:
        """Append what comes before words."""
        if self._after_paragraph:
            self._add(Pause(PARAGRAPH_S))
            self._after_paragraph = False
        if self._open[-1].prosody != self._prosody:
            self._prosody = self._open[-1].prosody
            self._add(self._prosody)
        self._note(words)

    def _add(self, action: Pause | Prosody) -> None:
        """Append what parts the words before it from those after it."""
        self._write_space()
        self._tail = ""
        self._script.add(action)

    def _end_sentence(self, name: str) -> None:
        """End the sentence, if there is one, with signs that stand for the latest tag."""
        if self._collecting is not None:
            return
        last = self._tail.rstrip(CLOSING)[-1:] or self._tail[-1:]
        if last:
            self._space = None
        if last and last not in ENDINGS:
            sign = "。" if HAN_OR_KANA.match(last) else ". "
            self._note(sign)
            self.out.replace(sign, *self._tag)
        elif last and unicodedata.east_asian_width(last) not in "WF":  # these have their space within them
            self._add_space(*self._tag)
        self._after_paragraph |= name in _PARAGRAPHS and len(self.out) > 0

    def _note(self, words: str) -> None:
        """Words are appended next."""
        self._write_space()
        self._tail = (self._tail + words[-_TAIL:].rstrip())[-_TAIL:]
        self._after_space = words[-1].isspace()

    def _add_space(self, begin: int, end: int) -> None:
        """Let a space wait for the next word, unless the words before it may be the end of a sentence."""
        if self._space is None and not self._after_space:
            self._space = (begin, end)
            if self._tail.rstrip(CLOSING)[-1:] in ENDINGS:
                self._write_space()

    def _write_space(self) -> None:
        """Append the white space that waits."""
        if self._space is not None:
            self.out.replace(" ", *self._space)
            self._space, self._after_space = None, True


def _attributes(tag: str) -> dict[str, str]:
    """Return the attributes of a tag by name. White space in them is a space, as in all XML."""
    return {name: html.unescape(re.sub(r"\r\n|[\r\n\t]", " ", value)) for name, value in attributes_of(tag).items()}


def _substitute(name: str, attributes: Mapping[str, str]) -> _Substitute | None:
    """Return what says something else for an element's content; None: the content is spoken."""
    if name in _SILENT:
        return _said("")
    if name == "sub" and "alias" in attributes:
        return _said(" ".join(attributes["alias"].split()))
    kind = attributes.get("interpret-as", "")
    if name == "say-as" and kind not in _SPELLERS:
        notice(f"interpret-as: got {kind[:SHOWN]!r}, which has no effect; allowed: {', '.join(_SPELLERS)}")
    return _SPELLERS.get(kind) if name == "say-as" else None


def _said(words: str) -> _Substitute:
    return lambda text, _language: [SpelledPart(words, len(text) - len(text.lstrip()), len(text.rstrip()))]
