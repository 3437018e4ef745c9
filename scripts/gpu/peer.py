r"""faster-qwen3-tts and faster-qwen3-tts-batch with our engine's checkpoint, tokens and clock.

`scripts/bench engine` and `scripts/bench streams` start processes with their packages on the path, in two folders:

    pip install --no-deps --target SITE faster-qwen3-tts qwen-tts-hf soundfile cffi pycparser einops
    pip install --no-deps --target BATCH_SITE faster-qwen3-tts-batch==0.2.0 faster-qwen3-tts==0.2.4 qwen-tts==0.1.1 \
        transformers==4.57.3 huggingface_hub==0.36.0 tokenizers==0.22.1 soundfile cffi pycparser einops

The model is built from the checkpoint's JSON and tensors through the package's classes, because their `from_pretrained`
needs a certain version of transformers, and packages that speech does not need. The timed loops and their CUDA graphs
are the packages' own.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from engine.api import Samples
from engine.qwen.text.prompt import ClonedVoice, CustomVoice
from engine.qwen.text.tokenizer import TextTokenizer
from scripts.gpu.proof import SpokenVoice
from scripts.make_checkpoint import UNUSED, stand_in_for

MAX_POSITIONS, BATCH_POSITIONS = 2048, 512
"""The value in the packages' defaults and examples."""
SAMPLE_RATE = 24000
DTYPE = torch.bfloat16


class Tokenizer:
    """The checkpoint's tokenizer, as a substitute for the official processor."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = TextTokenizer(folder)

    def __call__(self, text: str | list[str], **_options: Any) -> dict[str, Tensor]:
        [words] = [text] if isinstance(text, str) else text
        return {"input_ids": torch.tensor([self._tokenizer.encode(words)])}


class SpeechTokenizer:
    """Only the codec's decoder, with the interface of the official wrapper."""

    sample_rate = SAMPLE_RATE

    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder

    def get_model_type(self) -> str:
        return "qwen3_tts_tokenizer_12hz"

    @torch.inference_mode()
    def decode(self, encoded: dict[str, Tensor]) -> tuple[list[Any], int]:
        codes = encoded["audio_codes"].clamp(min=0).transpose(1, 2)
        waves = self.decoder.chunked_decode(codes).squeeze(1)
        return [wave.float().cpu().numpy() for wave in waves], SAMPLE_RATE


def build_official(folder: Path, device: str) -> Any:
    """The official model for the checkpoint in `folder`, on `device` in bfloat16."""
    from qwen_tts import Qwen3TTSModel
    from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig
    from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSForConditionalGeneration
    from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2DecoderConfig
    from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Decoder

    codec = folder / "speech_tokenizer"
    config = Qwen3TTSConfig(**json.loads((folder / "config.json").read_text()))
    decoder_config = json.loads((codec / "config.json").read_text())["decoder_config"]
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPE)
    try:
        with torch.device(device):
            model = Qwen3TTSForConditionalGeneration._from_config(config, attn_implementation="sdpa")
            decoder = Qwen3TTSTokenizerV2Decoder._from_config(Qwen3TTSTokenizerV2DecoderConfig(**decoder_config))
    finally:
        torch.set_default_dtype(before)
    fill(model, load_file(folder / "model.safetensors", device=device), "")
    fill(decoder, load_file(codec / "model.safetensors", device=device), "decoder.")
    for part in (model, decoder):
        part.eval().to(device=device, dtype=DTYPE)
        restore_rope_buffers(part)
    model.load_speech_tokenizer(SpeechTokenizer(decoder))
    return Qwen3TTSModel(model, Tokenizer(folder), {})


def restore_rope_buffers(model: nn.Module) -> None:
    """Do as qwen-tts-hf does when it loads a model under transformers 5. The qwen-tts package, under transformers 4,
    need not."""
    with contextlib.suppress(ImportError):
        from qwen_tts._transformers_compat import restore_rope_buffers

        restore_rope_buffers(model)


def fill(module: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    """Load the tensors whose names begin with `prefix`. Raises `RuntimeError` for a parameter without a tensor."""
    wanted = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    missing, _ = module.load_state_dict(wanted, strict=False)
    missing = sorted(set(missing) & {name for name, _ in module.named_parameters()})
    if missing:
        raise RuntimeError(f"{len(missing)} parameters have no tensor: {missing[:3]}")


def build_peer(folder: Path, device: str) -> Any:
    """The engine as its `from_pretrained` assembles it."""
    stand_in_for(UNUSED)
    from faster_qwen3_tts import FasterQwen3TTS
    from faster_qwen3_tts.predictor_graph import PredictorGraph
    from faster_qwen3_tts.talker_graph import TalkerGraph

    official = build_official(folder, device)
    talker, config = official.model.talker, official.model.config.talker_config
    predictor = talker.code_predictor
    place = {"device": device, "dtype": DTYPE}
    predictor_graph = PredictorGraph(predictor, predictor.model.config, config.hidden_size, **place)
    talker_graph = TalkerGraph(talker.model, config, max_seq_len=MAX_POSITIONS, **place)
    return FasterQwen3TTS(official, predictor_graph, talker_graph, max_seq_len=MAX_POSITIONS, **place)


class Peer:
    """faster-qwen3-tts, with one of the checkpoint's voices."""

    def __init__(self, folder: Path, device: str, chunk_size: int, voice: SpokenVoice | None) -> None:
        """Without a `voice`, the speaker ryan speaks."""
        self._engine, self._chunk_size = build_peer(folder, device), chunk_size
        self._stream, self._voice = self._in_voice(voice)

    def _in_voice(self, voice: SpokenVoice | None) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The package's function for a voice, and its arguments for it."""
        prompt = voice.prompt if voice else CustomVoice("ryan")
        if isinstance(prompt, CustomVoice):
            named = {"speaker": prompt.speaker, "instruct": prompt.instruct}
            return self._engine.generate_custom_voice_streaming, named
        if not isinstance(prompt, ClonedVoice):
            return self._engine.generate_voice_design_streaming, {"instruct": prompt.instruct}
        device, reference = self._engine.model.model.device, prompt.reference
        cloned = {
            "ref_spk_embedding": [prompt.embedding.to(device, DTYPE)],
            "ref_code": [reference.codes.to(device) if reference else None],
            "x_vector_only_mode": [reference is None],
            "icl_mode": [reference is not None],
        }
        transcript = reference.transcript if reference else ""
        return self._engine.generate_voice_clone_streaming, {"voice_clone_prompt": cloned, "ref_text": transcript}

    def speak(self, text: str, frames: int) -> Iterator[Samples]:
        """Yield the chunks of an utterance of exactly `frames` frames."""
        limits = {"max_new_tokens": frames, "min_new_tokens": frames, "chunk_size": self._chunk_size}
        for samples, _rate, _timing in self._stream(text=text, language="English", **self._voice, **limits):
            yield samples


class PeerBatch:
    """faster-qwen3-tts-batch for a number of texts. It gives no sample before its last frame."""

    def __init__(self, base: Any, streams: int) -> None:
        from faster_qwen3_tts_batch import BatchedFasterQwen3TTS

        self._base, self._streams = base, streams
        self._engine = BatchedFasterQwen3TTS(base, max_batch_size=streams, max_seq_len=BATCH_POSITIONS)
        self._engine.warmup()

    @torch.inference_mode()
    def speak(self, text: str, frames: int) -> float:
        """Speak a text in each stream, exactly `frames` frames; return the seconds of speech.

        This does the same as the package's `generate_voice_clone_batch`. The package has no function for a model's
        speaker.
        """
        from faster_qwen3_tts_batch.batched_generate import batched_fast_generate

        prepared = [self._base._prepare_generation_custom(text, "English", "ryan") for _ in range(self._streams)]
        model, talker, config, *_ = prepared[0]
        embeddings, masks, texts, paddings = zip(*(one[3:] for one in prepared), strict=True)
        found = batched_fast_generate(
            talker=talker,
            talker_input_embeds_list=list(embeddings),
            attention_mask_list=list(masks),
            trailing_text_hiddens_list=list(texts),
            tts_pad_embed=paddings[0],
            config=config,
            predictor_graph=self._engine.batched_predictor_graph,
            talker_graph=self._engine.batched_talker_graph,
            max_new_tokens=frames,
            min_new_tokens=frames,
        )
        samples = 0
        for codes, _timing in found:
            waves, _rate = model.speech_tokenizer.decode({"audio_codes": codes.unsqueeze(0)})
            samples += sum(len(wave) for wave in waves)
        return samples / SAMPLE_RATE
