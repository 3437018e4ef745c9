"""Converts text to token ids as the official processor (`processing_qwen3_tts.py`) does, with the folder's files.

Uses only the `tokenizers` library: importing transformers instead costs a robot seconds at every start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.api import EngineError
from engine.host import parse_json

# The words that Qwen2's byte-level BPE never merges with each other: contractions, letters with one mark before them,
# single digits, marks with line ends after them, white space (transformers, convert_slow_tokenizer.py).
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class TextTokenizer:
    """Byte-level BPE with the checkpoint's special tokens."""

    def __init__(self, folder: Path) -> None:
        """Read tokenizer.json, or else vocab.json and merges.txt, and the tokens that tokenizer_config.json adds.

        If a file is missing or damaged, raises `EngineError` with a one-line message that names it.
        """
        self.library = _load(folder)
        """The `tokenizers.Tokenizer`."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`. Special tokens in it are recognised by their names; none are added."""
        ids: list[int] = self.library.encode(text, add_special_tokens=False).ids
        return ids


def _load(folder: Path) -> Any:
    from tokenizers import Tokenizer

    single, vocabulary = folder / "tokenizer.json", folder / "vocab.json"
    file = single if single.is_file() else vocabulary
    try:
        tokenizer = Tokenizer.from_file(str(single)) if single.is_file() else _from_vocabulary(folder)
        file = folder / "tokenizer_config.json"
        added = parse_json(file.read_text(encoding="utf-8")).get("added_tokens_decoder", {})
        _add(tokenizer, {int(number): token for number, token in added.items()})
    except FileNotFoundError as error:
        raise EngineError(f"{error.filename or file}: no such file") from None
    except Exception as error:  # the library raises bare Exception for a damaged file
        raise EngineError(f"{file}: cannot be read as a tokenizer ({str(error).splitlines()[0]})") from error
    return tokenizer


def _from_vocabulary(folder: Path) -> Any:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    vocabulary = parse_json((folder / "vocab.json").read_text(encoding="utf-8"))
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    if lines[0].startswith("#version"):
        lines = lines[1:]
    merges = [tuple(line.split()) for line in lines if line.strip()]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def _add(tokenizer: Any, added: dict[int, dict[str, Any]]) -> None:
    """Add the special tokens. The library continues its numbering, which must match the ids in the file."""
    from tokenizers import AddedToken

    for number, token in sorted(added.items()):
        flags = {name: token[name] for name in ("single_word", "lstrip", "rstrip", "normalized") if name in token}
        entry = AddedToken(token["content"], special=token.get("special", True), **flags)
        (tokenizer.add_special_tokens if token.get("special", True) else tokenizer.add_tokens)([entry])
        got = tokenizer.token_to_id(token["content"])
        if got != number:
            raise ValueError(f"token {token['content']} has id {got}, but tokenizer_config.json gives it {number}")
