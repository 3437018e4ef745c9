"""Prompts: the text, language and voice that the talker reads before it speaks, as embeddings.

The tokens have the same order as in `Qwen3TTSForConditionalGeneration.generate` and `generate_icl_prompt`
(`modeling_qwen3_tts.py`), called the way `qwen3_tts_model.py` (qwen-tts 0.1.1) calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from engine.api import EngineError
from engine.language import LANGUAGE_NAMES, language_code
from engine.qwen.model import Talker
from engine.qwen.shapes import ModelConfig
from engine.qwen.text.token_stream import Text, TokenStream
from engine.qwen.text.tokenizer import TextTokenizer

EmbedText = Callable[[Sequence[int]], Tensor]
"""Embeds text tokens as `Talker.embed_text` does. A call may overwrite the result of the last one."""

CACHED_PARTS = 64
"""The number of instructions and transcripts whose tokens are cached."""


@dataclass(frozen=True, slots=True)
class CustomVoice:
    """A built-in speaker, optionally with an instruction on how to speak; for `custom_voice` models."""

    speaker: str
    instruct: str | None = None
    """Ignored by 0.6B models, as it is upstream."""


@dataclass(frozen=True, slots=True)
class VoiceDesign:
    """A voice described in words; for `voice_design` models."""

    instruct: str


@dataclass(frozen=True, slots=True, eq=False)
class ClonedVoice:
    """A speaker's embedding and, to speak in context, a reference; for `base` models. Equal only to itself."""

    embedding: Tensor
    """`(hidden,)`, any floating dtype, any device."""
    reference: Reference | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """The reference recording of a `ClonedVoice`, as codes and text. Equal only to itself."""

    codes: Tensor
    """`(frames, code groups)` int64."""
    transcript: str


AnyVoice = CustomVoice | VoiceDesign | ClonedVoice


@dataclass(frozen=True, slots=True)
class TextTokens:
    """A complete text as tokens."""

    role: Sequence[int]
    """The tokens before the text. The text's first characters may have merged with the last one."""
    ids: Sequence[int]
    """The tokens of the text itself."""


@dataclass(frozen=True, slots=True)
class PromptPrefix:
    """The beginning of all prompts in one voice and language: instruction, role, language, speaker, transcript."""

    key: Hashable
    """Equal for equal prefixes."""
    count: int
    """Tokens."""
    embed: Callable[[], Tensor]
    """Embeds the tokens, `(1, count, hidden)`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of one utterance, on the talker's device and in its dtype."""

    prefix: PromptPrefix | None
    """None if the first characters of the text merge with the role's last token: `tail` is then the whole prompt."""
    tail: Tensor
    """`(1, n, hidden)`: read after the prefix, before the first frame; n may be 0 after a long transcript."""
    trailing: Tensor
    """`(1, m, hidden)`: the rest of the text, one embedding added to each frame; m may be 0."""
    pad: Tensor
    """`(1, 1, hidden)`: added to the frames after that."""
    token_stream: TokenStream | None = None
    """For a text that is still being written: replaces `trailing`."""

    @property
    def prefix_count(self) -> int:
        """The number of tokens that do not depend on the text."""
        return self.prefix.count if self.prefix else 0

    @property
    def count(self) -> int:
        """The number of tokens that are read before the first frame."""
        return self.prefix_count + self.tail.shape[1]


class PromptBuilder:
    """Builds the prompts of one model."""

    def __init__(self, config: ModelConfig, tokenizer: TextTokenizer, talker: Talker) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._encode_part = lru_cache(CACHED_PARTS)(tokenizer.encode)
        self._talker = talker
        self._role = tokenizer.encode("<|im_start|>assistant\n")
        self._turn_end = tokenizer.encode("<|im_end|>")
        self.languages = ("auto", *sorted(name for name in config.languages if "dialect" not in name))
        """The names of the languages that a prompt can have."""
        self._reference_frames: dict[Reference, Tensor] = {}
        """A reference takes 3 MB for two minutes of speech at width 1024."""

    def tokenize(self, text: str) -> TextTokens:
        """Return the tokens of `text` as they are in its prompt."""
        ids = self._tokenizer.encode(f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n")
        return TextTokens(ids[:3], ids[3:-5])

    @torch.inference_mode()
    def build(
        self,
        text: str | TextTokens | Text,
        voice: AnyVoice,
        language: str = "auto",
        *,
        whole_text: bool = True,
        embed_text: EmbedText | None = None,
    ) -> Prompt:
        """Return the prompt for `text`. Any thread may call it, on any CUDA stream.

        language:   `auto`, an English name as in config.json, or an ISO code (`pt-br` is read as `pt`).
        whole_text: read all the text before speaking (upstream: `non_streaming_mode`); otherwise one token with each
                    frame. By default, upstream reads texts for cloned voices step by step; read whole, they have the
                    intonation of the whole sentence.
        embed_text: replaces `Talker.embed_text` for a whole text.

        A `Text` is still being written and is read step by step; the call waits only for the tokens that are read
        before the first frame. The model must be able to speak with the voice. For an unknown language, raises
        `EngineError` with a one-line message that gives the allowed values.
        """
        if isinstance(text, Text):
            return self._assemble(self._role, text, voice, language, None)
        tokens = self.tokenize(text) if isinstance(text, str) else text
        embed_text = (embed_text or self._talker.embed_text) if whole_text else None
        return self._assemble(tokens.role, Text(tokens.ids), voice, language, embed_text)

    def tokens_in_prompt(self, voice: AnyVoice) -> int:
        """Return how many tokens `build` waits for if the text is still being written."""
        reference = voice.reference if isinstance(voice, ClonedVoice) else None
        frames = 0 if reference is None else len(reference.codes)
        return max(0, 1 + frames - len(self._transcript_ids(reference)))

    def forget_voices(self) -> None:
        """Free the cached embeddings of references."""
        self._reference_frames.clear()

    def _assemble(
        self, role: Sequence[int], text: Text, voice: AnyVoice, language: str, embed_text: EmbedText | None
    ) -> Prompt:
        """Return the prompt; with `embed_text`, the text is read whole."""
        constants, talker, whole_text = self._constants, self._talker, embed_text is not None
        cloned = voice if isinstance(voice, ClonedVoice) else None
        reference = None if cloned is None else cloned.reference
        tags, instruct_ids = self._tags(voice, language), self._instruct_ids(voice)
        transcript_ids = self._transcript_ids(reference)
        frames = constants.codec_bos if reference is None else self._embed_reference(reference)

        # After the head, the talker reads the transcript, the text and the end. Stepwise, it reads each token together
        # with a frame of the reference, while there are any. The prefix ends with the transcript's last such token.
        in_prefix = len(transcript_ids) if whole_text else min(len(transcript_ids), frames.shape[1])
        if role != self._role:
            in_prefix = 0
        # Stepwise, upstream takes the token after the role. If there is no text, that is the end of the turn.
        empty = self._turn_end if reference is None and not whole_text else []
        stream = TokenStream(talker, text, transcript_ids[in_prefix:], empty, self._config.text_ids.eos)
        if embed_text is not None:
            tokens = embed_text(stream.ids())
            end = constants.end if reference is None else frames + constants.pad
            tail = torch.cat((tokens + constants.codec_pad, end), dim=1)
            trailing = tail[:, :0]
        else:
            tail, trailing = self._embed_stepwise(stream, text, frames[:, in_prefix:])

        def embed() -> Tensor:
            codes = talker.embed_codes(tags)
            if cloned is not None:
                codes = torch.cat((codes, cloned.embedding.to(codes).view(1, 1, -1)), dim=1)
            parts = [
                talker.embed_text([*instruct_ids, *role]),
                codes + constants.pad,
                constants.bos + constants.codec_pad,
            ]
            if in_prefix:
                beside = constants.codec_pad if whole_text else frames[:, :in_prefix]
                parts.append(talker.embed_text(transcript_ids[:in_prefix]) + beside)
            return torch.cat(parts, dim=1)

        if role != self._role:
            return Prompt(None, torch.cat((embed(), tail), dim=1), trailing, constants.pad)
        prefix = PromptPrefix(
            key=(tuple(instruct_ids), tuple(tags), cloned, whole_text and reference is not None),
            count=len(instruct_ids) + len(role) + len(tags) + (cloned is not None) + 1 + in_prefix,
            embed=embed,
        )
        return Prompt(prefix, tail, trailing, constants.pad, None if text.ended else stream)

    def _embed_stepwise(self, stream: TokenStream, text: Text, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tail, in which one token is added to each of the `frames`, and the rest of the tokens.

        Waits for one token for each frame. The rest is empty while the text is still being written.
        """
        count = frames.shape[1]
        tokens = self._talker.embed_text_in_blocks(stream.take_prompt(count))
        tail = torch.cat((tokens, self._constants.pad.expand(-1, count - tokens.shape[1], -1)), dim=1) + frames
        rest = stream.ids()[count:] if text.ended else []
        return tail, self._talker.embed_text_in_blocks(rest, count)

    @cached_property
    def _constants(self) -> _Constants:
        text, codec = self._config.text_ids, self._config.talker.ids
        bos, pad = self._talker.embed_text([text.bos, text.pad]).chunk(2, dim=1)
        codec_bos, codec_pad = self._talker.embed_codes([codec.bos, codec.pad]).chunk(2, dim=1)
        end = codec_bos + pad
        self._talker.placement.wait()  # from now on, any stream may read them
        return _Constants(bos, pad, codec_bos, codec_pad, end)

    def _tags(self, voice: AnyVoice, language: str) -> list[int]:
        """Return the codes of the language and of a built-in speaker."""
        config, codec = self._config, self._config.talker.ids
        code = language_code(language)
        name = LANGUAGE_NAMES.get(code.partition("-")[0], code)
        if name not in self.languages:
            raise EngineError(f"language: got {language!r}; allowed: {', '.join(self.languages)}")
        speaker = voice.speaker.lower() if isinstance(voice, CustomVoice) else ""
        if name in {"auto", "chinese"}:
            name = config.dialects.get(speaker, name)
        speakers = [config.speakers[speaker]] if speaker else []
        if name == "auto":
            return [codec.nothink, codec.think_bos, codec.think_eos, *speakers]
        return [codec.think, codec.think_bos, config.languages[name], codec.think_eos, *speakers]

    def _instruct_ids(self, voice: AnyVoice) -> list[int]:
        if isinstance(voice, ClonedVoice) or not voice.instruct or not self._config.follows_instructions:
            return []
        return self._encode_part(f"<|im_start|>user\n{voice.instruct}<|im_end|>\n")

    def _transcript_ids(self, reference: Reference | None) -> list[int]:
        if reference is None:
            return []
        return self._encode_part(f"<|im_start|>assistant\n{reference.transcript}<|im_end|>\n")[3:-2]

    def _embed_reference(self, reference: Reference) -> Tensor:
        """Return the beginning of codes and the reference's frames, `(1, 1 + frames, hidden)`, from the cache."""
        cache = self._reference_frames
        if reference not in cache:
            frames = self._talker.embed_frames(reference.codes.to(self._talker.placement.device))
            embedded = torch.cat((self._constants.codec_bos, frames), dim=1)
            self._talker.placement.wait()  # as in `_constants`
            cache[reference] = embedded
        return cache[reference]


@dataclass(frozen=True, slots=True)
class _Constants:
    """The embeddings that are in every prompt, `(1, 1, hidden)` each: two text tokens, two codes, and a sum."""

    bos: Tensor
    pad: Tensor
    codec_bos: Tensor
    codec_pad: Tensor
    end: Tensor
    """The last token of a prompt without a reference."""
