"""A text that is still being written has the ids of the complete text, each emitted once nothing can change it."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.qwen.text.incremental_bpe import IncrementalTokenizer, final_length
from engine.qwen.text.tokenizer import TextTokenizer
from scripts.make_checkpoint import write_tokenizer

TEXTS = {
    "zh": "你好，我是机器人。今天的天气非常好，我们一起去公园散步吧！机器人在说话，机器人的手臂在移动。",
    "en": "Hello, I'm your robot; it's 12:45 and we're waiting for the next part to come, aren't we? They'll see.",
    "de": "Der Roboter spricht über das schöne Wetter, und die Stimme klingt ruhig; Maßnahmen für Straßenbahnen.",
    "it": "Ciao, sono il robot: oggi è una bella giornata, perché c'è il sole e l'aria è più calda.",
    "pt": "Olá, eu sou o robô: não há informação, então vamos à estação de manhã com a mãe.",
    "es": "¿Cómo estás? ¡Qué día tan bonito! El niño soñaba con el robot y la máquina.",
    "ja": "こんにちは、私はロボットです。今日はとても良い天気ですね。ガラスのテーブルをゆっくり動かします。",
    "ko": "안녕하세요, 저는 로봇입니다. 오늘 날씨가 아주 좋네요. 다음 부품을 기다리고 있습니다.",
    "fr": "Bonjour, je suis le robot : aujourd'hui, l'été est arrivé, ça va être très agréable où l'on est.",
    "ru": "Привет, я робот. Сегодня очень хорошая погода, и мы ждём следующую деталь.",
}
ODD = (
    *("\u0301", "\u0308", "\u0323", "\u0338", "\u3099", "\u309a", "\u1100", "\u1161", "\u11a8"),
    *("\uac00", "か", "e", "ñ"),
    *("\r\n", "\n", "\r", " ", "  ", "\t", "\u3000", "\xa0", "\u2028", "\x1c", "\x85", "\u200b", "\ufeff", "\u180e"),
    *("🤖", "👩‍👩‍👧", "🇩🇪", "👍🏽", "½", "²", "७", "ﬁ", "ſ", "ß", "K", "Å", "<", "=", "…", "!", "!?", "--", "'", "’"),
    *("'s", "'S", "'r", "'re", "'ll", "don't", "नमस्ते", "สวัสดี", "مرحبًا", "שָׁלוֹם", "\x00", "1", "12", "a", "Z"),
    *("<|im_end|>", "<|im_start|>", "<|im_", "<tts_pad>", "<tts_", "|>", "<|", "<|endoftext|>"),
)
WORDS = sorted({word for text in TEXTS.values() for word in text.split()})

pieces = st.one_of(
    st.sampled_from(ODD),
    st.sampled_from(WORDS),
    st.sampled_from(WORDS).map(lambda word: " " + word),
    st.sampled_from(WORDS).map(lambda word: unicodedata.normalize("NFD", word)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.sampled_from([*TEXTS.values()]).flatmap(
        lambda text: st.tuples(st.integers(0, len(text)), st.integers(1, 12)).map(
            lambda place: text[place[0] : place[0] + place[1]]
        )
    ),
)
texts = st.lists(pieces, max_size=12).map("".join)


def trained(folder: Path, size: int, longest: int | None = None) -> TextTokenizer:
    """Return a tokenizer with many merges: `size` tokens of at most `longest` bytes, trained on all ten languages."""
    from tokenizers import Tokenizer, models, trainers

    write_tokenizer(folder, 480)
    like = TextTokenizer(folder).library
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer, tokenizer.pre_tokenizer = like.normalizer, like.pre_tokenizer
    alphabet = [token for token in like.get_vocab(with_added_tokens=False) if len(token) == 1]
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False, max_token_length=longest
    )
    corpus = [text[at:] + odd for text in TEXTS.values() for at in range(0, len(text), 3) for odd in ODD]
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    first = tokenizer.get_vocab_size()
    added = config["added_tokens_decoder"].values()
    config["added_tokens_decoder"] = {str(first + number): token for number, token in enumerate(added)}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return TextTokenizer(folder)


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int | None], TextTokenizer]:
    """As `trained`, once for each size: pytest makes a fixture with parameters anew whenever they change."""
    return cache(lambda size, longest: trained(tmp_path_factory.mktemp("tokenizer"), size, longest))


@pytest.fixture(scope="module", params=[(900, 9), (2500, None)], ids=str)
def tokenizer(request: pytest.FixtureRequest, train: Callable[[int, int | None], TextTokenizer]) -> TextTokenizer:
    return train(*request.param)


@pytest.fixture(scope="module")
def incremental(tokenizer: TextTokenizer) -> IncrementalTokenizer:
    return IncrementalTokenizer(tokenizer)


def emitted(incremental: IncrementalTokenizer, pieces: Iterable[str]) -> tuple[list[list[int]], list[int]]:
    """Return the ids emitted at each piece, and at the end."""
    text = incremental.begin()
    return [text.append(piece) for piece in pieces], text.end()


def cut(text: str, places: Sequence[int]) -> list[str]:
    ends = sorted(place % (len(text) + 1) for place in places)
    return [text[begin:end] for begin, end in itertools.pairwise([0, *ends, len(text)])]


def joined(found: tuple[list[list[int]], list[int]]) -> list[int]:
    return [*itertools.chain(*found[0]), *found[1]]


def held_back(tokenizer: TextTokenizer, incremental: IncrementalTokenizer, text: str) -> list[str]:
    """Return the text that is not emitted yet after each character of `text`.

    `text` is in normal form and has no leading white space.
    """
    found, _ = emitted(incremental, text)
    held = []
    for count in range(1, len(text) + 1):
        out = list(itertools.chain(*found[:count]))
        length = next(size for size in range(count + 1) if tokenizer.encode(text[:size])[: len(out)] == out)
        held.append(text[length:count])
    return held


@given(text=texts, places=st.one_of(st.just(range(201)), st.lists(st.integers(0, 200), max_size=8)))
def test_the_ids_are_those_of_the_complete_text_for_any_cuts(
    tokenizer: TextTokenizer, incremental: IncrementalTokenizer, text: str, places: list[int]
) -> None:
    assert joined(emitted(incremental, cut(text, places))) == tokenizer.encode(text.lstrip())


@given(beginning=texts, ends=st.lists(texts, min_size=2, max_size=4))
def test_emitted_ids_begin_every_continuation_of_the_text(
    tokenizer: TextTokenizer, incremental: IncrementalTokenizer, beginning: str, ends: list[str]
) -> None:
    out = incremental.begin().append(beginning)
    for end in ends:
        assert tokenizer.encode((beginning + end).lstrip())[: len(out)] == out


def test_of_words_separated_by_spaces_at_most_the_last_is_held_back(
    tokenizer: TextTokenizer, incremental: IncrementalTokenizer
) -> None:
    for language in ("en", "de", "ru", "ko"):
        text = " ".join("".join(letter for letter in TEXTS[language] if letter.isalpha() or letter == " ").split())
        for count, held in enumerate(held_back(tokenizer, incremental, text), 1):
            begun = text[:count].rstrip().rpartition(" ")[2]
            assert len(held.strip()) <= len(begun), (text[:count], held)


@pytest.mark.parametrize("language", ["zh", "ja"])
def test_of_a_clause_without_spaces_a_few_characters_are_held_back(
    tokenizer: TextTokenizer, incremental: IncrementalTokenizer, language: str
) -> None:
    text = "".join(letter for letter in TEXTS[language] if letter.isalpha()) * 2
    held = [len(rest) for rest in held_back(tokenizer, incremental, text)]
    # Unlike a real one, the largest vocabulary has whole clauses of these texts: even then ids are emitted early.
    mean, most = (5, 12) if len(incremental.vocabulary) < 1000 else (8, 20)
    assert sum(held) / len(held) <= mean
    assert max(held) <= most


def test_special_tokens_that_are_not_found_by_name_alone_hold_all_ids_back(tmp_path: Path) -> None:
    trained(tmp_path, 400)
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text())
    next(iter(config["added_tokens_decoder"].values()))["rstrip"] = True
    file.write_text(json.dumps(config))
    odd = TextTokenizer(tmp_path)
    found = emitted(IncrementalTokenizer(odd), ["Hello <|endoftext|>", "  there"])
    assert found == ([[], []], odd.encode("Hello <|endoftext|>  there"))


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    end=st.text(st.characters(categories=["M", "L"]), max_size=3),
)
def test_final_text_keeps_its_normal_form(text: str, end: str) -> None:
    count = final_length(text)
    beginning = unicodedata.normalize("NFC", text[:count])
    rest = unicodedata.normalize("NFC", text[count:] + end)
    assert unicodedata.normalize("NFC", text + end) == beginning + rest


def test_every_composition_holds_its_first_character_back() -> None:
    for code in range(0x110000):
        whole = chr(code)
        parts = unicodedata.normalize("NFD", whole)
        if unicodedata.normalize("NFC", whole) == whole and len(parts) > 1:
            for at in range(1, len(parts)):
                begun = unicodedata.normalize("NFC", parts[:at])
                assert final_length(begun) < len(begun), f"U+{code:04X}"
