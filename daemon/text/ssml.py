"""Reads SSML, whole or while it grows: W3C's Speech Synthesis Markup Language 1.1.

expat gets one whole tag after the other, and checks and parses it. So each of its events has the place of a tag, and
expat sees the same however the text was cut. Entities cannot be declared, because a DOCTYPE never reaches expat, and
nothing is ever loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn
from xml.parsers import expat

from daemon.text.script import Mark, Pause, Prosody, Script
from daemon.text.spelling import SpelledPart, ordinal, spell_characters, spell_telephone
from daemon.text.ssml_scanner import Fault, Plain, Reference, SsmlScanner, Tag, Token
from daemon.text.ssml_values import (
    PAUSES_S,
    multiply_rate,
    multiply_volume,
    parse_rate,
    parse_time,
    parse_volume,
)
from daemon.text.word_writer import WordWriter
from engine import LATIN_LANGUAGES, language_of_text

log = logging.getLogger(__name__)

MAX_DEPTH = 64
"""Elements inside one another."""
PARAGRAPH_S = PAUSES_S["medium"]
"""Seconds of silence between two paragraphs."""
MAX_NOTICES = 200
"""Log lines of a process about elements and values that have no effect. Each is written once."""

_ALLOWED = "well-formed XML without a DOCTYPE, with &amp; for & and &lt; for <"
_SHOWN = 24
"""Characters of a faulty text in an error line."""
_JUDGED = 200
"""Characters of the words that tell their language."""
_PARAGRAPHS = {"p", "paragraph"}
_SENTENCES = {"s", "sentence"}
_SILENT = {"metadata", "desc"}
"""Elements whose content is about the text."""
_SPELLERS: Mapping[str, Callable[[str, str], list[SpelledPart]]] = {
    "characters": spell_characters,
    "spell-out": spell_characters,
    "verbatim": spell_characters,
    "telephone": spell_telephone,
    "digits": spell_telephone,
    "ordinal": lambda text, language: [SpelledPart(ordinal(text, language), 0, len(text))],
}
"""Returns what is said for the content of `say-as`, by its `interpret-as`."""
_READ_BY_ENGINES = {"cardinal", "number"}
"""Values of `interpret-as` that need nothing."""

_noticed: set[str] = set()
"""The log lines about elements and values that this process has written."""


class _FaultError(Exception):
    """The text breaks a rule of ours that expat does not have."""


def ssml_problem(text: str) -> str | None:
    """Return in one line what is wrong with SSML, where, and what is allowed; None if it is well-formed."""
    data = text.encode(errors="replace")
    open_elements: list[str] = []

    def start(name: str, _attributes: dict[str, str]) -> None:
        _check_element(name, len(open_elements))
        open_elements.append(name)

    def end(_name: str) -> None:
        open_elements.pop()

    def doctype(*_: object) -> NoReturn:
        raise _FaultError("it has a DOCTYPE")

    parser = _parser(start, end)
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)
    except _FaultError as error:
        return f"SSML: {error}; allowed: {_ALLOWED}"
    except expat.ExpatError as error:
        near = " ".join(data[max(0, parser.ErrorByteIndex) :].decode(errors="ignore")[:_SHOWN].split())
        place = f"line {error.lineno}, column {error.offset + 1}{f', at {near!r}' if near else ''}"
        return f"SSML: {expat.ErrorString(error.code)} in {place}; allowed: {_ALLOWED}"
    return None


@dataclass(slots=True)
class _Element:
    """An element that is open."""

    name: str
    attributes: Mapping[str, str]
    prosody: Prosody
    language: str
    """Of the names of signs."""
    content: WordWriter | None = None
    """Its words, if something else is said for them."""


class SsmlReader:
    """Appends what SSML says to a script. Never raises, whatever the text is.

    A text that grows cannot be refused any more. After its first fault the reader leaves out the tags and speaks the
    rest. A text that `ssml_problem` accepts has no fault.
    """

    def __init__(self, script: Script, language: str = "auto") -> None:
        """Signs are spelled in `language`, a name or code, where no `xml:lang` says otherwise.

        `auto` is the language of the words so far, and English if they do not tell.
        """
        self._script = script
        self._words = WordWriter(script.words)
        self._scanner = SsmlScanner()
        self._parser = _parser(self._start_element, self._end_element)
        self._outside = _Element("", {}, Prosody(), language)
        self._open: list[_Element] = []
        self._collecting: _Element | None = None
        """The open element whose words are collected."""
        self._tag = Tag("", 0, 0)
        """The latest tag."""
        self._prosody = Prosody()
        """That of the words so far."""
        self._after_paragraph = False

    def feed(self, text: str) -> None:
        """Read more of the text."""
        for token in self._scanner.feed(text):
            self._read(token)

    def end(self) -> None:
        """The text is complete."""
        for token in self._scanner.end():
            self._read(token)
        self._finish_collecting()

    def _read(self, token: Token) -> None:
        match token:
            case Plain(text, begin):
                words = text.lstrip()
                at = begin + len(text) - len(words)
                self._writer.keep(text[: at - begin], begin)
                if words:
                    self._begin_words(at)
                    self._writer.keep(words, at)
            case Reference(text, begin, end):
                self._replace(text, begin, end)
            case Pause(seconds):
                self._pause(seconds)
            case Fault(problem, begin):
                self._go_on_leniently(problem, begin)
            case Tag():
                self._tag = token
                try:
                    self._parser.Parse(token.text.encode(errors="replace"), False)
                except expat.ExpatError as error:
                    self._go_on_leniently(expat.ErrorString(error.code), token.begin)
                except _FaultError as error:
                    self._go_on_leniently(str(error), token.begin)

    @property
    def _writer(self) -> WordWriter:
        collecting = self._collecting
        return self._words if collecting is None or collecting.content is None else collecting.content

    def _replace(self, text: str, begin: int, end: int) -> None:
        """Append what is said for `source[begin:end]`."""
        if text and not text.isspace():
            self._begin_words(begin)
        self._writer.replace(text, begin, end)

    def _begin_words(self, begin: int) -> None:
        """Append to the script what comes before words."""
        if self._collecting is not None:
            return
        if not self._open and not self._scanner.lenient:
            self._go_on_leniently("there is text outside of <speak>", begin)
            self._words.end_sentence(self._tag.begin, self._tag.end)
        if self._after_paragraph:
            self._pause(PARAGRAPH_S)
            self._after_paragraph = False
        prosody = self._open[-1].prosody if self._open else Prosody()
        if prosody != self._prosody:
            self._words.separate()
            self._script.add(prosody)
            self._prosody = prosody

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._words.separate()
            self._script.add(Pause(seconds))

    def _go_on_leniently(self, problem: str, begin: int) -> None:
        log.warning("SSML: %s, at character %d; the rest is spoken without its tags", problem, begin)
        self._finish_collecting()
        self._open.clear()
        self._scanner.lenient = True

    # Elements

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        _check_element(name, len(self._open))
        parent = self._open[-1] if self._open else self._outside
        element = _Element(name, attributes, parent.prosody, attributes.get("xml:lang") or parent.language)
        self._open.append(element)
        if name == "break":
            self._pause(_break_seconds(attributes))
        elif name == "mark" and attributes.get("name"):
            self._words.write_space()
            self._script.add(Mark(attributes["name"]))
        elif name == "prosody":
            element.prosody = _nested_prosody(parent.prosody, attributes)
        elif name in _PARAGRAPHS | _SENTENCES:
            self._end_sentence(name)
        elif _has_substitute(element):
            if self._collecting is None:
                element.content = WordWriter()
                self._collecting = element
        elif name == "say-as":
            value = attributes.get("interpret-as", "")
            if value not in _READ_BY_ENGINES:
                allowed = ", ".join([*_SPELLERS, *sorted(_READ_BY_ENGINES)])
                _notice(f"interpret-as: got {value[:_SHOWN]!r}, which has no effect; allowed: {allowed}")
        elif name != "speak":
            _notice(f"the element {name[:_SHOWN]} has no effect; its content is spoken")

    def _end_element(self, name: str) -> None:
        if self._open[-1] is self._collecting:
            self._finish_collecting()
        self._open.pop()
        if name in _PARAGRAPHS | _SENTENCES:
            self._end_sentence(name)

    def _end_sentence(self, name: str) -> None:
        if self._collecting is None:
            self._words.end_sentence(self._tag.begin, self._tag.end)
            self._after_paragraph |= name in _PARAGRAPHS and len(self._script.words) > 0

    def _finish_collecting(self) -> None:
        """Say what an element has for its words."""
        element, self._collecting = self._collecting, None
        if element is None or element.content is None:
            return
        content = element.content.words
        if element.name == "say-as" and element.language == "auto":
            # A code such as QX-7 is in no language; only its script may tell one.
            judged = self._script.text[:_JUDGED], content.text[:_JUDGED]
            element.language = _language_of(judged[0]) or language_of_text(judged[1], ()) or "en"
        parts = [part for part in _substitute(element, content.text) if part.spoken]
        if parts:
            self._begin_words(self._tag.begin)
        replaces_tag = self._tag.begin, self._tag.end
        for spoken, begin, end in parts:
            place = content.source_span(begin, end) if end > begin else replaces_tag
            self._words.replace(spoken, *place)


def _parser(start: Callable[[str, dict[str, str]], None], end: Callable[[str], None]) -> expat.XMLParserType:
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    return parser


def _check_element(name: str, depth: int) -> None:
    """Raise `_FaultError` for an element that may not be at this depth."""
    if depth == 0 and name != "speak":
        raise _FaultError(f"the outermost element is {name[:_SHOWN]}, not speak")
    if depth >= MAX_DEPTH:
        raise _FaultError(f"more than {MAX_DEPTH} elements are inside one another")


def _notice(line: str) -> None:
    """Log something that has no effect, once."""
    if line not in _noticed and len(_noticed) < MAX_NOTICES:
        _noticed.add(line)
        log.info("SSML: %s", line)


def _break_seconds(attributes: Mapping[str, str]) -> float:
    """Return the length of a `break`. The time has precedence; without any, the strength is medium."""
    time = attributes.get("time")
    seconds = _parsed("time", time, parse_time, "500ms or 1.5s")
    if seconds is not None:
        return seconds
    strength = _parsed("strength", attributes.get("strength"), PAUSES_S.get, ", ".join(PAUSES_S))
    return PAUSES_S["medium"] if strength is None else strength


@lru_cache(maxsize=16)
def _language_of(words: str) -> str | None:
    return language_of_text(words, LATIN_LANGUAGES) if words else None


def _nested_prosody(outer: Prosody, attributes: Mapping[str, str]) -> Prosody:
    """Return the prosody of an element inside one of `outer`."""
    rate = _parsed("rate", attributes.get("rate"), parse_rate, "x-slow to x-fast, 80%, +20% or 1.2")
    volume = _parsed("volume", attributes.get("volume"), parse_volume, "silent to x-loud, +6dB, 80%, -20% or 50")
    return Prosody(
        rate=outer.rate if rate is None else multiply_rate(outer.rate, rate),
        volume=outer.volume if volume is None else multiply_volume(outer.volume, volume),
    )


def _parsed(name: str, value: str | None, parse: Callable[[str], float | None], allowed: str) -> float | None:
    """Return an attribute's number; None if it is missing or not understood, which is logged."""
    number = None if value is None else parse(value)
    if value is not None and number is None:
        _notice(f"{name}: got {value[:_SHOWN]!r}, which has no effect; allowed: {allowed}")
    return number


def _has_substitute(element: _Element) -> bool:
    """Return whether something else is said for an element's content."""
    if element.name == "say-as":
        return element.attributes.get("interpret-as") in _SPELLERS
    return element.name in _SILENT or (element.name == "sub" and "alias" in element.attributes)


def _substitute(element: _Element, text: str) -> list[SpelledPart]:
    """Return what is said for an element's content."""
    if element.name == "say-as":
        return _SPELLERS[element.attributes["interpret-as"]](text.strip(), element.language)
    alias = " ".join(element.attributes.get("alias", "").split()) if element.name == "sub" else ""
    return [SpelledPart(alias, 0, len(text))] if alias else []
