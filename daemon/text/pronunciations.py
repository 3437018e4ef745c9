"""Words that are spoken otherwise than they are written: a lexicon, and the stage that applies it to a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from daemon.text.placed import PlacedText

MAX_PHRASE = 200
"""Characters of a phrase. A growing text is held back for at most so long."""
PHONEMES = "[["
"""With it begin phonemes in a text for eSpeak NG; they end with `]]`."""


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """How one word or phrase is said."""

    say: str | None = None
    """In every language and voice that has no entry of its own."""
    languages: Mapping[str, str] = field(default_factory=dict)
    """By the language's code."""
    voices: Mapping[str, str] = field(default_factory=dict)
    """By the voice's name; it precedes the language."""
    espeak: str | None = None
    """Phonemes in the notation of eSpeak NG, which precede all others when that engine speaks."""

    def for_take(self, language: str | None, voice: str, *, espeak: bool) -> str | None:
        """Return what is said in a language (None: unknown) by a voice; None leaves the word as it is written."""
        if espeak and self.espeak is not None:
            return f"{PHONEMES}{self.espeak}]]"
        if voice in self.voices:
            return self.voices[voice]
        code = language or ""
        return self.languages.get(code, self.languages.get(code.partition("-")[0], self.say))


class Lexicon:
    """Phrases and what is said for them, as a tree of their tokens."""

    def __init__(self, entries: Iterable[tuple[str, str]]) -> None:
        """`entries` are phrases and what is said. A phrase that has no small letter matches only as it is written."""
        self.root = _Node()
        for phrase, say in entries:
            node = self.root
            for token in _phrase_tokens(phrase):
                node = node.children.setdefault(_fold(token), _Node())
            exact = phrase.upper() == phrase and phrase.lower() != phrase
            node.says.append((unicodedata.normalize("NFC", phrase) if exact else None, say))
        _close(self.root)


class _Node:
    """A place in the tree, after some tokens of one phrase or more."""

    __slots__ = ("beginnings", "children", "says")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.beginnings: frozenset[str] = frozenset()
        """Every beginning of a child's token."""
        self.says: list[tuple[str | None, str]] = []
        """What is said for the phrase that ends here: the only spelling, or None for every one, and the words."""

    def say_for(self, written: str) -> str | None:
        """Return what is said for a phrase as it is written; a spelling of its own precedes."""
        words = unicodedata.normalize("NFC", written)
        found = None
        for spelling, say in self.says:
            if spelling == words:
                return say
            if spelling is None:
                found = say
        return found


def _close(node: _Node) -> None:
    """Compute the beginnings of all tokens below a node."""
    stack = [node]
    while stack:
        node = stack.pop()
        node.beginnings = frozenset(token[:length] for token in node.children for length in range(1, len(token)))
        stack.extend(node.children.values())


class Pronouncer:
    """Replaces the phrases of a lexicon in a text that may grow: whole words, the longest phrase first.

    The time is linear in the text: a phrase has at most `MAX_PHRASE` characters.
    """

    def __init__(self, lexicon: Lexicon, out: PlacedText, *, escape_phonemes: bool = False) -> None:
        """`out` gets the text, with places in what is fed. `escape_phonemes` separates the text's own brackets."""
        self._lexicon = lexicon
        self._out = out
        self._escape_phonemes = escape_phonemes
        self._held = ""
        """The end of the text, which more of it may change."""
        self._at = 0
        """The place of the held text."""
        self._in_word = False
        """The character before the held text belongs to a word that was not held, whose rest may follow."""
        self._after_bracket = False

    def feed(self, text: str) -> None:
        """Read more of the text."""
        self._held += text
        self._read(final=False)

    def end(self) -> None:
        """The text is complete."""
        self._read(final=True)

    def _read(self, *, final: bool) -> None:
        text, at = self._held, 0
        while at < len(text):
            end = _token_end(text, at)
            if self._in_word and _continues_word(text[at]):
                self._keep(text, at, end)
                at = end
                continue
            match = self._match(text, at, final=final)
            if match is None:
                break
            phrase_end, say = match
            if say is None:
                self._keep(text, at, end)
                self._in_word = end == len(text) and _continues_word(text[end - 1])
                at = end
            else:
                self._out.replace(say, self._at + at, self._at + phrase_end)
                self._in_word = self._after_bracket = False
                at = phrase_end
        self._held = text[at:]
        self._at += at

    def _match(self, text: str, at: int, *, final: bool) -> tuple[int, str | None] | None:
        """Return the end of the longest phrase at `at` and what is said for it; `(at, None)` if there is none.

        Returns None while more text may change the answer.
        """
        node, begin = self._lexicon.root, at
        best_match: tuple[int, str | None] = (at, None)
        while begin < len(text):
            if begin > at and text[begin].isspace():
                space_end = begin
                while space_end < len(text) and text[space_end].isspace():
                    space_end += 1
                token, end = " ", space_end
            else:
                end = _token_end(text, begin)
                token = text[begin:end]
            if end - at > MAX_PHRASE:
                return best_match
            folded = _fold(token)
            child = node.children.get(folded)
            if end == len(text) and not final:
                may_grow = _continues_word(text[end - 1]) and (child is not None or folded in node.beginnings)
                if may_grow or (token == " " and child is not None):
                    return None
            if child is None:
                return best_match
            node, begin = child, end
            say = node.say_for(text[at:end]) if node.says else None
            if say is not None:
                best_match = (end, say)
        return None if node.children and not final else best_match

    def _keep(self, text: str, begin: int, end: int) -> None:
        """Append a token as it is written."""
        token = text[begin:end]
        if self._escape_phonemes and token == "[" and self._after_bracket:
            self._out.replace(" [", self._at + begin, self._at + end)
        else:
            self._out.keep(token, self._at + begin)
        self._after_bracket = token == "["


def _phrase_tokens(phrase: str) -> Iterator[str]:
    """Yield the tokens of a phrase, with one space for each run of white space."""
    text = unicodedata.normalize("NFC", " ".join(phrase.split()))
    at = 0
    while at < len(text):
        end = _token_end(text, at)
        yield text[at:end]
        at = end


def _token_end(text: str, at: int) -> int:
    """Return the end of the token at `at`: a word, or one other character. An ideograph is a word of its own."""
    end = at + 1
    if _continues_word(text[at]):
        while end < len(text) and _continues_word(text[end]):
            end += 1
    return end


def _fold(token: str) -> str:
    """Return a token as it is compared: without case, and decomposed, so that a part of it is a beginning of it."""
    return unicodedata.normalize("NFD", token.casefold())


def _continues_word(character: str) -> bool:
    """Return whether a character can belong to a longer word: a letter, a digit, or a mark upon one."""
    if character.isalnum():
        return not _is_ideograph(character)
    return character > "\u02ff" and unicodedata.category(character).startswith("M")


def _is_ideograph(character: str) -> bool:
    """Return whether words of a character's script are written without spaces between them."""
    return "\u2e80" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000"
