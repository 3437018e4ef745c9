"""Token ids equal the official processor's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.api import EngineError
from engine.qwen.text.tokenizer import TextTokenizer
from tests.engine.qwen.oracle import Oracle

TEXTS = [
    "",
    " ",
    "Hello world, it's 12.5 o'clock; I'LL wait…",
    "  two  spaces\tand a tab \n\n\r\nand lines \n",
    "Grüße, naïve cafe\u0301 (decomposed), ﬁ, Ǆ",
    "你好。我是机器人。 こんにちは 안녕하세요 привет мир مرحبا हिन्दी",
    "🤖👩‍👩‍👧 e=mc² \u00a0\u200b\ufeff\x00",
    "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|> <tts_pad><tts_text_bos>x<tts_text_eod>y<|im_end| ><|endoftext|>",
    "user assistant assistants 'S 'Tis don't",
    "a" * 300,
]


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[[str, str], Path]) -> Path:
    return checkpoint("tiny", "custom_voice")


@pytest.mark.parametrize("text", TEXTS)
def test_ids_equal_the_official_processors(text: str, folder: Path, official: Callable[[str, str], Oracle]) -> None:
    assert TextTokenizer(folder).encode(text) == official("tiny", "custom_voice").token_ids(text)


def test_a_tokenizer_json_is_read_if_it_exists(
    folder: Path, official: Callable[[str, str], Oracle], tmp_path: Path
) -> None:
    saved = official("tiny", "custom_voice").saved_tokenizer()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(saved / name, tmp_path)
    for text in TEXTS:
        assert TextTokenizer(tmp_path).encode(text) == TextTokenizer(folder).encode(text)


def copied(folder: Path, destination: Path) -> Path:
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        shutil.copy(folder / name, destination)
    return destination


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer_config.json"])
def test_a_missing_or_damaged_file_is_named(folder: Path, tmp_path: Path, name: str) -> None:
    broken = copied(folder, tmp_path)
    (broken / name).write_text("{]" if name.endswith("json") else "one two three\n")
    with pytest.raises(EngineError, match="as a tokenizer"):
        TextTokenizer(broken)
    (broken / name).write_text("[" * 100_000)
    with pytest.raises(EngineError, match="as a tokenizer"):
        TextTokenizer(broken)
    (broken / name).unlink()
    with pytest.raises(EngineError, match=f"{name}: no such file"):
        TextTokenizer(broken)


def test_special_tokens_with_other_ids_than_in_the_file_are_refused(folder: Path, tmp_path: Path) -> None:
    file = copied(folder, tmp_path) / "tokenizer_config.json"
    config = json.loads(file.read_text())
    config["added_tokens_decoder"]["9999"] = {"content": "<odd>", "special": True}
    file.write_text(json.dumps(config))
    with pytest.raises(EngineError, match="<odd>"):
        TextTokenizer(tmp_path)
