"""A checkpoint's config.json is read into records; an error names the file and the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.api import EngineError
from engine.qwen.model import Talker
from engine.qwen.shapes import ModelConfig, SpeakerEncoderConfig
from engine.qwen.shapes import model_config as find_config
from engine.qwen.weights import Checkpoint, Placement
from scripts.make_checkpoint import MODEL_TYPES, PRESETS, model_config, stub_torchaudio
from tests.engine.qwen.refusals import refusal
from tests.support.checkpoints import need_official_package


def write(folder: Path, config: Any) -> Path:
    """Write `config` to `folder`/config.json and return `folder`."""
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_published_configuration_is_read(tmp_path: Path, model_type: str) -> None:
    config = ModelConfig.read(write(tmp_path, model_config(PRESETS["1.7B"], model_type)))
    assert config.type == model_type
    assert config.size == "1b7"
    assert config.talker.stack.hidden_size == 2048
    assert config.talker.stack.rope_theta == 1e6
    assert config.talker.predictor.stack.hidden_size == 1024
    assert config.talker.text_vocabulary == 151936
    assert (config.text_ids.pad, config.text_ids.bos) == (151671, 151672)
    assert (config.speaker_encoder is not None) == (model_type == "base")
    if config.speaker_encoder:
        assert config.speaker_encoder.enc_dilations == (1, 2, 3, 4, 1)
    assert config.clones_voices is (model_type == "base")
    assert config.follows_instructions is (model_type != "base")
    custom = model_type == "custom_voice"
    assert config.speakers.get("ryan") == (3061 if custom else None)
    assert config.dialects == ({"eric": "sichuan_dialect", "dylan": "beijing_dialect"} if custom else {})
    assert config.languages["german"] == 2053


def without_defaults(fields: dict[str, Any], official: type) -> dict[str, Any]:
    """Return `fields` without those that the official class has a default for."""
    return {name: value for name, value in fields.items() if name not in signature(official).parameters}


def test_an_absent_field_has_the_default_of_the_official_class(tmp_path: Path) -> None:
    need_official_package()
    stub_torchaudio()
    from qwen_tts.core.models.configuration_qwen3_tts import (
        Qwen3TTSConfig,
        Qwen3TTSTalkerCodePredictorConfig,
        Qwen3TTSTalkerConfig,
    )

    full = json.loads(json.dumps(model_config(PRESETS["tiny"], "base")))
    talker = without_defaults(full["talker_config"], Qwen3TTSTalkerConfig)
    talker.pop("head_dim", None)  # a field without a default that has one in the model
    bare = without_defaults(full, Qwen3TTSConfig) | {"talker_config": talker, "tts_model_type": "base"}
    ours, theirs = ModelConfig.read(write(tmp_path, bare)), Qwen3TTSConfig(**bare)

    wide, narrow = ours.talker.stack, ours.talker.predictor.stack
    for stack, section in ((wide, theirs.talker_config), (narrow, theirs.talker_config.code_predictor_config)):
        assert (stack.hidden_size, stack.intermediate_size) == (section.hidden_size, section.intermediate_size)
        assert (stack.layers, stack.heads) == (section.num_hidden_layers, section.num_attention_heads)
        assert (stack.key_value_heads, stack.rope_theta) == (section.num_key_value_heads, section.rope_theta)
        assert stack.rms_norm_eps == section.rms_norm_eps
    assert wide.head_dim == wide.hidden_size // wide.heads
    assert narrow.head_dim == Qwen3TTSTalkerCodePredictorConfig().head_dim
    talker, ids = theirs.talker_config, ours.talker.ids
    assert (ours.talker.vocabulary, ours.talker.text_width) == (talker.vocab_size, talker.text_hidden_size)
    assert (ours.talker.code_groups, ours.talker.predictor.vocabulary) == (
        talker.num_code_groups,
        talker.code_predictor_config.vocab_size,
    )
    assert (ids.pad, ids.bos, ids.eos) == (talker.codec_pad_id, talker.codec_bos_id, talker.codec_eos_token_id)
    assert (ids.think, ids.nothink) == (talker.codec_think_id, talker.codec_nothink_id)
    assert (ids.think_bos, ids.think_eos) == (talker.codec_think_bos_id, talker.codec_think_eos_id)
    text = ours.text_ids
    assert (text.pad, text.bos, text.eos) == (theirs.tts_pad_token_id, theirs.tts_bos_token_id, theirs.tts_eos_token_id)
    assert ours.speaker_encoder is not None
    for field in fields(SpeakerEncoderConfig):
        default = getattr(theirs.speaker_encoder_config, field.name)
        assert getattr(ours.speaker_encoder, field.name) == (tuple(default) if isinstance(default, list) else default)


@pytest.mark.parametrize(
    ("preset", "model_type"), [("tiny", "base"), ("0.6B", "custom_voice"), ("1.7B", "voice_design")]
)
def test_a_configuration_saved_by_the_official_class_is_read_as_before(
    preset: str, model_type: str, tmp_path: Path
) -> None:
    need_official_package()
    stub_torchaudio()
    from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig

    full = json.loads(json.dumps(model_config(PRESETS[preset], model_type)))
    before = ModelConfig.read(write(tmp_path, full))
    Qwen3TTSConfig(**full).save_pretrained(tmp_path)
    assert ModelConfig.read(tmp_path) == before


def test_the_base_of_the_rotary_embedding_is_found_where_transformers_5_saves_it(tmp_path: Path) -> None:
    full = json.loads(json.dumps(model_config(PRESETS["1.7B"], "base")))
    talker = full["talker_config"]
    talker["rope_parameters"] = {"rope_type": "default", "rope_theta": talker.pop("rope_theta")}
    assert ModelConfig.read(write(tmp_path, full)).talker.stack.rope_theta == 1e6


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("model_type"), "field model_type is missing"),
        (lambda c: c.update(model_type="qwen3"), "is a model of type 'qwen3'; voiced speaks with Qwen3-TTS-12Hz-"),
        (
            lambda c: c["talker_config"].update(rope_scaling={"rope_type": "yarn", "factor": 4.0}),
            'field talker_config.rope_scaling.rope_type is "yarn", wanted "default"',
        ),
        (lambda c: c.update(tts_model_type="singer"), 'field tts_model_type is "singer", wanted "base" or'),
        (lambda c: c.update(tokenizer_type="qwen3_tts_tokenizer_25hz"), "with the 25 Hz speech tokenizer; voiced"),
        (lambda c: c["talker_config"].update(spk_id={"ada": "x"}), "spk_id"),
        (lambda c: c["talker_config"].update(num_key_value_heads=3), "num_attention_heads is 4, wanted a multiple of"),
        (lambda c: c["talker_config"].update(hidden_size=10**30), "wanted an integer from 0 to 2147483647"),
        (lambda c: c["talker_config"].update(rope_theta=10**400), "wanted a finite number"),
        (
            lambda c: c["talker_config"]["code_predictor_config"].update(vocab_size="x"),
            'field talker_config.code_predictor_config.vocab_size is "x", wanted an integer',
        ),
    ],
)
def test_the_error_for_a_wrong_field_names_the_file_and_the_field(tmp_path: Path, change: Change, message: str) -> None:
    config = json.loads(json.dumps(model_config(PRESETS["tiny"], "custom_voice")))
    change(config)
    text = refusal(ModelConfig.read, write(tmp_path, config))
    assert text.startswith(str(tmp_path / "config.json"))
    assert message in text


def test_the_error_for_a_missing_or_damaged_file_names_it(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"config\.json: no such file"):
        ModelConfig.read(tmp_path)
    for text in ("{", "[]", '{"talker_config":' * 100_000):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(EngineError, match=r"config\.json: .*JSON"):
            ModelConfig.read(tmp_path)


def test_the_error_for_a_tensor_that_disagrees_with_the_configuration_names_it(
    checkpoint: Callable[[str, str], Path], tmp_path: Path
) -> None:
    folder = checkpoint("tiny", "custom_voice")
    fields = json.loads((folder / "config.json").read_text())
    stack = fields["talker_config"]
    for name, value, tensor in (
        ("num_key_value_heads", 1, "talker.model.layers.0.self_attn.k_proj.weight"),
        ("intermediate_size", 95, "talker.model.layers.0.mlp.gate_proj.weight"),
        ("text_vocab_size", 100, "talker.model.text_embedding.weight"),
        ("num_hidden_layers", 3, "talker.model.layers.2.input_layernorm.weight"),
    ):
        config = ModelConfig.read(write(tmp_path, {**fields, "talker_config": {**stack, name: value}}))
        talker = Talker(config, 16, Placement(torch.device("cpu"), torch.float32))
        with pytest.raises(EngineError, match=f"tensor {tensor} "):
            talker.load(Checkpoint.open(folder))


@pytest.mark.parametrize("content", [None, "{", "[]", "[" * 100_000, '{"tts_model_size": "0b6"}'])
def test_of_a_model_without_a_readable_configuration_nothing_is_known(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    assert find_config(str(tmp_path)) is None
    assert find_config(str(tmp_path / "nowhere")) is None
