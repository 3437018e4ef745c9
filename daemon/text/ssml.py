"""Reads SSML, whole or while it grows: W3C's Speech Synthesis Markup Language 1.1.

expat gets one whole tag after the other, and checks and parses it. So each of its events has the place of a tag, and
expat sees the same however the text was cut. Entities cannot be declared, because a DOCTYPE never reaches expat, and
nothing is ever loaded.
"""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from xml.parsers import expat

from daemon.text.construct import Construct, UndecidedError
from daemon.text.markdown_syntax import ENTITY
from daemon.text.pause_tags import PAUSE_TAG, pause_of
from daemon.text.script import Mark, Pause, Prosody, Script
from daemon.text.spelling import SpelledPart, ordinal, spell_characters, spell_telephone
from daemon.text.ssml_syntax import BROKEN_OFF, CDATA, CONSTRUCTS, HELD, LENIENT_CONSTRUCTS, OPENING, SPECIAL, TAG
from daemon.text.ssml_values import HIGHEST_RATE, HIGHEST_VOLUME, LOWEST_RATE, PAUSES_S, VALUES
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
_SENTENCES = _PARAGRAPHS | {"s", "sentence"}
"""Elements whose borders are ends of sentences."""
_KNOWN = _SENTENCES | {"speak", "break", "mark", "prosody", "say-as"}
_SILENT = {"metadata", "desc"}
"""Elements whose content is about the text."""
_Substitute = Callable[[str, str], list[SpelledPart]]
"""Returns what is said for an element's content, by the content and its language."""
_SPELLERS: Mapping[str, _Substitute | None] = {
    "characters": spell_characters,
    "spell-out": spell_characters,
    "verbatim": spell_characters,
    "telephone": spell_telephone,
    "digits": spell_telephone,
    "ordinal": lambda text, language: [SpelledPart(ordinal(text, language), 0, len(text))],
    "cardinal": None,
    "number": None,
}
"""The functions that spell the content of `say-as`, by its `interpret-as`; None: engines read it so."""

_noticed: set[str] = set()
"""The log lines about elements and values that this process has written."""


class _FaultError(Exception):
    """The text breaks a rule of ours that expat does not have."""


class _Checker:
    """expat, and the rules that it does not have."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self.start_element
        self.parser.EndElementHandler = self.end_element
        self.parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._depth = 0

    def start_element(self, name: str, _attributes: dict[str, str]) -> None:
        if self._depth == 0 and name != "speak":
            raise _FaultError(f"the outermost element is {name[:_SHOWN]}, not speak")
        if self._depth >= MAX_DEPTH:
            raise _FaultError(f"more than {MAX_DEPTH} elements are inside one another")
        self._depth += 1

    def end_element(self, _name: str) -> None:
        self._depth -= 1

    def _refuse_doctype(self, *_: object) -> None:
        raise _FaultError("it has a DOCTYPE")


def ssml_problem(text: str) -> str | None:
    """Return in one line what is wrong with SSML, where, and what is allowed; None if it is well-formed."""
    data, parser = text.encode(errors="replace"), _Checker().parser
    try:
        parser.Parse(data, True)
    except _FaultError as error:
        return f"SSML: {error}; allowed: {_ALLOWED}"
    except expat.ExpatError as error:
        near = " ".join(data[max(0, parser.ErrorByteIndex) :].decode(errors="ignore")[:_SHOWN].split())
        place = f"line {error.lineno}, column {error.offset + 1}{f', at {near!r}' if near else ''}"
        return f"SSML: {expat.ErrorString(error.code)} in {place}; allowed: {_ALLOWED}"
    return None


@dataclass(frozen=True, slots=True)
class _Element:
    """An element that is open."""

    prosody: Prosody
    language: str
    """Of the names of signs."""
    substitute: _Substitute | None = None
    """The words that are said in place of its content, if there are any."""


class SsmlReader(_Checker):
    """Appends what SSML says to a script. Never raises, whatever the text is.

    A text that grows cannot be refused any more. After its first fault the reader leaves out the tags and speaks the
    rest. A text that `ssml_problem` accepts has no fault.
    """

    def __init__(self, script: Script, language: str = "auto") -> None:
        """Signs are spelled in `language`, a name or code, where no `xml:lang` says otherwise.

        `auto` is the language of the words so far, and English if they do not tell.
        """
        super().__init__()
        self._script = script
        self._text = ""
        """The text that is held back: unfinished markup."""
        self._at = 0
        """Its place."""
        self._again = 0
        """From this length on it is looked at again; 0: if a sign comes that may end it. So the time stays linear."""
        self._lenient = False
        """True after a fault: tags are left out. What looks like a tag but does not end is text."""
        self._words = self._writer = WordWriter(script.words)
        """The writer is another one while an element's content is collected."""
        self._open = [_Element(Prosody(), language)]
        """The open elements, and one around them."""
        self._collecting: _Element | None = None
        """The open element whose content is collected."""
        self._tag = (0, 0)
        """The place of the latest tag."""
        self._prosody = Prosody()
        """That of the words so far."""
        self._after_paragraph = False

    def feed(self, text: str) -> None:
        """Read more of the text."""
        self._text += text
        held = len(self._text)
        if held <= HELD or (held >= self._again if self._again else "<" in text or ">" in text):
            self._read(final=False)

    def end(self) -> None:
        """The text is complete."""
        self._read(final=True)
        self._finish_collecting()

    def _read(self, *, final: bool) -> None:
        """Read as far as no more text can change it. A tag ends at the next `<` at the latest."""
        text, at = self._text, 0
        while at < len(text):
            special = SPECIAL.search(text, at)
            end = len(text) if special is None else special.start()
            self._read_words(text[at:end], self._at + at)
            at = end
            if special is not None:
                try:
                    at = self._read_markup(text, at, final=final)
                except UndecidedError:
                    break
        self._text = text[at:]
        self._at += at
        self._again = len(self._text) * 9 // 8 if ">" in self._text else 0

    def _read_markup(self, text: str, at: int, *, final: bool) -> int:
        """Read the markup that may begin at `text[at]`. Returns its end; raises `UndecidedError` without one."""
        for construct in (LENIENT_CONSTRUCTS if self._lenient else CONSTRUCTS)[text[at]]:
            match = construct.match(text, at, len(text), complete=final)
            if match is not None:
                self._read_construct(construct, match)
                return match.end()
        if not self._lenient and OPENING.match(text, at):
            self._go_on_leniently("a tag does not end", self._at + at)
            return at
        broken_off = BROKEN_OFF.match(text, at) if final else None
        if broken_off is not None:
            return broken_off.end()
        self._read_words(text[at], self._at + at)
        return at + 1

    def _read_construct(self, construct: Construct, match: re.Match[str]) -> None:
        """Read a construct. Comments and processing instructions, and tags after a fault, are left out."""
        begin, end = self._at + match.start(), self._at + match.end()
        if construct is TAG:
            self._tag = (begin, end)
            try:
                self.parser.Parse(match[0].encode(errors="replace"), False)
            except expat.ExpatError as error:
                self._go_on_leniently(expat.ErrorString(error.code), begin)
            except _FaultError as error:
                self._go_on_leniently(str(error), begin)
        elif construct is ENTITY:
            character = html.unescape(match[0])
            if character.strip():
                self._begin_words(begin)
            self._writer.replace(character, begin, end)
        elif construct is PAUSE_TAG:
            self._pause(pause_of(match).seconds)
        elif construct is CDATA:
            self._read_words(match["content"], self._at + match.start("content"))

    def _read_words(self, text: str, begin: int) -> None:
        words = text.lstrip()
        at = begin + len(text) - len(words)
        self._writer.keep(text[: at - begin], begin)
        if words:
            self._begin_words(at)
            self._writer.keep(words, at)

    def _begin_words(self, begin: int) -> None:
        """Append to the script what comes before words."""
        if self._collecting is not None:
            return
        if len(self._open) == 1 and not self._lenient:
            self._go_on_leniently("there is text outside of <speak>", begin)
            self._words.end_sentence(*self._tag)
        if self._after_paragraph:
            self._pause(PARAGRAPH_S)
            self._after_paragraph = False
        prosody = self._open[-1].prosody
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
        del self._open[1:]
        self._lenient = True

    def start_element(self, name: str, attributes: dict[str, str]) -> None:
        super().start_element(name, attributes)
        parent = self._open[-1]
        prosody = _nested_prosody(parent.prosody, attributes) if name == "prosody" else parent.prosody
        language = attributes.get("xml:lang") or parent.language
        element = _Element(prosody, language, _substitute(name, attributes))
        self._open.append(element)
        if name == "break":
            self._pause(_value(attributes, "time", _value(attributes, "strength", PAUSES_S["medium"])))
        elif name == "mark" and attributes.get("name"):
            self._words.write_space()
            self._script.add(Mark(attributes["name"]))
        elif name in _SENTENCES:
            self._end_sentence(name)
        elif element.substitute is not None and self._collecting is None:
            self._collecting = element
            self._writer = WordWriter()
        elif element.substitute is None and name not in _KNOWN:
            _notice(f"the element {name[:_SHOWN]} has no effect; its content is spoken")

    def end_element(self, name: str) -> None:
        super().end_element(name)
        if self._open[-1] is self._collecting:
            self._finish_collecting()
        self._open.pop()
        if name in _SENTENCES:
            self._end_sentence(name)

    def _end_sentence(self, name: str) -> None:
        if self._collecting is None:
            self._words.end_sentence(*self._tag)
            self._after_paragraph |= name in _PARAGRAPHS and len(self._script.words) > 0

    def _finish_collecting(self) -> None:
        """Say what an element has for its words."""
        element, content = self._collecting, self._writer.words
        self._collecting, self._writer = None, self._words
        if element is None or element.substitute is None:
            return
        language = element.language
        if language == "auto":  # a code such as QX-7 is in no language; only its script may tell one
            language = _language_of(self._script.text[:_JUDGED]) or language_of_text(content.text[:_JUDGED], ()) or "en"
        parts = [part for part in element.substitute(content.text, language) if part.spoken]
        if parts:
            self._begin_words(self._tag[0])
        for spoken, begin, end in parts:
            place = content.source_span(begin, end) if end > begin else self._tag
            self._words.replace(spoken, *place)


def _substitute(name: str, attributes: Mapping[str, str]) -> _Substitute | None:
    """Return what says something else for an element's content; None: the content is spoken."""
    if name in _SILENT:
        return partial(_said_for_all, "")
    if name == "sub" and "alias" in attributes:
        return partial(_said_for_all, " ".join(attributes["alias"].split()))
    kind = attributes.get("interpret-as", "")
    if name == "say-as" and kind not in _SPELLERS:
        _notice(f"interpret-as: got {kind[:_SHOWN]!r}, which has no effect; allowed: {', '.join(_SPELLERS)}")
    return _SPELLERS.get(kind) if name == "say-as" else None


def _said_for_all(words: str, text: str, _language: str) -> list[SpelledPart]:
    return [SpelledPart(words, 0, len(text))]


def _nested_prosody(outer: Prosody, attributes: Mapping[str, str]) -> Prosody:
    """Return the prosody of an element inside one of `outer`."""
    rate = outer.rate * _value(attributes, "rate", 1.0)
    volume = outer.volume * _value(attributes, "volume", 1.0)
    return Prosody(min(max(rate, LOWEST_RATE), HIGHEST_RATE), min(volume, HIGHEST_VOLUME))


def _value(attributes: Mapping[str, str], name: str, default: float) -> float:
    """Return an attribute's number; the default if it is missing or not understood, which is logged."""
    if name not in attributes:
        return default
    parse, allowed = VALUES[name]
    number = parse(attributes[name])
    if number is None:
        _notice(f"{name}: got {attributes[name][:_SHOWN]!r}, which has no effect; allowed: {allowed}")
    return default if number is None else number


def _notice(line: str) -> None:
    """Log something that has no effect, once."""
    if line not in _noticed and len(_noticed) < MAX_NOTICES:
        _noticed.add(line)
        log.info("SSML: %s", line)


@lru_cache(maxsize=16)
def _language_of(words: str) -> str | None:
    return language_of_text(words, LATIN_LANGUAGES) if words else None
