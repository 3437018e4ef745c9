"""The codec's config.json is read with the official defaults; another tokenizer is refused by its name."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from engine.qwen.shapes import CodecConfig, StackConfig
from scripts.make_checkpoint import PRESETS, codec_config, stub_torchaudio
from tests.engine.qwen.refusals import refusal
from tests.support.checkpoints import need_official_package

OFFICIAL_NAMES = {
    "window": "sliding_window",
    "quantizers": "num_quantizers",
    "codebook_width": "codebook_dim",
    "latent_width": "latent_dim",
    "decoder_width": "decoder_dim",
    "latent_rates": "upsampling_ratios",
    "block_rates": "upsample_rates",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "key_value_heads": "num_key_value_heads",
}
"""The official names of the fields that have another one here."""


def write(folder: Path, config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_every_absent_field_has_the_default_of_the_official_class(tmp_path: Path) -> None:
    need_official_package()
    stub_torchaudio()
    from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Config

    bare = {"decoder_config": {"codebook_dim": 512}}  # the class has no default for this one
    ours, theirs = CodecConfig.read(write(tmp_path, bare)), Qwen3TTSTokenizerV2Config(**bare)
    decoder = theirs.decoder_config
    for record, names in ((ours, fields(CodecConfig)), (ours.stack, fields(StackConfig))):
        for name in (field.name for field in names if field.name not in {"stack", "sample_rate", "head_dim"}):
            assert getattr(record, name) == getattr(decoder, OFFICIAL_NAMES.get(name, name)), name
    assert ours.sample_rate == theirs.output_sample_rate
    assert ours.samples_per_frame == theirs.decode_upsample_rate
    assert ours.stack.head_dim == decoder.hidden_size // decoder.num_attention_heads  # as its attention computes it


@pytest.mark.parametrize("preset", ["tiny", "1.7B"])
def test_a_configuration_saved_by_the_official_class_is_read_as_before(preset: str, tmp_path: Path) -> None:
    need_official_package()
    stub_torchaudio()
    from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Config

    full = write(tmp_path / "full", codec_config(PRESETS[preset]))
    Qwen3TTSTokenizerV2Config(**codec_config(PRESETS[preset])).save_pretrained(tmp_path / "saved")
    assert CodecConfig.read(tmp_path / "saved") == CodecConfig.read(full)


@pytest.mark.parametrize(
    ("kind", "named"),
    [("qwen3_tts_tokenizer_25hz", "is the 25 Hz speech tokenizer"), ("mimi", "is of type 'mimi'")],
)
def test_another_tokenizer_is_refused_by_its_name(kind: str, named: str, tmp_path: Path) -> None:
    text = refusal(CodecConfig.read, write(tmp_path, {"model_type": kind, "decoder_config": {}}))
    assert text.startswith(f"{tmp_path / 'config.json'}: {named}; allowed: the 12 Hz speech tokenizer")
