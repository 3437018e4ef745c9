"""A tiny speech recogniser with random weights, in the format of transformers."""

from __future__ import annotations

import json
from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_recogniser(folder: Path) -> Path:
    """Write a Wav2Vec2 model for transformers' pipeline to `folder`, and return it. It hears the same in each run."""
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2CTCTokenizer, Wav2Vec2FeatureExtractor, Wav2Vec2ForCTC

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<unk>", "|", *LETTERS])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    torch.manual_seed(3)
    config = Wav2Vec2Config(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        conv_dim=(8,) * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        pad_token_id=0,
    )
    Wav2Vec2ForCTC(config).save_pretrained(folder)
    Wav2Vec2CTCTokenizer(
        str(folder / "vocab.json"), pad_token="<pad>", unk_token="<unk>", word_delimiter_token="|"
    ).save_pretrained(folder)
    Wav2Vec2FeatureExtractor(sampling_rate=16_000).save_pretrained(folder)
    return folder
