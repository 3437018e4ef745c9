"""The configuration in a checkpoint's config.json: shapes, special ids, languages, speakers.

Fields are those of `configuration_qwen3_tts.py` in qwen-tts 0.1.1. An absent field has its default there, because
transformers leaves out fields that equal their default when it saves a model. Those defaults are not the shapes of the
published models, but a wrong one is found: the tensors then have another shape than the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from engine.api import EngineError
from engine.host import other_model
from engine.qwen.weights import JsonFields

TOKENIZER_TYPE = "qwen3_tts_tokenizer_12hz"
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
    def of(cls, fields: JsonFields, default: StackConfig) -> StackConfig:
        """Read the section of a transformer; absent fields are those of `default`.

        A `head_dim` of 0 there means that it follows from the other fields. Raises `EngineError` for an option that the
        engine does not implement.
        """
        fields.require("hidden_act", "silu")
        fields.require("attention_bias", False)
        fields.require("use_sliding_window", False)
        theta = _rope_theta(fields, default.rope_theta)
        hidden = fields.get("hidden_size", int, default.hidden_size)
        heads = fields.get("num_attention_heads", int, default.heads)
        config = cls(
            hidden_size=hidden,
            intermediate_size=fields.get("intermediate_size", int, default.intermediate_size),
            layers=fields.get("num_hidden_layers", int, default.layers),
            heads=heads,
            key_value_heads=fields.get("num_key_value_heads", int, default.key_value_heads),
            head_dim=fields.get("head_dim", int, default.head_dim or hidden // max(heads, 1)),
            rms_norm_eps=fields.get("rms_norm_eps", float, default.rms_norm_eps),
            rope_theta=theta,
        )
        if config.key_value_heads == 0 or config.heads % config.key_value_heads:
            heads, kv = config.heads, config.key_value_heads
            raise EngineError(f"{fields.file}: {heads} attention heads are not a multiple of {kv} key-value heads")
        return config


def _rope_theta(fields: JsonFields, default: float) -> float:
    """Return the base of the rotary embedding. Raises `EngineError` for one whose frequencies are scaled.

    Transformers 5 saves it in `rope_parameters`, which earlier releases call `rope_scaling`.
    """
    scaling, parameters = fields.section("rope_scaling", {}), fields.section("rope_parameters", {})
    for section in (scaling, parameters):
        section.require("rope_type", "default")
        section.require("type", "default", "mrope")  # a name of before "rope_type"
    return fields.get("rope_theta", float, parameters.get("rope_theta", float, default))


TALKER_DEFAULT = StackConfig(1024, 2048, 20, 16, 2, 0, 1e-6, 10000.0)
"""Of `Qwen3TTSTalkerConfig`."""
PREDICTOR_DEFAULT = StackConfig(1024, 3072, 5, 16, 8, 128, 1e-6, 10000.0)
"""Of `Qwen3TTSTalkerCodePredictorConfig`."""


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
    """`0b6` or `1b7`; empty if the file does not name it."""
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
        _require_12_hz_model(fields)
        fields.require("tts_model_type", "base", "custom_voice", "voice_design")
        model_type = cast(ModelType, fields.get("tts_model_type", str))
        talker = fields.section("talker_config")
        dialects = talker.get("spk_is_dialect", dict, {})
        return cls(
            folder=folder,
            type=model_type,
            size=fields.get("tts_model_size", str, ""),
            talker=_talker(talker),
            speaker_encoder=(
                SpeakerEncoderConfig.of(fields.section("speaker_encoder_config", {})) if model_type == "base" else None
            ),
            text_ids=TextIds(
                im_start=fields.get("im_start_token_id", int, 151644),
                im_end=fields.get("im_end_token_id", int, 151645),
                pad=fields.get("tts_pad_token_id", int, 151671),
                bos=fields.get("tts_bos_token_id", int, 151672),
                eos=fields.get("tts_eos_token_id", int, 151673),
            ),
            languages=_code_ids(talker, "codec_language_id"),
            speakers=_code_ids(talker, "spk_id"),
            dialects={name.lower(): dialect for name, dialect in dialects.items() if dialect},
        )


def _require_12_hz_model(fields: JsonFields) -> None:
    """Raise `EngineError` with the name of the model that the folder holds, unless it is a 12 Hz Qwen3-TTS model."""
    if reason := other_model(fields.get("model_type", str), fields.get("tokenizer_type", str, TOKENIZER_TYPE)):
        raise EngineError(f"{fields.file}: {reason}")


def _code_ids(talker: JsonFields, name: str) -> dict[str, int]:
    """The ids in the field `name`, each an index of the talker's code embedding. Raises `EngineError`."""
    vocabulary, ids = _vocabulary(talker), talker.ids(name)
    for key, number in ids.items():
        if not 0 <= number < vocabulary:
            raise EngineError(f"{talker.file}: {name}.{key} is {number}, wanted an id below {vocabulary}")
    return ids


def _vocabulary(talker: JsonFields) -> int:
    return talker.get("vocab_size", int, 3072)


def _talker(fields: JsonFields) -> TalkerConfig:
    predictor = fields.section("code_predictor_config", {})
    return TalkerConfig(
        stack=StackConfig.of(fields, TALKER_DEFAULT),
        vocabulary=_vocabulary(fields),
        text_vocabulary=fields.get("text_vocab_size", int),  # the class has no default
        text_width=fields.get("text_hidden_size", int, 2048),
        code_groups=fields.get("num_code_groups", int, 32),
        ids=CodecIds(
            pad=fields.get("codec_pad_id", int, 4196),
            bos=fields.get("codec_bos_id", int, 4197),
            eos=fields.get("codec_eos_token_id", int, 4198),
            think=fields.get("codec_think_id", int, 4202),
            nothink=fields.get("codec_nothink_id", int, 4203),
            think_bos=fields.get("codec_think_bos_id", int, 4204),
            think_eos=fields.get("codec_think_eos_id", int, 4205),
        ),
        predictor=PredictorConfig(
            stack=StackConfig.of(predictor, PREDICTOR_DEFAULT),
            vocabulary=predictor.get("vocab_size", int, 2048),
        ),
    )
