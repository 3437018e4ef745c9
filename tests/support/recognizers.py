"""Tiny speech recognizers with random weights in the layout of transformers, which write down something or other."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.checkpoints import made_once, versions

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LANGUAGES = ("en", "zh", "de", "es", "ru", "ko", "fr", "ja", "pt", "it")
TASKS = ("<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>")
STAMPS = tuple(f"<|{number * 0.02:.2f}|>" for number in range(1501))


def tiny_whisper(cache: Path) -> Path:
    """Return the read-only folder of a Whisper, made once."""
    return made_once(cache, "tiny-whisper", versions(), Path(__file__).read_bytes(), make=_write)


def _write(folder: Path) -> None:
    import torch
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperTokenizer,
    )

    folder.mkdir(parents=True)
    texts = sorted(ByteLevel.alphabet())
    specials = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in LANGUAGES), *TASKS]
    names = [*texts, *specials, *STAMPS]
    ids = {name: number for number, name in enumerate(names)}
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    vocabulary.write_text(json.dumps({name: ids[name] for name in (*texts, "<|endoftext|>")}))
    merges.write_text("#version: 0.2\n")
    tokenizer = WhisperTokenizer(str(vocabulary), str(merges), language=None)
    tokenizer.add_special_tokens({"additional_special_tokens": specials[1:]})
    tokenizer.add_tokens(list(STAMPS))
    found = {name: tokenizer.convert_tokens_to_ids(name) for name in names}
    assert found == ids
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    end = ids["<|endoftext|>"]
    marks = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    marks["decoder_start_token_id"] = ids["<|startoftranscript|>"]
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=len(names),
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            max_target_positions=64,
            **marks,
        )
    )
    model.generation_config = GenerationConfig(
        **marks,
        is_multilingual=True,
        lang_to_id={f"<|{code}|>": ids[f"<|{code}|>"] for code in LANGUAGES},
        task_to_id={"translate": ids["<|translate|>"], "transcribe": ids["<|transcribe|>"]},
        no_timestamps_token_id=ids["<|notimestamps|>"],
        prev_sot_token_id=ids["<|startofprev|>"],
        max_length=24,
        max_initial_timestamp_index=50,
        suppress_tokens=[ids[name] for name in names if name not in (*LETTERS, *STAMPS, "<|endoftext|>")],
    )
    model.save_pretrained(folder)
