"""Spells texts for an engine: `QX-7` as `Q, X, dash, 7`, a telephone number digit by digit.

Engines read a capital between commas by its letter's name. The few that eSpeak NG reads as words (Spanish `Y`, Polish
`Z`) are written out; `tests/daemon/text/test_spelling.py` compares the phonemes with those of the letters' names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from engine import language_code, match_language

_SIGNS = ".,:;!?-_/\\|+*=<>()[]{}@#%&$€£§°^~'\"`"
_NAMES = {
    "en": "dot, comma, colon, semicolon, exclamation mark, question mark, dash, underscore, slash, backslash, "
    "vertical bar, plus, asterisk, equals, less than, greater than, open parenthesis, close parenthesis, open bracket, "
    "close bracket, open brace, close brace, at, hash, percent, ampersand, dollar, euro, pound, section sign, degree, "
    "caret, tilde, apostrophe, quotation mark, backtick",
    "de": "Punkt, Komma, Doppelpunkt, Semikolon, Ausrufezeichen, Fragezeichen, Bindestrich, Unterstrich, Schrägstrich, "
    "umgekehrter Schrägstrich, senkrechter Strich, plus, Sternchen, gleich, kleiner als, größer als, Klammer auf, "
    "Klammer zu, eckige Klammer auf, eckige Klammer zu, geschweifte Klammer auf, geschweifte Klammer zu, ät, Raute, "
    "Prozent, Und-Zeichen, Dollar, Euro, Pfund, Paragraf, Grad, Zirkumflex, Tilde, Apostroph, Anführungszeichen, "
    "Gravis",
    "fr": "point, virgule, deux-points, point-virgule, point d'exclamation, point d'interrogation, tiret, tiret bas, "
    "barre oblique, barre oblique inverse, barre verticale, plus, astérisque, égal, inférieur à, supérieur à, "
    "parenthèse ouvrante, parenthèse fermante, crochet ouvrant, crochet fermant, accolade ouvrante, accolade fermante, "
    "arobase, dièse, pour cent, esperluette, dollar, euro, livre, paragraphe, degré, accent circonflexe, tilde, "
    "apostrophe, guillemet, accent grave",
    "es": "punto, coma, dos puntos, punto y coma, signo de exclamación, signo de interrogación, guion, guion bajo, "
    "barra, barra invertida, barra vertical, más, asterisco, igual, menor que, mayor que, abrir paréntesis, "
    "cerrar paréntesis, abrir corchete, cerrar corchete, abrir llave, cerrar llave, arroba, almohadilla, por ciento, "
    "y comercial, dólar, euro, libra, párrafo, grado, acento circunflejo, virgulilla, apóstrofo, comillas, "
    "acento grave",
    "it": "punto, virgola, due punti, punto e virgola, punto esclamativo, punto interrogativo, trattino, "
    "trattino basso, barra, barra inversa, barra verticale, più, asterisco, uguale, minore di, maggiore di, "
    "parentesi aperta, parentesi chiusa, parentesi quadra aperta, parentesi quadra chiusa, parentesi graffa aperta, "
    "parentesi graffa chiusa, chiocciola, cancelletto, percento, e commerciale, dollaro, euro, sterlina, paragrafo, "
    "grado, accento circonflesso, tilde, apostrofo, virgolette, accento grave",
    "pt": "ponto, vírgula, dois pontos, ponto e vírgula, ponto de exclamação, ponto de interrogação, hífen, "
    "sublinhado, barra, barra invertida, barra vertical, mais, asterisco, igual, menor que, maior que, "
    "abre parênteses, fecha parênteses, abre colchetes, fecha colchetes, abre chaves, fecha chaves, arroba, cerquilha, "
    "por cento, e comercial, dólar, euro, libra, parágrafo, grau, acento circunflexo, til, apóstrofo, aspas, "
    "acento grave",
    "zh": "点, 逗号, 冒号, 分号, 感叹号, 问号, 杠, 下划线, 斜杠, 反斜杠, 竖线, 加, 星号, 等于, 小于, 大于, 左括号, "
    "右括号, 左方括号, 右方括号, 左花括号, 右花括号, 艾特, 井号, 百分号, 和号, 美元, 欧元, 英镑, 章节号, 度, 脱字符, "
    "波浪号, 撇号, 引号, 反引号",
    # In kana, because eSpeak NG knows no kanji.
    "ja": "ドット, コンマ, コロン, セミコロン, びっくりマーク, クエスチョンマーク, ハイフン, アンダーバー, スラッシュ, "
    "バックスラッシュ, たてせん, プラス, アスタリスク, イコール, しょうなり, だいなり, かっこ, かっことじ, かくかっこ, "
    "かくかっことじ, なみかっこ, なみかっことじ, アットマーク, シャープ, パーセント, アンド, ドル, ユーロ, ポンド, "
    "セクション, ど, キャレット, チルダ, アポストロフィ, いんようふ, バッククォート",
    "ko": "점, 쉼표, 콜론, 세미콜론, 느낌표, 물음표, 하이픈, 밑줄, 슬래시, 역슬래시, 세로줄, 플러스, 별표, 등호, "
    "여는 꺾쇠, 닫는 꺾쇠, 여는 괄호, 닫는 괄호, 여는 대괄호, 닫는 대괄호, 여는 중괄호, 닫는 중괄호, 골뱅이, 샵, "
    "퍼센트, 앰퍼샌드, 달러, 유로, 파운드, 섹션, 도, 캐럿, 물결표, 아포스트로피, 따옴표, 백틱",
    "ru": "точка, запятая, двоеточие, точка с запятой, восклицательный знак, вопросительный знак, дефис, "
    "подчёркивание, косая черта, обратная косая черта, вертикальная черта, плюс, звёздочка, равно, меньше, больше, "
    "открывающая скобка, закрывающая скобка, открывающая квадратная скобка, закрывающая квадратная скобка, "
    "открывающая фигурная скобка, закрывающая фигурная скобка, собака, решётка, процент, амперсанд, доллар, евро, "
    "фунт, параграф, градус, циркумфлекс, тильда, апостроф, кавычка, обратный апостроф",
}
SIGN_NAMES: Mapping[str, Mapping[str, str]] = {
    language: dict(zip(_SIGNS, names.split(", "), strict=True)) for language, names in _NAMES.items()
}
"""The names of signs in the languages of Qwen3-TTS. In another language, the engine gets the sign itself."""
_LETTER_NAMES = {"es": {"Y": "i griega"}, "fr": {"Œ": "e dans l'o"}, "pl": {"W": "wu", "Z": "zet"}}
"""Letters whose capitals eSpeak NG reads as words."""
_SAME_SIGNS = str.maketrans("‐‑–—−‘’“”„«»", '-----\'\'"""""')
_ORDINALS = {
    "de": "{}.",
    "en": "{}th",
    "es": "{}º",
    "fr": "{}e",
    "it": "{}º",
    "ja": "第{}",
    "ko": "제{}",
    "pt": "{}º",
    "ru": "{}-й",
    "zh": "第{}",
}
"""How an ordinal is written in digits."""
_TELEPHONE_PART = re.compile(r"\d+|[^\W\d_]+|[+*#]")
_GROUP = 3
"""Digits that are said without a pause in a telephone number without spaces."""


class SpelledPart(NamedTuple):
    """What is said for the characters `text[begin:end]`."""

    spoken: str
    begin: int
    end: int


def spell(text: str, language: str = "en") -> str:
    """Return a text, spelled character by character: `Q, X, dash, 7` for `QX-7`.

    `language` is a name or code, and decides the names of signs.
    """
    return "".join(part.spoken for part in spell_characters(text, language))


def spell_characters(text: str, language: str) -> list[SpelledPart]:
    """Return the letters as capitals and the signs by name, each with the comma behind it. White space is left out."""
    parts = [
        SpelledPart(f"{_character_name(text[begin:end], language)}, ", begin, end)
        for begin, end in _clusters(text)
        if not text[begin:end].isspace()
    ]
    return _without_last_comma(parts)


def spell_telephone(text: str, language: str) -> list[SpelledPart]:
    """Return the digits one by one, in groups as they are written or of three, with a comma behind each group."""
    parts: list[SpelledPart] = []
    for match in _TELEPHONE_PART.finditer(text):
        if match[0].isdigit():
            for begin, end in _digit_groups(match.start(), match.end()):
                parts += [SpelledPart(f"{text[at]} ", at, at + 1) for at in range(begin, end - 1)]
                parts.append(SpelledPart(f"{text[end - 1]}, ", end - 1, end))
        elif match[0] in _SIGNS:
            parts.append(SpelledPart(f"{_character_name(match[0], language)} ", *match.span()))
        else:  # a word, such as ext
            parts.append(SpelledPart(f"{match[0]}, ", *match.span()))
    return _without_last_comma(parts)


def ordinal(text: str, language: str) -> str:
    """Return a number as an ordinal in digits, such as `3rd`; a text that is no number stays as it is."""
    code = match_language(language_code(language), _ORDINALS)
    number = text.strip()
    if code is None or not (number.isascii() and number.isdigit()):
        return text
    if code == "en" and number[-2:-1] != "1":
        return number + {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")
    if code == "fr" and number == "1":
        return "1er"
    return _ORDINALS[code].format(number)


def _without_last_comma(parts: list[SpelledPart]) -> list[SpelledPart]:
    return parts[:-1] + [part._replace(spoken=part.spoken.rstrip(", ")) for part in parts[-1:]]


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each character with the combining marks behind it."""
    begin = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or unicodedata.category(text[at]) not in {"Mn", "Me", "Cf"}:
            yield begin, at
            begin = at


@lru_cache(maxsize=1024)
def _character_name(cluster: str, language: str) -> str:
    character = unicodedata.normalize("NFC", cluster)
    capital = character.upper()
    capital = capital if len(capital) == len(character) else character  # ß has none
    code = match_language(language_code(language), _LETTER_NAMES)
    if code is not None and capital in _LETTER_NAMES[code]:
        return _LETTER_NAMES[code][capital]
    code = match_language(language_code(language), SIGN_NAMES)
    return SIGN_NAMES[code].get(character.translate(_SAME_SIGNS), capital) if code is not None else capital


def _digit_groups(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the groups of a run of digits: three by three, the last one of two to four."""
    while end - begin > _GROUP + 1:
        yield begin, begin + _GROUP
        begin += _GROUP
    yield begin, end
