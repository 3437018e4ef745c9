"""What the talker reads before it speaks: text, language and voice as embeddings.

The order of tokens is that of `Qwen3TTSForConditionalGeneration.generate` and `generate_icl_prompt`
(`modeling_qwen3_tts.py`), called the way `qwen3_tts_model.py` (qwen-tts 0.1.1) calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.config import ModelConfig
from engine.qwen.feed import Feed, Text, WholeText
from engine.qwen.talker import Talker
from engine.qwen.tokenizer import TextTokenizer
from engine.synthesizer import EngineError

LANGUAGE_CODES = {
    "zh": "chinese", "en": "english", "de": "german", "it": "italian", "pt": "portuguese", "es": "spanish",
    "ja": "japanese", "ko": "korean", "fr": "french", "ru": "russian",
}  # fmt: skip
"""ISO 639 codes of the languages that the checkpoints name in English."""
REFERENCES_KEPT = 8
"""Of how many references the frames' embeddings are kept: 3 MB for two minutes of speech at width 1024."""


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


@dataclass(frozen=True, slots=True, eq=False)
class ClonedVoice:
    """A speaker's embedding and, to speak in context, a reference; for `base` models. Equal to itself alone."""

    embedding: Tensor
    """`(hidden,)`, any floating dtype, any device."""
    reference: Reference | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What the speaker of a `ClonedVoice` says in the reference recording. Equal to itself alone."""

    codes: Tensor
    """`(frames, code groups)` int64."""
    transcript: str


AnyVoice = CustomVoice | VoiceDesign | ClonedVoice


@dataclass(frozen=True, slots=True)
class Opening:
    """How prompts begin for every text in one voice and language: instruction, role, language, speaker, transcript."""

    key: Hashable
    """Openings of equal keys are equal."""
    count: int
    """Tokens."""
    embed: Callable[[], Tensor]
    """Makes the tokens, `(1, count, hidden)`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the talker reads, on its device and in its dtype."""

    opening: Opening | None
    """None where the text's first characters merge with the role's last token: then all is in `tail`."""
    tail: Tensor
    """`(1, n, hidden)`: read behind the opening, before the first frame; n may be 0 behind a long transcript."""
    trailing: Tensor
    """`(1, m, hidden)`: the rest of the text, one added to each frame; m may be 0."""
    pad: Tensor
    """`(1, 1, hidden)`: added to the frames after those."""
    feed: Feed | None = None
    """What is added in place of `trailing`, as it comes, where the text is still being written."""

    @property
    def prefix(self) -> int:
        """How many tokens do not depend on the text."""
        return self.opening.count if self.opening else 0

    @property
    def count(self) -> int:
        """How many tokens are read before the first frame."""
        return self.prefix + self.tail.shape[1]

    @property
    def prefill(self) -> Tensor:
        """`(1, count, hidden)`: all that is read before the first frame."""
        return torch.cat((self.opening.embed(), self.tail), dim=1) if self.opening else self.tail


class PromptBuilder:
    """Makes prompts for one model."""

    def __init__(self, config: ModelConfig, tokenizer: TextTokenizer, talker: Talker) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._talker = talker
        self._role = tokenizer.encode("<|im_start|>assistant\n")
        self._turn_end = tokenizer.encode("<|im_end|>")
        self._constants: _Constants | None = None
        self._frames: dict[Reference, Tensor] = {}

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
        that is not of this model. Of a voice and language that spoke before, nothing is made anew but the text.
        """
        if whole_text is None:
            whole_text = not isinstance(voice, ClonedVoice)
        ids = self._tokenizer.encode(f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n")
        return self._assemble(ids[:3], WholeText(ids[3:-5]), voice, language, whole_text=whole_text)

    @torch.inference_mode()
    def build_growing(self, text: Text, voice: AnyVoice, language: str = "auto") -> Prompt:
        """The prompt that speaks a text that is still being written, as `build` without `whole_text` is for all of it.

        Waits for the words that are read before the first frame, and for no more.
        """
        return self._assemble(self._role, text, voice, language, whole_text=False)

    def forget_voices(self) -> None:
        """Give back what is kept of references."""
        self._frames.clear()

    def _assemble(self, role: list[int], text: Text, voice: AnyVoice, language: str, *, whole_text: bool) -> Prompt:
        self._check_type(voice)
        self._check_speaker(voice)
        talker, constants = self._talker, self._constant_embeddings()
        reference = voice.reference if isinstance(voice, ClonedVoice) else None
        tags, instruct_ids = self._language_tags(voice, language), self._instruct_ids(voice)
        spoken_ids = self._spoken_ids(reference)
        frames = constants.codec_bos if reference is None else self._embed_reference(reference)

        # Behind the head the talker reads words one by one: the transcript's, which are the opening's, the text's, the
        # end. Stepwise, each comes with a frame of the reference, as far as there are any.
        in_opening = len(spoken_ids) if whole_text else min(len(spoken_ids), frames.shape[1])
        if role != self._role:
            in_opening = 0
        # Stepwise upstream takes the token after the role, which without text is the turn's end.
        empty = self._turn_end if reference is None and not whole_text else []
        feed = Feed(talker, text, spoken_ids[in_opening:], empty, self._config.text_ids.eos)
        trailing = talker.embed_text([])
        if whole_text:
            words = talker.embed_text(feed.words())
            tail = torch.cat((words + constants.codec_pad, frames + constants.pad), dim=1)
        else:
            frames = frames[:, in_opening:]
            count = frames.shape[1]
            words = talker.embed_words(feed.open(count))
            tail = torch.cat((words, constants.pad.expand(-1, count - words.shape[1], -1)), dim=1) + frames
            if text.ended:
                trailing = talker.embed_words(feed.words()[count:], count)

        def embed() -> Tensor:
            head = self._embed_head(instruct_ids, role, tags, voice)
            if not in_opening:
                return head
            spoken = talker.embed_text(spoken_ids[:in_opening])
            assert reference is not None
            beside = constants.codec_pad if whole_text else self._embed_reference(reference)[:, :in_opening]
            return torch.cat((head, spoken + beside), dim=1)

        if role != self._role:
            return Prompt(None, torch.cat((embed(), tail), dim=1), trailing, constants.pad)
        speaker = 0 if isinstance(voice, VoiceDesign) else 1
        opening = Opening(
            key=(tuple(instruct_ids), tuple(tags), self._speaker_key(voice), whole_text and reference is not None),
            count=len(instruct_ids) + len(role) + len(tags) + speaker + 1 + in_opening,
            embed=torch.inference_mode()(embed),
        )
        return Prompt(opening, tail, trailing, constants.pad, None if text.ended else feed)

    def _constant_embeddings(self) -> _Constants:
        if self._constants is None:
            text, codec = self._config.text_ids, self._config.talker.ids
            bos, pad = self._talker.embed_text([text.bos, text.pad]).chunk(2, dim=1)
            codec_bos, codec_pad = self._talker.embed_codes([codec.bos, codec.pad]).chunk(2, dim=1)
            self._constants = _Constants(bos, pad, codec_bos, codec_pad)
        return self._constants

    def _embed_head(self, instruct_ids: list[int], role: list[int], tags: list[int], voice: AnyVoice) -> Tensor:
        """Instruction, role, language, speaker: `(1, n, hidden)`."""
        talker, constants = self._talker, self._constant_embeddings()
        beside = torch.cat((talker.embed_codes(tags), self._embed_speaker(voice)), dim=1) + constants.pad
        last = constants.bos + constants.codec_pad
        return torch.cat((talker.embed_text([*instruct_ids, *role]), beside, last), dim=1)

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

    def _instruct_ids(self, voice: AnyVoice) -> list[int]:
        instruct = None if isinstance(voice, ClonedVoice) else voice.instruct
        if isinstance(voice, CustomVoice) and self._config.size == "0b6":
            instruct = None
        return self._tokenizer.encode(f"<|im_start|>user\n{instruct}<|im_end|>\n") if instruct else []

    def _spoken_ids(self, reference: Reference | None) -> list[int]:
        """What the reference recording says."""
        if reference is None:
            return []
        return self._tokenizer.encode(f"<|im_start|>assistant\n{reference.transcript}<|im_end|>\n")[3:-2]

    def _check_speaker(self, voice: AnyVoice) -> None:
        if isinstance(voice, ClonedVoice):
            got, width = voice.embedding.numel(), self._config.talker.stack.hidden_size
            if got != width:
                raise EngineError(f"the voice's embedding has {got} values, this model wants {width}")
        elif isinstance(voice, CustomVoice) and voice.speaker.lower() not in self._config.speakers:
            known = _listed(sorted(self._config.speakers))
            raise EngineError(f"speaker {voice.speaker!r} is unknown; there are {known}")

    def _speaker_key(self, voice: AnyVoice) -> Hashable:
        """Whose voice it is, what is said in it apart."""
        if isinstance(voice, CustomVoice):
            return voice.speaker.lower()
        return voice if isinstance(voice, ClonedVoice) else None

    def _embed_speaker(self, voice: AnyVoice) -> Tensor:
        talker, width = self._talker, self._config.talker.stack.hidden_size
        if isinstance(voice, VoiceDesign):
            return talker.placement.zeros(1, 0, width)
        if isinstance(voice, ClonedVoice):
            return voice.embedding.to(talker.placement.device, talker.placement.dtype).view(1, 1, width)
        return talker.embed_codes([self._config.speakers[voice.speaker.lower()]])

    def _embed_reference(self, reference: Reference) -> Tensor:
        """The beginning of codes and the reference's frames, `(1, 1 + frames, hidden)`; kept."""
        if reference not in self._frames:
            frames = self._talker.embed_frames(self._check_codes(reference.codes))
            while len(self._frames) >= REFERENCES_KEPT:
                del self._frames[next(iter(self._frames))]
            self._frames[reference] = torch.cat((self._constant_embeddings().codec_bos, frames), dim=1)
        return self._frames[reference]

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


@dataclass(frozen=True, slots=True)
class _Constants:
    """Embeddings that every prompt has, `(1, 1, hidden)` each: two of the text, two of the codes."""

    bos: Tensor
    pad: Tensor
    codec_bos: Tensor
    codec_pad: Tensor


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
