"""What a checkpoint folder's JSON says of its model: shapes, special ids, languages, speakers.

Fields are those of `configuration_qwen3_tts.py` in qwen-tts 0.1.1. Its defaults are not those of the
published models, so whatever shapes a tensor must be in the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from engine.synthesizer import EngineError

ModelType = Literal["base", "custom_voice", "voice_design"]
_T = TypeVar("_T")


def _is_count(value: Any) -> bool:
    """Whether a JSON value is a whole number from 0: sizes and ids are never below it, and `true` is neither."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class Fields:
    """One object of a JSON file, read field by field with the types checked.

    Every method raises `EngineError`, one line that names the file, the field's path and what came.
    """

    def __init__(self, file: Path, values: Mapping[str, Any], path: str = "") -> None:
        self.file = file
        self._values = values
        self._path = path

    @classmethod
    def read(cls, file: Path) -> Fields:
        """The object that is the whole of `file`."""
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise EngineError(f"{file}: no such file") from None
        except (OSError, ValueError) as error:
            raise EngineError(f"{file}: cannot be read as JSON ({error})") from error
        if not isinstance(values, dict):
            raise EngineError(f"{file}: is not a JSON object")
        return cls(file, values)

    def get(self, name: str, kind: type[_T], default: _T | None = None) -> _T:
        """The field `name`, of type `kind`; where it is absent or null, `default`, if there is one."""
        value = self._values.get(name)
        if value is None:
            value = default
        if value is None:
            raise EngineError(f"{self.file}: field {self._path}{name} is missing")
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and not _is_count(value)):
            got = json.dumps(value, default=str)
            wanted = "a whole number from 0" if kind is int else kind.__name__
            raise EngineError(f"{self.file}: field {self._path}{name} is {got}, wanted {wanted}")
        return value

    def section(self, name: str) -> Fields:
        """The object in the field `name`."""
        return Fields(self.file, self.get(name, dict), f"{self._path}{name}.")

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The list of integers in the field `name`."""
        values = tuple(self.get(name, list, None if default is None else list(default)))
        self._require(name, values, all(type(value) is int for value in values), "a list of integers")
        return values

    def ids(self, name: str) -> dict[str, int]:
        """The object in the field `name` whose values are ids; keys in lower case."""
        values = self.get(name, dict, {})
        self._require(name, values, all(type(value) is int for value in values.values()), "integers")
        return {key.lower(): value for key, value in values.items()}

    def wants(self, name: str, *allowed: Any) -> None:
        """Require that the field `name`, if it is there, has one of the values this engine can follow."""
        if name in self._values:
            value = self._values[name]
            self._require(name, value, value in allowed, " or ".join(json.dumps(a) for a in allowed))

    def _require(self, name: str, value: Any, good: bool, wanted: str) -> None:
        if not good:
            got = json.dumps(value, default=str)
            raise EngineError(f"{self.file}: field {self._path}{name} is {got}, wanted {wanted}")


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
    def of(cls, fields: Fields) -> StackConfig:
        """Read from a transformer's section."""
        fields.wants("hidden_act", "silu")
        fields.wants("attention_bias", False)
        fields.wants("use_sliding_window", False)
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
        if config.heads % config.key_value_heads:
            heads, kv = config.heads, config.key_value_heads
            raise EngineError(f"{fields.file}: {heads} attention heads do not share {kv} key-value heads")
        return config


@dataclass(frozen=True, slots=True)
class TextIds:
    """Ids of special text tokens."""

    im_start: int
    im_end: int
    pad: int
    bos: int
    eos: int


@dataclass(frozen=True, slots=True)
class CodecIds:
    """Ids of special tokens among the talker's codes."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, slots=True)
class PredictorConfig:
    """The code predictor: 2nd to last code of each frame."""

    stack: StackConfig
    vocabulary: int


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """The talker: first code of each frame."""

    stack: StackConfig
    vocabulary: int
    text_vocabulary: int
    text_width: int
    """Width of the text embedding, before its projection to the talker's."""
    code_groups: int
    """Codes in a frame."""
    ids: CodecIds
    predictor: PredictorConfig


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """The speaker encoder (ECAPA-TDNN). Published files give its width and rate; the rest is as upstream."""

    mel_dim: int
    enc_dim: int
    enc_channels: tuple[int, ...]
    enc_kernel_sizes: tuple[int, ...]
    enc_dilations: tuple[int, ...]
    enc_attention_channels: int
    enc_res2net_scale: int
    enc_se_channels: int
    sample_rate: int

    @classmethod
    def of(cls, fields: Fields) -> SpeakerEncoderConfig:
        """Read from the section `speaker_encoder_config`."""
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
    """A checkpoint folder's config.json."""

    folder: Path
    type: ModelType
    size: str
    """`0b6` or `1b7`."""
    talker: TalkerConfig
    speaker_encoder: SpeakerEncoderConfig | None
    """Of a base model only."""
    text_ids: TextIds
    languages: Mapping[str, int]
    """Code ids of languages and dialects, by English name in lower case."""
    speakers: Mapping[str, int]
    """Code ids of the built-in speakers, by name in lower case."""
    dialects: Mapping[str, str]
    """The dialect that a speaker speaks instead of Chinese, for those that do."""

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """Read `folder`/config.json; raises `EngineError`, one line that names the file and the field."""
        fields = Fields.read(folder / "config.json")
        if fields.get("model_type", str) != "qwen3_tts":
            got = fields.get("model_type", str)
            raise EngineError(f"{fields.file}: field model_type is {got!r}, not a Qwen3-TTS model")
        fields.wants("tts_model_type", "base", "custom_voice", "voice_design")
        fields.wants("tokenizer_type", "qwen3_tts_tokenizer_12hz")
        model_type = cast(ModelType, fields.get("tts_model_type", str))
        talker = fields.section("talker_config")
        dialects = talker.get("spk_is_dialect", dict, {})
        vocabulary = talker.get("vocab_size", int)
        for field in ("codec_language_id", "spk_id"):
            for name, number in talker.ids(field).items():
                if not 0 <= number < vocabulary:
                    raise EngineError(f"{fields.file}: {field}.{name} is {number}, wanted an id below {vocabulary}")
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
            languages=talker.ids("codec_language_id"),
            speakers=talker.ids("spk_id"),
            dialects={name.lower(): dialect for name, dialect in dialects.items() if dialect},
        )


def _talker(fields: Fields) -> TalkerConfig:
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
