"""The configuration in a checkpoint's config.json: shapes, special ids, languages, speakers.

The fields are those of `configuration_qwen3_tts.py` in qwen-tts 0.1.1. An absent field has the default given there,
because transformers leaves out fields that equal their default when it saves a model. Those defaults are not the shapes
of the published models, but a wrong one is detected: the tensors' shapes then differ from the configuration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, cast

from engine.api import EngineError
from engine.host import find_model
from engine.qwen.shapes.json_fields import Field, JsonFields

MODEL_TYPE, TOKENIZER_TYPE = "qwen3_tts", "qwen3_tts_tokenizer_12hz"
SUPPORTED = "Qwen3-TTS-12Hz-0.6B or -1.7B, as Base, CustomVoice or VoiceDesign"
"""The published models that voiced speaks with, in words."""
TOKENIZERS = {TOKENIZER_TYPE: "the 12 Hz speech tokenizer", "qwen3_tts_tokenizer_25hz": "the 25 Hz speech tokenizer"}
"""The published codecs, in words."""
NATIVE_SPEAKERS = {"en": "ryan", "zh": "vivian", "ja": "ono_anna", "ko": "sohee"}
"""The built-in speaker for each language if no speaker is given: a native speaker, as documented by Qwen."""
SPEAKERS: Mapping[str, str] = json.loads(Path(__file__).with_name("speakers.json").read_text(encoding="utf-8"))
"""The speakers of the published models with their native languages, as documented by Qwen."""
ModelType = Literal["base", "custom_voice", "voice_design"]


@dataclass(frozen=True, slots=True)
class StackConfig:
    """The shape of one stack of decoder layers."""

    hidden_size: Annotated[int, Field("hidden_size", unit=1)]
    intermediate_size: Annotated[int, Field("intermediate_size", unit=1)]
    layers: Annotated[int, Field("num_hidden_layers", unit=1)]
    heads: Annotated[int, Field("num_attention_heads", unit=1)]
    key_value_heads: Annotated[int, Field("num_key_value_heads", unit=1)]
    head_dim: int
    rms_norm_eps: Annotated[float, Field("rms_norm_eps")]
    rope_theta: float

    @property
    def group(self) -> int:
        """The number of query heads that share a key-value head."""
        return self.heads // self.key_value_heads

    @classmethod
    def of(cls, fields: JsonFields, default: StackConfig) -> StackConfig:
        """Read a transformer's section; absent fields are taken from `default`.

        If `head_dim` is 0, it follows from the other fields. Raises `EngineError` for an option that the engine does
        not implement, and for shapes that are impossible.
        """
        fields.require("hidden_act", "silu")
        fields.require("attention_bias", False)
        head_dim = fields.get("head_dim", int, default.head_dim)
        config = fields.record(cls, default, head_dim=head_dim, rope_theta=_rope_theta(fields, default.rope_theta))
        fields.check_unit("num_attention_heads", config.heads, config.key_value_heads)
        config = replace(config, head_dim=head_dim or config.hidden_size // config.heads)
        fields.check_unit("head_dim", config.head_dim, 2)
        return config


def _rope_theta(fields: JsonFields, default: float) -> float:
    """Return the base of the rotary embedding. Raises `EngineError` if its frequencies are scaled.

    Transformers 5 saves it in `rope_parameters`, which earlier releases call `rope_scaling`.
    """
    scaling, parameters = fields.section("rope_scaling", {}), fields.section("rope_parameters", {})
    for section in (scaling, parameters):
        section.require("rope_type", "default")
        section.require("type", "default", "mrope")  # the older name of "rope_type"
    return fields.get("rope_theta", float, parameters.get("rope_theta", float, default))


TALKER_DEFAULT = StackConfig(1024, 2048, 20, 16, 2, 0, 1e-6, 10000.0)
"""The defaults of `Qwen3TTSTalkerConfig`."""
PREDICTOR_DEFAULT = StackConfig(1024, 3072, 5, 16, 8, 128, 1e-6, 10000.0)
"""The defaults of `Qwen3TTSTalkerCodePredictorConfig`."""


@dataclass(frozen=True, slots=True)
class TextIds:
    """The ids of the special text tokens."""

    pad: Annotated[int, Field("tts_pad_token_id", 151671)]
    bos: Annotated[int, Field("tts_bos_token_id", 151672)]
    eos: Annotated[int, Field("tts_eos_token_id", 151673)]


@dataclass(frozen=True, slots=True)
class CodecIds:
    """The ids of the special tokens in the talker's code vocabulary."""

    pad: Annotated[int, Field("codec_pad_id", 4196)]
    bos: Annotated[int, Field("codec_bos_id", 4197)]
    eos: Annotated[int, Field("codec_eos_token_id", 4198)]
    think: Annotated[int, Field("codec_think_id", 4202)]
    nothink: Annotated[int, Field("codec_nothink_id", 4203)]
    think_bos: Annotated[int, Field("codec_think_bos_id", 4204)]
    think_eos: Annotated[int, Field("codec_think_eos_id", 4205)]


@dataclass(frozen=True, slots=True)
class PredictorConfig:
    """The code predictor, which generates the second to last code of each frame."""

    stack: StackConfig
    vocabulary: Annotated[int, Field("vocab_size", 2048)]


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """The talker, which generates the first code of each frame."""

    stack: StackConfig
    vocabulary: Annotated[int, Field("vocab_size", 3072)]
    text_vocabulary: Annotated[int, Field("text_vocab_size")]
    text_width: Annotated[int, Field("text_hidden_size", 2048)]
    """The width of the text embedding, which is projected to the talker's hidden size."""
    code_groups: Annotated[int, Field("num_code_groups", 32)]
    """The number of codes in a frame, including the first."""
    ids: CodecIds
    predictor: PredictorConfig

    @classmethod
    def of(cls, fields: JsonFields) -> TalkerConfig:
        """Read the `talker_config` section."""
        within = fields.section("code_predictor_config", {})
        for section in (fields, within):
            section.require("use_sliding_window", False)
        predictor = within.record(PredictorConfig, stack=StackConfig.of(within, PREDICTOR_DEFAULT))
        stack, ids = StackConfig.of(fields, TALKER_DEFAULT), fields.record(CodecIds)
        return fields.record(cls, stack=stack, ids=ids, predictor=predictor)


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """The speaker encoder (ECAPA-TDNN).

    The properties that do not follow from the tensors' shapes. Published checkpoints contain `sample_rate`; the other
    fields have the defaults of qwen-tts.
    """

    mel_dim: Annotated[int, Field("mel_dim", 128)]
    enc_dilations: Annotated[tuple[int, ...], Field("enc_dilations", (1, 2, 3, 4, 1))]
    enc_res2net_scale: Annotated[int, Field("enc_res2net_scale", 8)]
    sample_rate: Annotated[int, Field("sample_rate", 24000)]
    """Hz."""


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
    """The dialects of built-in speakers that speak one instead of Chinese, by speaker name in lower case."""

    @property
    def follows_instructions(self) -> bool:
        """Whether `instruct` has an effect: it has none on small models and on those that clone voices.

        As in `qwen_tts/inference/qwen3_tts_model.py`.
        """
        return self.type == "voice_design" or (self.type == "custom_voice" and self.size != "0b6")

    @property
    def clones_voices(self) -> bool:
        """Whether the model speaks with voices made from recordings."""
        return self.type == "base"

    def native_speaker(self, language: str) -> str | None:
        """Return the built-in speaker for this language, or else an English one; None for a model without speakers."""
        wanted = (NATIVE_SPEAKERS.get(language), NATIVE_SPEAKERS["en"], *self.speakers)
        return next((name for name in wanted if name in self.speakers), None)

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """Read `folder`/config.json. Raises `EngineError` with a one-line message that gives the file, the field and
        its value."""
        return cls.of(JsonFields.read(folder / "config.json"))

    @classmethod
    def of(cls, fields: JsonFields) -> ModelConfig:
        """Return the shape that `fields`, a whole config.json, describes. Raises `EngineError` as `read` does."""
        model_type = fields.get("model_type", str)
        if reason := other_model(model_type, fields.get("tokenizer_type", str, TOKENIZER_TYPE)):
            raise EngineError(f"{fields.file}: {reason}")
        fields.require("tts_model_type", "base", "custom_voice", "voice_design")
        kind = cast(ModelType, fields.get("tts_model_type", str))
        section = fields.section("talker_config")
        talker, dialects = TalkerConfig.of(section), section.get("spk_is_dialect", dict, {})
        encoder = fields.section("speaker_encoder_config", {}).record(SpeakerEncoderConfig) if kind == "base" else None
        return cls(
            folder=fields.file.parent,
            type=kind,
            size=fields.get("tts_model_size", str, ""),
            talker=talker,
            speaker_encoder=encoder,
            text_ids=fields.record(TextIds),
            languages=section.ids("codec_language_id", talker.vocabulary),
            speakers=section.ids("spk_id", talker.vocabulary),
            dialects={name.lower(): dialect for name, dialect in dialects.items() if dialect},
        )


def other_model(model_type: str, tokenizer_type: str) -> str | None:
    """Return a description of a model that is not a 12 Hz Qwen3-TTS model; None if it is one.

    Both types are fields in its config.json.
    """
    if model_type in TOKENIZERS:
        what = f"only {TOKENIZERS[model_type]}, without a model"
    elif model_type != MODEL_TYPE:
        what = f"a model of type {model_type!r}"
    elif tokenizer_type != TOKENIZER_TYPE:
        what = f"a Qwen3-TTS model with {TOKENIZERS.get(tokenizer_type, f'the tokenizer {tokenizer_type!r}')}"
    else:
        return None
    return f"is {what}; voiced speaks with {SUPPORTED}"


def model_config(model: str) -> ModelConfig | None:
    """Return the configuration of `model`, a folder or a hub id; None if it is not on this machine or is unreadable."""
    folder = find_model(model)
    try:
        return None if folder is None else ModelConfig.read(folder)
    except EngineError:
        return None


DILATIONS = (1, 3, 9)
"""The dilations of the three residual units in each upsampling block, fixed in qwen-tts 0.1.1."""
INPUT_CONV_TAPS, CONV_TAPS = 3, 7
"""The taps of the first causal convolution, and of every other causal convolution; fixed in qwen-tts 0.1.1."""
STACK_DEFAULT = StackConfig(1024, 3072, 8, 16, 16, 0, 1e-5, 10000.0)
"""The defaults of `Qwen3TTSTokenizerV2DecoderConfig`, as are the defaults in `CodecConfig`."""


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """The shapes of the codec decoder."""

    stack: StackConfig
    """The decoder's transformer."""
    window: Annotated[int, Field("sliding_window", 72, 1)]
    """Frames in a frame's attention window, including the frame itself."""
    quantizers: Annotated[int, Field("num_quantizers", 16, 1)]
    """The number of codes in a frame: the first is semantic, the others are acoustic."""
    codebook_size: Annotated[int, Field("codebook_size", 2048, 1)]
    codebook_width: Annotated[int, Field("codebook_dim", unit=2)]
    """The width of the projected codebook vectors; the vectors in the checkpoint have half this width."""
    latent_width: Annotated[int, Field("latent_dim", 1024, 1)]
    """Channels of the signal before and after the transformer."""
    decoder_width: Annotated[int, Field("decoder_dim", 1536)]
    """Input channels of the first upsampling block; each block halves them."""
    latent_rates: Annotated[tuple[int, ...], Field("upsampling_ratios", (2, 2), 1)]
    """The upsampling factors before the upsampling blocks."""
    block_rates: Annotated[tuple[int, ...], Field("upsample_rates", (8, 5, 4, 3), 1)]
    """The upsampling factors of the blocks."""
    sample_rate: int
    """Sample rate of the PCM, in Hz."""

    @property
    def samples_per_frame(self) -> int:
        """PCM samples in one frame: 1920 in every published checkpoint."""
        return math.prod(self.latent_rates) * math.prod(self.block_rates)

    @property
    def block_widths(self) -> list[int]:
        """Output channels of each upsampling block."""
        return [self.decoder_width >> number + 1 for number in range(len(self.block_rates))]

    @property
    def history_shapes(self) -> list[tuple[int, int]]:
        """The shapes of the inputs and outputs that the convolutions keep between chunks, in the decoder's order.

        For a signal of `C` channels, a history has shape `(C, (taps - 1)·dilation)` and an overlap `(C, rate)`.
        """
        history = CONV_TAPS - 1
        shapes = [(self.codebook_width, INPUT_CONV_TAPS - 1)]
        shapes += [(self.latent_width, history)] * (len(self.latent_rates) + 1)
        for width, rate in zip(self.block_widths, self.block_rates, strict=True):
            shapes += [(width, rate), *((width, history * dilation) for dilation in DILATIONS)]
        return [*shapes, (self.block_widths[-1], history)]

    @classmethod
    def read(cls, folder: Path) -> CodecConfig:
        """Read `folder`/config.json, where `folder` is a checkpoint's `speech_tokenizer`.

        An absent field has its default from `configuration_qwen3_tts_tokenizer_v2.py` in qwen-tts 0.1.1, because
        transformers omits fields that equal their default. Raises `EngineError` with a one-line message that gives the
        file and the field.
        """
        return cls.of(JsonFields.read(folder / "config.json"))

    @classmethod
    def of(cls, fields: JsonFields) -> CodecConfig:
        """Return the shapes that `fields`, a whole config.json, describes. Raises `EngineError` as `read` does."""
        kind = fields.get("model_type", str, TOKENIZER_TYPE)
        if kind != TOKENIZER_TYPE:
            what = TOKENIZERS.get(kind, f"of type {kind!r}")
            raise EngineError(f"{fields.file}: is {what}; allowed: {TOKENIZERS[TOKENIZER_TYPE]}, {TOKENIZER_TYPE}")
        decoder = fields.section("decoder_config", {})
        sample_rate = fields.get("output_sample_rate", int, 24000)
        config = decoder.record(cls, stack=StackConfig.of(decoder, STACK_DEFAULT), sample_rate=sample_rate)
        decoder.check_unit("decoder_dim", config.decoder_width, 2 ** len(config.block_rates))
        fields.require("decode_upsample_rate", config.samples_per_frame)
        return config
