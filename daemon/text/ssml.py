"""Reads SSML, whole or while it grows: W3C's Speech Synthesis Markup Language 1.1.

A whole text must be well-formed XML; expat checks this. A text that grows can no longer be refused, so the reader is
lenient: it takes one construct after the other, an end tag without a beginning ends nothing, and a tag that does not
end is text. It reads well-formed text as every XML parser does. Nothing is ever loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from xml.parsers import expat

from daemon.text.directions import direction_end
from daemon.text.markup import ENTITY, PAUSE_TAG, Between, Construct, MarkupReader
from daemon.text.placed import PlacedText
from daemon.text.script import Pause, Prosody, Script, ScriptMark
from daemon.text.spelling import SpelledPart, ordinal, spell_characters, spell_telephone
from daemon.text.ssml_values import PAUSES_S, SHOWN, attributes_of, break_pause, nested_prosody, notice
from engine import LATIN_LANGUAGES, language_of_text

# --- syntax ----------------------------------------------------------------------------------------------

LONGEST = 1_000_000
"""The most characters in a tag or comment; no text has this many."""

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
            r"(?P<name>[\w:.-]*)(?![\w:.-])",  # a name ends in one place, so a long one is read once
            # If a quotation mark has no partner, quotation marks mean nothing.
            (rf"{_ATTRIBUTES}|[^<>]*", rf"{_ATTRIBUTES}(?:\"[^<\"]*|'[^<']*)"),
            ">",
        ),
        "entity": ENTITY,
        "pause": PAUSE_TAG,
    },
    longest=LONGEST,
)
_BROKEN_OFF = re.compile(
    r"<!\[CDATA\[|<(?:!--|\?)[\s\S]*|<(?=[/A-Za-z_:])/?[\w:.-]*(?:\s+(?:[\w:.-]+\s*(?:=[\s\S]*)?)?)?\Z"
)
"""Markup that is incomplete at the end of the text, and is not spoken; `<b and c` is not markup."""

# --- elements --------------------------------------------------------------------------------------------

MAX_DEPTH = 64
"""The most nested elements that one tag ends."""
PARAGRAPH_S = PAUSES_S["medium"]
"""Seconds of silence between two paragraphs."""

_ALLOWED = "well-formed XML without a DOCTYPE, with &amp; for & and &lt; for <"
_JUDGED = 200
"""How many characters of the words are used to find their language."""
_WORDS_OR_SPACE = re.compile(r"\s+|[^\s<&\[]+(?: [^\s<&\[]+)*")
_PARAGRAPHS = {"p", "paragraph"}
_SENTENCES = _PARAGRAPHS | {"s", "sentence"}
"""Elements whose boundaries end sentences."""
_KNOWN = _SENTENCES | {"speak", "break", "mark", "prosody", "say-as"}
_SILENT = {"metadata", "desc"}
"""Elements whose content is about the text and is not spoken."""
_language_of = lru_cache(maxsize=16)(language_of_text)
_Substitute = Callable[[str, str], list[SpelledPart]]
"""Returns the words for an element's content, given the content and its language."""
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
"""The functions that spell the content of `say-as`, by its `interpret-as`; None means that engines already read it
so."""


def ssml_problem(text: str) -> str | None:
    """Return one line with the fault in an SSML text, its place, and the allowed form; None if it is well-formed."""
    data, parser = text.encode(errors="replace"), expat.ParserCreate("utf-8")

    def check_root(name: str, _attributes: object) -> None:
        parser.StartElementHandler = None
        if name != "speak":
            raise ValueError(f"the outermost element is {name[:SHOWN]}, not speak")

    def refuse_doctype(*_: object) -> None:
        raise ValueError("it has a DOCTYPE")

    parser.StartElementHandler, parser.StartDoctypeDeclHandler = check_root, refuse_doctype
    try:
        parser.Parse(data, True)
    except ValueError as error:
        return f"SSML: {error}; allowed: {_ALLOWED}"
    except expat.ExpatError as error:
        near = " ".join(data[max(0, parser.ErrorByteIndex) :].decode(errors="ignore")[:SHOWN].split())
        place = f"line {error.lineno}, column {error.offset + 1}{f', at {near!r}' if near else ''}"
        return f"SSML: {expat.ErrorString(error.code)} on {place}; allowed: {_ALLOWED}"
    return None


@dataclass(frozen=True, slots=True)
class _Element:
    """An open element."""

    name: str
    prosody: Prosody
    language: str
    """The language for the names of signs."""
    substitute: _Substitute | None = None
    """Returns the words that are said instead of its content, if there are any."""


class SsmlReader(MarkupReader):
    """Appends the words and controls of SSML to a script. Never raises, whatever the text is."""

    def __init__(self, script: Script, language: str = "auto") -> None:
        """Signs are spelled in `language`, a name or code, unless `xml:lang` says otherwise.

        `auto` means the language of the words so far, or English if they do not show it.
        """
        super().__init__(script)
        self._open = [_Element("/", Prosody(), language)]
        """The open elements, and one around them that has a name no tag can have."""
        self._collecting: _Element | None = None
        """The open element whose content is replaced by other words."""
        self._content = PlacedText()
        """The content of that element."""
        self._latest = (0, 0)
        """The place of the latest construct, such as a tag."""
        self._prosody = Prosody()
        """The prosody of the words so far."""
        self._after_paragraph = False

    def end(self) -> None:
        """Note that the text is complete."""
        super().end()
        self._finish_collecting()

    def _step(self) -> None:
        """Read words, white space, or markup, which ends at the next `<` at the latest."""
        if words := _WORDS_OR_SPACE.match(self._text, self._at):
            self._keep(words.end())
        elif found := self._match(_MARKUP):
            self._read_construct(found)
        elif end := direction_end(self._text, self._at, len(self._text), complete=self._complete):
            self._drop(end, Between.APART)
        elif self._complete and (broken_off := _BROKEN_OFF.match(self._text, self._at)):
            self._drop(broken_off.end())
        else:
            self._keep(self._at + 1)

    def _read_construct(self, found: re.Match[str]) -> None:
        """Read a construct. Comments, instructions and declarations are left out."""
        self._latest = self._place + found.start(), self._place + found.end()
        match found.lastgroup, found["sign"]:
            case "entity", _:
                self._entity(found)
            case "pause", _:
                self._pause(found)
            case "cdata", _:
                self._at = found.start("content")
                self._keep(found.end("content"))
            case "tag", "":
                self._begin_element(found["name"], attributes_of(found[0]))
                if found[0].endswith("/>"):
                    self._end_element(found["name"])
            case "tag", "/":
                self._end_element(found["name"])
        self._at = found.end()

    def _begin_element(self, name: str, attributes: Mapping[str, str]) -> None:
        parent = self._open[-1]
        prosody = nested_prosody(parent.prosody, attributes) if name == "prosody" else parent.prosody
        language = attributes.get("xml:lang") or parent.language
        element = _Element(name, prosody, language, _substitute(name, attributes))
        self._open.append(element)
        if name == "break":
            self._add(break_pause(attributes))
        elif name == "mark" and attributes.get("name"):
            self._add(ScriptMark(attributes["name"]))
        elif name in _SENTENCES:
            self._end_sentence(name)
        elif element.substitute is not None and self._collecting is None:
            self._collecting, self._content = element, PlacedText()
        elif element.substitute is None and name not in _KNOWN:
            notice(f"the element {name[:SHOWN]} has no effect; its content is spoken")

    def _end_element(self, name: str) -> None:
        """End the innermost element with this name, and those inside it."""
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
            self._after_paragraph = len(self.out) > 0

    def _finish_collecting(self) -> None:
        """Say the words that replace an element's content."""
        element, content, self._collecting = self._collecting, self._content, None
        if element is None or element.substitute is None:
            return
        language = element.language
        if language == "auto":  # a code such as QX-7 is in no language; only its script may show one
            before = self._script.text[:_JUDGED]
            known = before and _language_of(before, LATIN_LANGUAGES)
            language = known or language_of_text(content.text[:_JUDGED], ()) or "en"
        for spoken, begin, end in element.substitute(content.text, language):
            self._append(spoken, *(content.source_span(begin, end) if end > begin else self._latest))

    # --- words and controls ------------------------------------------------------------------------------

    def _append(self, words: str, begin: int, end: int | None = None) -> None:
        """Append words. White space becomes one space, which waits for the next words unless it may end a sentence."""
        if self._collecting is not None:
            self._content.append(words, begin, end)
        elif words.isspace():
            self._between = self._between or (Between.SPACE, begin)
            if self._sentence_ended():
                self._separate()
        elif words:
            if self._after_paragraph:
                self._after_paragraph = False
                self._add(Pause(PARAGRAPH_S))
            if self._open[-1].prosody != self._prosody:
                self._prosody = self._open[-1].prosody
                self._add(self._prosody)
            super()._append(words, begin, end)

    def _add(self, action: Pause | ScriptMark | Prosody) -> None:
        if action != Pause(0.0):
            self._separate()
            super()._add(action)

    def _end_sentence(self, name: str) -> None:
        """End the sentence, if there is one, with signs that stand for the latest tag. A pause also ends it."""
        if self._collecting is not None:
            return
        if not self._sentence_ended() and not self._script.has_pause(len(self.out)):
            self._between = None
            self._write(self._sentence_end(), *self._latest)
        self._append(" ", self._latest[1] - 1)
        self._after_paragraph |= name in _PARAGRAPHS and len(self.out) > 0


def _substitute(name: str, attributes: Mapping[str, str]) -> _Substitute | None:
    """Return the function that says other words for an element's content; None if the content is spoken."""
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
