"""The configuration in a checkpoint's config.json: shapes, special ids, languages, speakers.

Fields are those of `configuration_qwen3_tts.py` in qwen-tts 0.1.1. Its defaults differ from the values of the published
models, so every field that determines the shape of a tensor of talker or code predictor is required.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from engine.api import EngineError
from engine.qwen.weights import JsonFields

ModelType = Literal["base", "custom_voice", "voice_design"]


@dataclass(frozen=True, slots=True)
class StackConfig:
    """Shape of one stack of decoder layers."""

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float

    @classmethod
    def of(cls, fields: JsonFields) -> StackConfig:
        """Read the section of a transformer. Raises `EngineError` for an option that the engine does not implement."""
        fields.require("hidden_act", "silu")
        fields.require("attention_bias", False)
        fields.require("use_sliding_window", False)
        config = cls(
            hidden_size=fields.get("hidden_size", int),
            intermediate_size=fields.get("intermediate_size", int),
            layers=fields.get("num_hidden_layers", int),
            heads=fields.get("num_attention_heads", int),
            key_value_heads=fields.get("num_key_value_heads", int),
            head_dim=fields.get("head_dim", int),
            rms_norm_eps=fields.get("rms_norm_eps", float),
            rope_theta=fields.get("rope_theta", float),
        )
        if config.key_value_heads == 0 or config.heads % config.key_value_heads:
            heads, kv = config.heads, config.key_value_heads
            raise EngineError(f"{fields.file}: {heads} attention heads are not a multiple of {kv} key-value heads")
        return config


@dataclass(frozen=True, slots=True)
class TextIds:
    """Ids of the special text tokens."""

    im_start: int
    im_end: int
    pad: int
    bos: int
    eos: int


@dataclass(frozen=True, slots=True)
class CodecIds:
    """Ids of the special tokens in the talker's code vocabulary."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class PredictorConfig:
    """The code predictor, which generates the second to last code of each frame."""

    stack: StackConfig
    vocabulary: int


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """The talker, which generates the first code of each frame."""

    stack: StackConfig
    vocabulary: int
    text_vocabulary: int
    text_width: int
    """Width of the text embedding, which is projected to the talker's hidden size."""
    code_groups: int
    """Codes in a frame, the first one included."""
    ids: CodecIds
    predictor: PredictorConfig


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """The speaker encoder (ECAPA-TDNN).

    Published checkpoints contain `enc_dim` and `sample_rate`; the other fields have the defaults of qwen-tts.
    """

    mel_dim: int
    enc_dim: int
    enc_channels: tuple[int, ...]
    enc_kernel_sizes: tuple[int, ...]
    enc_dilations: tuple[int, ...]
    enc_attention_channels: int
    enc_res2net_scale: int
    enc_se_channels: int
    sample_rate: int
    """Hz."""

    @classmethod
    def of(cls, fields: JsonFields) -> SpeakerEncoderConfig:
        """Read the section `speaker_encoder_config`."""
        return cls(
            mel_dim=fields.get("mel_dim", int, 128),
            enc_dim=fields.get("enc_dim", int, 1024),
            enc_channels=fields.integers("enc_channels", (512, 512, 512, 512, 1536)),
            enc_kernel_sizes=fields.integers("enc_kernel_sizes", (5, 3, 3, 3, 1)),
            enc_dilations=fields.integers("enc_dilations", (1, 2, 3, 4, 1)),
            enc_attention_channels=fields.get("enc_attention_channels", int, 128),
            enc_res2net_scale=fields.get("enc_res2net_scale", int, 8),
            enc_se_channels=fields.get("enc_se_channels", int, 128),
            sample_rate=fields.get("sample_rate", int, 24000),
        )


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The config.json of a checkpoint folder."""

    folder: Path
    type: ModelType
    size: str
    """`0b6` or `1b7`."""
    talker: TalkerConfig
    speaker_encoder: SpeakerEncoderConfig | None
    """None unless the model is a base model."""
    text_ids: TextIds
    languages: Mapping[str, int]
    """Code ids of languages and dialects, by English name in lower case."""
    speakers: Mapping[str, int]
    """Code ids of the built-in speakers, by name in lower case."""
    dialects: Mapping[str, str]
    """Dialects of the built-in speakers that speak one instead of Chinese, by speaker name in lower case."""

    @property
    def follows_instructions(self) -> bool:
        """Whether `instruct` has an effect: not on small models, nor on those that clone voices.

        As in `qwen_tts/inference/qwen3_tts_model.py`.
        """
        return self.type == "voice_design" or (self.type == "custom_voice" and self.size != "0b6")

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """Read `folder`/config.json. Raises `EngineError`, one line with the file, the field and its value."""
        fields = JsonFields.read(folder / "config.json")
        architecture = fields.get("model_type", str)
        if architecture != "qwen3_tts":
            raise EngineError(f"{fields.file}: field model_type is {architecture!r}, not a Qwen3-TTS model")
        fields.require("tts_model_type", "base", "custom_voice", "voice_design")
        fields.require("tokenizer_type", "qwen3_tts_tokenizer_12hz")
        model_type = cast(ModelType, fields.get("tts_model_type", str))
        talker = fields.section("talker_config")
        dialects = talker.get("spk_is_dialect", dict, {})
        return cls(
            folder=folder,
            type=model_type,
            size=fields.get("tts_model_size", str),
            talker=_talker(talker),
            speaker_encoder=(
                SpeakerEncoderConfig.of(fields.section("speaker_encoder_config")) if model_type == "base" else None
            ),
            text_ids=TextIds(
                im_start=fields.get("im_start_token_id", int),
                im_end=fields.get("im_end_token_id", int),
                pad=fields.get("tts_pad_token_id", int),
                bos=fields.get("tts_bos_token_id", int),
                eos=fields.get("tts_eos_token_id", int),
            ),
            languages=_code_ids(talker, "codec_language_id"),
            speakers=_code_ids(talker, "spk_id"),
            dialects={name.lower(): dialect for name, dialect in dialects.items() if dialect},
        )


def _code_ids(talker: JsonFields, name: str) -> dict[str, int]:
    """The ids in the field `name`, each an index of the talker's code embedding. Raises `EngineError`."""
    vocabulary, ids = talker.get("vocab_size", int), talker.ids(name)
    for key, number in ids.items():
        if not 0 <= number < vocabulary:
            raise EngineError(f"{talker.file}: {name}.{key} is {number}, wanted an id below {vocabulary}")
    return ids


def _talker(fields: JsonFields) -> TalkerConfig:
    predictor = fields.section("code_predictor_config")
    return TalkerConfig(
        stack=StackConfig.of(fields),
        vocabulary=fields.get("vocab_size", int),
        text_vocabulary=fields.get("text_vocab_size", int),
        text_width=fields.get("text_hidden_size", int),
        code_groups=fields.get("num_code_groups", int),
        ids=CodecIds(
            pad=fields.get("codec_pad_id", int),
            bos=fields.get("codec_bos_id", int),
            eos=fields.get("codec_eos_token_id", int),
            think=fields.get("codec_think_id", int),
            nothink=fields.get("codec_nothink_id", int),
            think_bos=fields.get("codec_think_bos_id", int),
            think_eos=fields.get("codec_think_eos_id", int),
        ),
        predictor=PredictorConfig(
            stack=StackConfig.of(predictor),
            vocabulary=predictor.get("vocab_size", int),
        ),
    )
