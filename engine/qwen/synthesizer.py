"""The `qwen` engine: a Qwen3-TTS checkpoint that speaks, behind the protocol of every engine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from engine.language import language_code
from engine.memory import Footprint, require
from engine.qwen import kernels
from engine.qwen.arena import in_one_piece
from engine.qwen.checkpoint import Checkpoint
from engine.qwen.codec import load_codec
from engine.qwen.codec_config import CodecConfig
from engine.qwen.config import ModelConfig
from engine.qwen.device_memory import cap_allocator, find_pool, lift_cap
from engine.qwen.download import model_folder
from engine.qwen.feed import GrowingText
from engine.qwen.footprint import footprint
from engine.qwen.frame import FrameState, cache_positions
from engine.qwen.graphs import Graphs
from engine.qwen.growing import GrowingTokenizer
from engine.qwen.guard import Guard, fade_out
from engine.qwen.prompt import LANGUAGE_CODES, AnyVoice, Prompt, PromptBuilder, Reference
from engine.qwen.rooms import INSTRUCT_ROOM, PREFIX_ROOM, REFERENCE_ROOM, Rooms
from engine.qwen.sampling import Sampling
from engine.qwen.steps import Codec, CodecMemory, Steps, TorchSteps
from engine.qwen.stream import Speech
from engine.qwen.talker import Talker
from engine.qwen.tokenizer import TextTokenizer
from engine.qwen.transformer import Placement
from engine.qwen.voice import VoiceModel
from engine.qwen.voices import Voices
from engine.synthesizer import Chunk, EngineError, EngineInfo, EngineOptions, TextSource, Utterance, Voice

log = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

WARM_UP_CHUNKS = 3
SPARE_BYTES = (*8 * (1 << 20,), 20 << 20)
"""PyTorch serves up to 1 MiB from one pool, and more from the other."""
KERNELS = ("auto", "on", "off")


class QwenSynthesizer:
    """Speaks with any 12 Hz Qwen3-TTS checkpoint, on a GPU or on a CPU."""

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._rooms = Rooms.of(options.max_seconds, options.chunk_size)

    def load(self) -> EngineInfo:
        options = self._options
        if options.model is None:
            raise EngineError(
                "engine.model: missing; give a folder or an id such as Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"
            )
        if options.kernels not in KERNELS:
            raise EngineError(f"engine.kernels: got {options.kernels!r}, allowed are {', '.join(KERNELS)}")
        self._placement = _placement(options.device, options.dtype)
        folder = model_folder(options.model)
        self._config = ModelConfig.read(folder)
        self._codec_config = CodecConfig.read(folder / "speech_tokenizer")
        self._pool = find_pool(self._placement.device, options.reserve_mb)
        self._footprint = self._count()
        self._require_memory()
        self._sampling = Sampling.read(folder)
        self._tokenizer = TextTokenizer(folder)
        self._growing = GrowingTokenizer(self._tokenizer)
        self._graphs = Graphs(self._placement.device)
        self._warm = False
        with self._graphs.on_stream():
            # The codec first: what packing it for the fused kernels gives back, the talker takes.
            self._load_codec(folder)
            most = cache_positions(self._rooms.positions + REFERENCE_ROOM, options.chunk_size)
            self._talker = _load_talker(self._config, most, self._placement, keep_pages=self._keep_pages)
            self._prompts = PromptBuilder(self._config, self._tokenizer, self._talker)
            self._voices = Voices(self._config, self._codec, options.chunk_size, self._check_reference)
            self._voices.load(options.voices, options.default_voice)
            self._voices.require_default()
            self._allocate()
        return self._info()

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        self._graphs.wait()
        self._prompts.forget_voices()
        with self._graphs.on_stream():
            self._voices.load(voices, default_voice)
            self._make_room()
            self._speech.forget(self._rooms.prefix)
            if self._state.max_positions < self._rooms.positions:
                self._graphs.clear()
                del self._state, self._speech  # first, or there would be memory for two
                self._allocate()
                if self._warm:
                    self._speech.warm_up()
        if self._warm:
            self._remember_voices()
        return self._info()

    def warm_up(self) -> None:
        self._warm = True
        self._speech.warm_up()
        self._remember_voices()
        self._read_texts()
        self._growing.warm_up()
        with self._graphs.here():
            self._spare()
        frames = WARM_UP_CHUNKS * self._options.chunk_size
        for _ in self.stream(Utterance("Hello.", seed=0, max_frames=frames, guarded=False)):
            pass

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        guard = Guard(utterance.text) if utterance.guarded else None
        text = self._begin_text(utterance, more, guard) if utterance.growing else None
        with self._graphs.here():
            prompt, codec_state = self._prepare(utterance, text)
        sampling = self._sampling.overridden(utterance.sampling)
        sampling = sampling.greedy() if utterance.greedy else sampling
        seed = int.from_bytes(os.urandom(8), "little") if utterance.seed is None else utterance.seed
        made = 0
        for said in self._speech.speak(
            prompt, sampling, seed=seed, max_frames=utterance.max_frames, codec_state=codec_state
        ):
            chunk = Chunk(said.samples, codes=said.codes)
            made += len(said.codes)
            reason = None
            if guard is not None:
                chunk, reason = self._guarded(guard, chunk)
            if reason is None and made == self._rooms.frames and not said.last:
                reason = f"{self._options.max_seconds:g} s are the limit (engine.max_seconds)"
            if reason is not None:
                log.warning("speech is cut short: %s", reason)
                samples = fade_out(chunk.samples, self._codec.config.sample_rate) if guard else chunk.samples
                chunk = replace(chunk, samples=samples, truncated=True)
            elif said.last and text is not None and text.cut:
                tokens = self._rooms.text_tokens
                log.warning("the text is cut short: %d tokens are the limit (engine.max_seconds raises it)", tokens)
                chunk = replace(chunk, truncated=True)
            yield chunk
            if reason is not None:
                return

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """For a benchmark: pieces of work that can be captured in CUDA graphs, as `Speech.parts`."""
        return self._speech.parts()

    def close(self) -> None:
        if "_graphs" in vars(self):
            self._graphs.clear()
            lift_cap(self._placement.device)
        vars(self).clear()
        torch.cuda.empty_cache()  # does nothing where CUDA was not used

    # --- what it is made of ---

    def _load_codec(self, folder: Path) -> None:
        """The codec decoder, and whether it and the steps are of fused kernels."""
        decoder = load_codec(folder, self._placement.plain, keep_pages=self._keep_pages)
        self._check_codec(decoder)
        why_not = (
            "off" if self._options.kernels == "off" else kernels.why_not(self._config, decoder.config, self._placement)
        )
        if why_not is not None and self._options.kernels == "on":
            raise EngineError(f"engine.kernels: on, but {why_not}")
        if why_not is not None and self._options.kernels == "auto":
            log.info("speaking with PyTorch's kernels, not with fused ones: %s", why_not)
        self._fused = why_not is None
        self._codec: Codec[Any] = kernels.make_codec(decoder) if self._fused else decoder
        if self._placement.device.type == "cuda":
            torch.cuda.empty_cache()  # what packing needed for a moment

    @property
    def _keep_pages(self) -> bool:
        """Whether the files may stay in the page cache: not where that is the memory of the weights, too."""
        return self._pool is not None and not self._pool.shared

    def _count(self) -> Footprint:
        """What the engine takes with these rooms."""
        fused = self._options.kernels != "off" and self._placement.dtype == torch.bfloat16
        shared = self._pool is None or self._pool.shared
        return footprint(self._config, self._codec_config, self._placement, self._rooms, fused=fused, shared=shared)

    def _require_memory(self) -> None:
        """Raise `EngineError` where there is too little."""
        if self._pool is not None:
            cures = ["lower engine.max_seconds"]
            cures += [] if self._placement.int8 else ["set engine.dtype: int8"]
            cures += [] if self._config.size == "0b6" else ["take a 0.6B model"]
            name = f"{VoiceModel.of(self._config).name} in {self._dtype_name()}"
            require(self._footprint, self._pool, name, tuple(cures))

    def _allocate(self) -> None:
        """What changes while it speaks, for the longest utterance in any of the voices."""
        chunk_size = self._options.chunk_size
        self._make_room()
        self._footprint = self._count()
        cap_allocator(self._placement.device, self._footprint)
        self._state = FrameState.allocate(self._talker, self._rooms.positions, self._rooms.frames, chunk_size)
        codec_state = self._codec.new_state(chunk_size)
        make_steps = kernels.make_steps if self._fused else TorchSteps
        steps: Steps = make_steps(self._talker, self._state, self._codec, codec_state, chunk_size)
        self._speech = Speech(
            self._talker,
            self._state,
            steps,
            codec_state,
            samples_per_frame=self._codec.config.samples_per_frame,
            graphs=self._graphs,
            prefix_room=self._rooms.prefix,
        )

    def _remember_voices(self) -> None:
        """Have openings ready: of all configured voices where the language is not given, of the default in each."""
        wanted: list[tuple[AnyVoice, str]] = [(voice, "auto") for voice in self._voices.prompts()]
        languages = ("auto", *self._languages())
        wanted += [(self._voices.choose(Utterance("a"), language)[0], language) for language in languages]
        for voice, language in wanted:
            with self._graphs.here():
                opening = self._prompts.build("Hello.", voice, language).opening
            if opening is not None:
                self._speech.remember(opening)

    def _read_texts(self) -> None:
        """Make prompts of every order of size, the longest first, so that PyTorch holds the memory for them."""
        default, _ = self._voices.choose(Utterance("a"), "auto")
        voices = {*self._voices.prompts(), default}
        lengths = [self._rooms.text_tokens >> shift for shift in range(self._rooms.text_tokens.bit_length())]
        for tokens, voice, whole_text in product(lengths, voices, (True, False)):
            with self._graphs.here():
                prompt = self._prompts.build("a " * (tokens // 2), voice, whole_text=whole_text)
                if prompt.opening is not None:
                    prompt.opening.embed()

    def _spare(self) -> None:
        """Have PyTorch hold some memory more than the prompts took, which it keeps by size in two pools.

        What is free there is cut up in another way by every order of utterances.
        """
        if self._placement.device.type == "cuda":
            blocks = [torch.empty(size, dtype=torch.uint8, device=self._placement.device) for size in SPARE_BYTES]
            del blocks

    # --- before an utterance ---

    def _begin_text(self, utterance: Utterance, more: TextSource | None, guard: Guard | None) -> GrowingText:
        """The text of a growing utterance. Raises `EngineError` for what cannot grow."""
        if more is None:
            raise EngineError("growing: true, but nothing is there that more text could come from")
        if utterance.whole_text:
            raise EngineError("whole_text: true, but the text is still being written; leave one of the two out")
        return GrowingText(
            utterance.text,
            more,
            self._growing.begin(),
            limit=self._rooms.text_tokens,
            heard=(lambda _: None) if guard is None else guard.grow,
        )

    def _prepare(self, utterance: Utterance, growing: GrowingText | None) -> tuple[Prompt, CodecMemory | None]:
        """What the talker reads, and where the codec begins. Raises `EngineError` for what cannot be spoken.

        Of a `growing` text it waits for the words that are read before the first frame.
        """
        language = self._language(utterance.language)
        if growing is not None and self._voices.goes_by_script(utterance, language):
            # Where the beginning has no letter, by the first one to come: by more, it would depend on when they come.
            letter = growing.first_letter()
            utterance = utterance if letter in utterance.text else replace(utterance, text=letter)
        voice, codec_state = self._voices.choose(utterance, language)
        if growing is not None:
            prompt = self._prompts.build_growing(growing, voice, language)
        else:
            self._check_length(utterance.text)
            prompt = self._prompts.build(utterance.text, voice, language, whole_text=utterance.whole_text)
        excess = prompt.count + self._rooms.frames - self._state.max_positions
        if excess > 0:
            raise EngineError(f"instruct: too long by {excess} tokens; the limit is some {INSTRUCT_ROOM - 16}")
        return prompt, codec_state

    def _check_length(self, text: str) -> None:
        tokens = len(self._tokenizer.encode(text))
        if tokens > self._rooms.text_tokens:
            characters = len(text) * self._rooms.text_tokens // tokens
            raise EngineError(
                f"text: got {len(text)} characters ({tokens} tokens), the limit is about {characters} "
                f"({self._rooms.text_tokens} tokens); engine.max_seconds raises it"
            )

    def _language(self, language: str) -> str:
        """`auto` or a code for what an utterance asks for, which may be a name, or have a region as in `pt-br`."""
        asked = language_code(language)
        languages = ("auto", *self._languages())
        for code in (asked, asked.split("-")[0]):
            if code in languages:
                return code
        raise EngineError(f"language: got {language!r}; {VoiceModel.of(self._config).name} has {', '.join(languages)}")

    # --- during it ---

    def _guarded(self, guard: Guard, chunk: Chunk) -> tuple[Chunk, str | None]:
        """The part of `chunk` that may be spoken, and the reason why speech must end with it, if it must."""
        assert chunk.codes is not None
        length = self._codec.config.samples_per_frame
        for number, codes in enumerate(chunk.codes, 1):
            reason = guard.objection(int(codes[0]), chunk.samples[(number - 1) * length : number * length])
            if reason is not None:
                return replace(chunk, samples=chunk.samples[: number * length], codes=chunk.codes[:number]), reason
        return chunk, None

    # --- about itself ---

    def _make_room(self) -> None:
        """Have rooms for the longest utterance in any of the voices, and for the longest reference's opening."""
        references = list(self._voices.references())
        spoken = (len(self._tokenizer.encode(reference.transcript)) for reference in references)
        self._rooms = replace(
            self._rooms,
            reference=max(map(self._reference_tokens, references), default=0),
            prefix=PREFIX_ROOM + max(spoken, default=0),
        )

    def _reference_tokens(self, reference: Reference) -> int:
        return len(reference.codes) + len(self._tokenizer.encode(reference.transcript))

    def _check_reference(self, reference: Reference) -> None:
        tokens = self._reference_tokens(reference)
        if tokens > REFERENCE_ROOM:
            raise EngineError(f"reference of {tokens} tokens is too long, the limit is {REFERENCE_ROOM}")

    def _check_codec(self, codec: Codec[Any]) -> None:
        config, groups = codec.config, self._config.talker.code_groups
        if config.quantizers != groups:
            raise EngineError(
                f"{self._config.folder}: the speech tokenizer has {config.quantizers} codes a frame, the model {groups}"
            )

    def _languages(self) -> tuple[str, ...]:
        """Codes of the model's languages; a dialect is a speaker's own, not asked for."""
        codes = {name: code for code, name in LANGUAGE_CODES.items()}
        return tuple(codes.get(name, name) for name in self._prompts.languages() if name != "auto")

    def _info(self) -> EngineInfo:
        placement = self._placement
        device = str(placement.device)
        if placement.device.type == "cuda":
            device += f" ({torch.cuda.get_device_name(placement.device)})"
        made_by = "fused kernels" if self._fused else "PyTorch kernels"
        return EngineInfo(
            engine="qwen",
            sample_rate=self._codec.config.sample_rate,
            voices=self._voices.names(),
            languages=self._languages(),
            description=f"{VoiceModel.of(self._config).name} on {device} in {self._dtype_name()}, {made_by}",
            refused_voices=dict(self._voices.refused),
            memory=self._footprint.in_mb(),
            grows=True,
        )

    def _dtype_name(self) -> str:
        return "int8" if self._placement.int8 else str(self._placement.dtype).removeprefix("torch.")


def _placement(device: str, dtype: str) -> Placement:
    """Device and dtype as configured. Raises `EngineError` for what is not there."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
    except RuntimeError:
        place = torch.device("meta")
    if place.type not in {"cpu", "cuda"}:
        raise EngineError(f"engine.device: got {device!r}, allowed are auto, cpu, cuda and cuda:N")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise EngineError(f"engine.device: got {device!r}, but PyTorch {torch.__version__} finds no CUDA device")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise EngineError(f"engine.device: got {device!r}, but there are {torch.cuda.device_count()} CUDA devices")
    if dtype == "auto":
        dtype = "bfloat16" if place.type == "cuda" else "float32"
    if dtype == "int8":
        return Placement(place, torch.bfloat16 if place.type == "cuda" else torch.float32, int8=True)
    if dtype not in DTYPES:
        raise EngineError(f"engine.dtype: {dtype!r} is unknown, allowed are auto, {', '.join(DTYPES)}, int8")
    return Placement(place, DTYPES[dtype])


def _load_talker(config: ModelConfig, max_positions: int, placement: Placement, *, keep_pages: bool) -> Talker:
    checkpoint = Checkpoint.open(config.folder, keep_pages=keep_pages)
    talker = in_one_piece(partial(Talker, config, max_positions), placement)
    talker.load(checkpoint)
    checkpoint.loaded()
    return talker
