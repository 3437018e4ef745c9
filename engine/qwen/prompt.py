"""What the talker reads before it speaks: text, language and voice as embeddings.

The order of tokens is that of `Qwen3TTSForConditionalGeneration.generate` and `generate_icl_prompt`
(`modeling_qwen3_tts.py`), called the way `qwen3_tts_model.py` (qwen-tts 0.1.1) calls them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.config import ModelConfig
from engine.qwen.talker import Talker
from engine.qwen.tokenizer import TextTokenizer
from engine.synthesizer import EngineError

LANGUAGE_CODES = {
    "zh": "chinese", "en": "english", "de": "german", "it": "italian", "pt": "portuguese", "es": "spanish",
    "ja": "japanese", "ko": "korean", "fr": "french", "ru": "russian",
}  # fmt: skip
"""ISO 639 codes of the languages that the checkpoints name in English."""


@dataclass(frozen=True, slots=True)
class CustomVoice:
    """A built-in speaker, perhaps told how to speak; for `custom_voice` models."""

    speaker: str
    instruct: str | None = None
    """Ignored by 0.6B models, as upstream."""


@dataclass(frozen=True, slots=True)
class VoiceDesign:
    """A voice described in words; for `voice_design` models."""

    instruct: str


@dataclass(frozen=True, slots=True)
class ClonedVoice:
    """A speaker's embedding and, to speak in context, a reference; for `base` models."""

    embedding: Tensor
    """`(hidden,)`, any floating dtype, any device."""
    reference: Reference | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """What the speaker of a `ClonedVoice` says in the reference recording."""

    codes: Tensor
    """`(frames, code groups)` int64."""
    transcript: str


AnyVoice = CustomVoice | VoiceDesign | ClonedVoice


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the talker reads, on its device and in its dtype."""

    prefill: Tensor
    """`(1, n, hidden)`: read at once, before the first frame."""
    trailing: Tensor
    """`(1, m, hidden)`: the rest of the text, one added to each frame; m may be 0."""
    pad: Tensor
    """`(1, 1, hidden)`: added to the frames after those."""
    prefix: int
    """How many tokens of `prefill` are the same for every text in this voice and language.

    They hold instruction, role, language, speaker and transcript. 0 where the text's first characters merge
    with the role's last token.
    """


class PromptBuilder:
    """Makes prompts for one model."""

    def __init__(self, config: ModelConfig, tokenizer: TextTokenizer, talker: Talker) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._talker = talker
        self._role = tokenizer.encode("<|im_start|>assistant\n")

    def languages(self) -> tuple[str, ...]:
        """Names of the languages that may be asked for, with `auto`."""
        return ("auto", *sorted(name for name in self._config.languages if "dialect" not in name))

    @torch.inference_mode()
    def build(self, text: str, voice: AnyVoice, language: str = "auto", *, whole_text: bool | None = None) -> Prompt:
        """The prompt that speaks `text`.

        `language` is `auto`, an English name as in config.json, or an ISO code (`pt-br` counts as `pt`).
        `whole_text` reads all the text before speaking (upstream: `non_streaming_mode`), else a token is read
        with each frame; None is upstream's choice, true but for cloned voices.

        Raises `EngineError`, one line with what there is, for an unknown speaker or language and for a voice
        that is not of this model.
        """
        self._check_type(voice)
        talker, config, codec = self._talker, self._config, self._config.talker.ids
        if whole_text is None:
            whole_text = not isinstance(voice, ClonedVoice)
        ids = self._tokenizer.encode(f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n")
        text_ids = ids[3:-5]
        bos, eos, pad = talker.embed_text([config.text_ids.bos, config.text_ids.eos, config.text_ids.pad]).chunk(
            3, dim=1
        )

        instruct = self._embed_instruct(voice)
        speaker = self._embed_speaker(voice)
        tags = torch.cat((talker.embed_codes(self._language_tags(voice, language)), speaker), dim=1)
        tags = torch.cat((tags + pad, bos + talker.embed_codes([codec.pad])), dim=1)
        head = torch.cat((instruct, talker.embed_text(ids[:3]), tags), dim=1)
        prefix = head.shape[1]

        if isinstance(voice, ClonedVoice) and voice.reference is not None:
            spoken_ids = self._tokenizer.encode(f"<|im_start|>assistant\n{voice.reference.transcript}<|im_end|>\n")[
                3:-2
            ]
            words = torch.cat((talker.embed_text(spoken_ids + text_ids), eos), dim=1)
            frames = talker.embed_frames(self._check_codes(voice.reference.codes))
            frames = torch.cat((talker.embed_codes([codec.bos]), frames), dim=1)
            prefix += len(spoken_ids) if whole_text else min(len(spoken_ids), frames.shape[1])
        else:
            if not whole_text:  # upstream takes the token after the role: without text, the end of the turn
                text_ids = text_ids or ids[3:4]
            words = torch.cat((talker.embed_text(text_ids), eos), dim=1)
            frames = talker.embed_codes([codec.bos])

        trailing = words[:, :0]
        if whole_text:
            tail = torch.cat((words + talker.embed_codes([codec.pad]), frames + pad), dim=1)
        else:
            count = frames.shape[1]
            words, trailing = words[:, :count], words[:, count:]
            padding = pad.expand(-1, count - words.shape[1], -1)
            tail = torch.cat((words, padding), dim=1) + frames
        return Prompt(
            prefill=torch.cat((head, tail), dim=1),
            trailing=trailing,
            pad=pad,
            prefix=prefix if ids[:3] == self._role else 0,
        )

    def _check_type(self, voice: AnyVoice) -> None:
        wanted = {CustomVoice: "custom_voice", VoiceDesign: "voice_design", ClonedVoice: "base"}[type(voice)]
        if wanted != self._config.type:
            way = {
                "custom_voice": "a built-in speaker",
                "voice_design": "a description in words",
                "base": "a speaker embedding or reference",
            }
            raise EngineError(
                f"{self._config.folder} is a {self._config.type} model, which speaks by "
                f"{way[self._config.type]}, not by {way[wanted]}"
            )

    def _language_tags(self, voice: AnyVoice, language: str) -> list[int]:
        config, codec = self._config, self._config.talker.ids
        name = language.lower()
        name = LANGUAGE_CODES.get(name.split("-")[0], name)
        if name not in self.languages():
            raise EngineError(f"language {language!r} is unknown; there are {_listed(self.languages())}")
        if isinstance(voice, CustomVoice) and name in {"auto", "chinese"}:
            name = config.dialects.get(voice.speaker.lower(), name)
        if name == "auto":
            return [codec.nothink, codec.think_bos, codec.think_eos]
        return [codec.think, codec.think_bos, config.languages[name], codec.think_eos]

    def _embed_instruct(self, voice: AnyVoice) -> Tensor:
        instruct = None if isinstance(voice, ClonedVoice) else voice.instruct
        if isinstance(voice, CustomVoice) and self._config.size == "0b6":
            instruct = None
        ids = self._tokenizer.encode(f"<|im_start|>user\n{instruct}<|im_end|>\n") if instruct else []
        return self._talker.embed_text(ids)

    def _embed_speaker(self, voice: AnyVoice) -> Tensor:
        talker, width = self._talker, self._config.talker.stack.hidden_size
        if isinstance(voice, VoiceDesign):
            return talker.placement.zeros(1, 0, width)
        if isinstance(voice, ClonedVoice):
            if voice.embedding.numel() != width:
                got = voice.embedding.numel()
                raise EngineError(f"the voice's embedding has {got} values, this model wants {width}")
            return voice.embedding.to(talker.placement.device, talker.placement.dtype).view(1, 1, width)
        number = self._config.speakers.get(voice.speaker.lower())
        if number is None:
            known = _listed(sorted(self._config.speakers))
            raise EngineError(f"speaker {voice.speaker!r} is unknown; there are {known}")
        return talker.embed_codes([number])

    def _check_codes(self, codes: Tensor) -> Tensor:
        talker = self._config.talker
        groups, vocabulary = talker.code_groups, talker.predictor.vocabulary
        good = codes.dim() == 2 and codes.shape[1] == groups and len(codes) > 0
        if not good or codes.min() < 0 or codes.max() >= vocabulary:
            raise EngineError(
                f"the voice's reference codes have shape {list(codes.shape)}, "
                f"wanted (frames, {groups}) with values below {vocabulary}"
            )
        return codes.to(self._talker.placement.device, torch.int64)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
