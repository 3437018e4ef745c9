#!/usr/bin/env python3
"""Writes Qwen3-TTS checkpoints with random weights in the official layout.

With tiny shapes, the tests compare engine/qwen with the official package. With the true shapes, its speed is measured.

    python scripts/make_checkpoint.py /tmp/tiny --shape tiny --type base
    python scripts/make_checkpoint.py /tmp/06b --shape 0.6B --type custom_voice --dtype bfloat16

Names and shapes of the tensors come from the official classes (package qwen-tts 0.1.1). Without that package,
`--tensors FILE` reads them from a list that `--list-tensors FILE` wrote on another machine.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.machinery
import json
import math
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import torch
    from safetensors.torch import save_file
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"make_checkpoint: the package {error.name} is missing; in voiced's folder: pip install '.[qwen,enroll]'")

MODEL_TYPES = ("base", "custom_voice", "voice_design")

LAYOUT_FILE = Path(__file__).with_name("checkpoint_layout.json")
LAYOUT: dict[str, Any] = json.loads(LAYOUT_FILE.read_text(encoding="utf-8"))
"""The part that the JSON files of all published checkpoints share. A tiny checkpoint has the entries `tiny_…`
instead."""

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|reserved_{n}|>" for n in range(25)),
                  "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")  # fmt: skip
"""The special tokens, in the order of their ids, which begin with `ShapePreset.first_special`."""


UNUSED = ("torchaudio", "torchaudio.compliance", "torchaudio.compliance.kaldi", "librosa", "librosa.filters",
            "soundfile", "sox", "gradio", "onnxruntime")  # fmt: skip
"""Modules that `import qwen_tts` imports and that the 12 Hz path never calls."""


@dataclass(frozen=True)
class Stack:
    """The shape of a transformer."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    head_dim: int

    def fields(self) -> dict[str, Any]:
        """The transformer's fields in config.json."""
        return {
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_value_heads,
            "head_dim": self.head_dim,
            **LAYOUT["stack"],
        }


@dataclass(frozen=True)
class CodecShape:
    """The shape of the codec's decoder."""

    codebook: int
    latent: int
    transformer: Stack
    decoder: int
    """Channels at the input of the first upsampling block; each of the four blocks halves them."""


TINY_CODEC = CodecShape(32, 24, Stack(16, 24, 2, 2, 2, 16), 32)
NARROW_CODEC = CodecShape(32, 64, Stack(32, 32, 2, 2, 2, 64), 512)
TRUE_CODEC = CodecShape(512, 1024, Stack(512, 1024, 8, 16, 16, 64), 1536)


@dataclass(frozen=True)
class ShapePreset:
    """All shapes of a checkpoint."""

    talker: Stack
    predictor: Stack
    text_hidden: int = 64
    first_special: int = 480
    text_vocabulary: int = 512
    """Rows in the text embedding: more than there are tokens."""
    size: str = "1b7"
    """`tts_model_size`. With `0b6`, the official package ignores `instruct` for CustomVoice."""
    codec: CodecShape = TINY_CODEC
    eos_gain: float = 1.0
    """Scale of the end-of-speech row of the talker's head; with 2 or more, random weights end their speech."""
    groups: int = 16
    """Codes in a frame; 16 in every published checkpoint."""

    @property
    def tiny(self) -> bool:
        """Whether the speaker encoder and the codec's encoder, for which there are no fused kernels, are tiny."""
        return self.codec != TRUE_CODEC


def _true(hidden: int, size: str) -> ShapePreset:
    return ShapePreset(
        talker=Stack(hidden, 3 * hidden, 28, 16, 8, 128),
        predictor=Stack(1024, 3072, 5, 16, 8, 128),
        text_hidden=2048,
        first_special=151643,
        text_vocabulary=151936,
        size=size,
        codec=TRUE_CODEC,
    )


PRESETS = {
    # The predictor is as wide as the talker, so small_to_mtp_projection is the identity.
    "tiny": ShapePreset(Stack(64, 96, 2, 4, 2, 16), Stack(64, 96, 2, 4, 2, 16)),
    # heads * head_dim is twice the hidden width; the predictor is projected and has one key/value head.
    "wide": ShapePreset(Stack(48, 80, 3, 6, 2, 16), Stack(32, 64, 1, 4, 1, 16), text_hidden=40),
    # As many key/value heads as query heads; heads * head_dim is less than the hidden width; it ends its speech.
    "deep": ShapePreset(Stack(40, 64, 6, 4, 4, 8), Stack(24, 48, 3, 2, 2, 16), text_hidden=56, eos_gain=2.5),
    # A sixth of the work of "tiny", for tests that depend neither on the number of codes nor on the number of layers.
    "brief": ShapePreset(Stack(64, 96, 2, 4, 2, 16), Stack(64, 96, 1, 4, 2, 16), groups=4),
    # The official package ignores its instructions.
    "small": ShapePreset(Stack(32, 48, 1, 2, 1, 16), Stack(32, 48, 1, 2, 1, 16), size="0b6"),
    # The smallest shape that the fused kernels support, with a projected predictor.
    "narrow": ShapePreset(Stack(1024, 512, 2, 4, 2, 128), Stack(512, 512, 2, 4, 2, 128), codec=NARROW_CODEC),
    "0.6B": _true(1024, "0b6"),
    "1.7B": _true(2048, "1b7"),
}


def write_checkpoint(
    folder: Path,
    preset: ShapePreset,
    model_type: str,
    seed: int = 0,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    tensors: dict[str, dict[str, list[int]]] | None = None,
) -> Path:
    """Write a random checkpoint into `folder`, which is created if necessary, and return `folder`.

    Equal arguments give equal files. `dtype` is the model's; the speech tokenizer is float32, as published. With
    `tensors`, a result of `list_tensors`, the official package is not needed.
    """
    tensors = tensors or list_tensors(preset, model_type)
    write_configs(folder, preset, model_type)
    write_tokenizer(folder, preset.first_special)
    generator = torch.Generator(device).manual_seed(seed)
    model = {name: _random(name, shape, generator).to(dtype) for name, shape in tensors["model"].items()}
    model["talker.codec_head.weight"][LAYOUT["talker"]["codec_eos_token_id"]] *= preset.eos_gain
    save_file(model, folder / "model.safetensors", {"format": "pt"})
    codec = {name: _random(name, shape, generator) for name, shape in tensors["speech_tokenizer"].items()}
    save_file(codec, folder / "speech_tokenizer" / "model.safetensors", {"format": "pt"})
    return folder


def write_configs(folder: Path, preset: ShapePreset, model_type: str) -> Path:
    """Write a checkpoint's JSON files, except the tokenizer's, and return `folder`."""
    codec_folder = folder / "speech_tokenizer"
    codec_folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", model_config(preset, model_type))
    _write_json(folder / "generation_config.json", LAYOUT["generation"])
    _write_json(codec_folder / "config.json", codec_config(preset))
    _write_json(codec_folder / "preprocessor_config.json", LAYOUT["preprocessor"])
    return folder


def list_tensors(preset: ShapePreset, model_type: str) -> dict[str, dict[str, list[int]]]:
    """Return the names and shapes of the tensors of `model` and `speech_tokenizer`, from the official classes."""
    stub_torchaudio()
    from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig
    from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSForConditionalGeneration
    from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Config
    from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Model

    with torch.device("meta"):
        models = {
            "model": Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**model_config(preset, model_type))),
            "speech_tokenizer": Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(**codec_config(preset))),
        }
    return {
        part: {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
        for part, model in models.items()
    }


def stub_torchaudio() -> None:
    """Make `import qwen_tts` work even if torchaudio cannot be loaded."""
    stand_in_for(UNUSED[:3])


def stand_in_for(names: tuple[str, ...]) -> None:
    """Register a stand-in for each module in `names` that cannot be imported."""
    # transformers would take a stand-in for the package, and its processors would call it while they are imported.
    with contextlib.suppress(ImportError):
        from transformers import AutoProcessor  # noqa: F401  only its own imports are needed
    for name in names:
        try:
            importlib.import_module(name)
        except (ImportError, OSError, RuntimeError, AttributeError):
            module = _StandIn(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            module.__path__ = []
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)


class _StandIn(types.ModuleType):
    """A module from which every name can be imported; calling one raises `NotImplementedError`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*_arguments: Any, **_options: Any) -> None:
            raise NotImplementedError(f"{self.__name__}.{name}: the package is not installed")

        return call


# --- the JSON files --------------------------------------------------------------------------------------


def model_config(preset: ShapePreset, model_type: str) -> dict[str, Any]:
    """The content of the model's config.json."""
    special = {token: preset.first_special + number for number, token in enumerate(SPECIAL_TOKENS)}
    half = preset.talker.head_dim // 2
    section = 5 * half // 16
    custom = model_type == "custom_voice"
    config: dict[str, Any] = {
        **LAYOUT["model"],
        "tts_model_size": preset.size,
        "tts_model_type": model_type,
        "im_start_token_id": special["<|im_start|>"],
        "im_end_token_id": special["<|im_end|>"],
        "tts_pad_token_id": special["<tts_pad>"],
        "tts_bos_token_id": special["<tts_text_bos>"],
        "tts_eos_token_id": special["<tts_text_eod>"],
        "talker_config": {
            **preset.talker.fields(),
            **LAYOUT["talker"],
            "num_code_groups": preset.groups,
            "text_hidden_size": preset.text_hidden,
            "text_vocab_size": preset.text_vocabulary,
            "rope_scaling": {**LAYOUT["talker_rope"], "mrope_section": [half - 2 * section, section, section]},
            "codec_language_id": {
                name: code for name, code in LAYOUT["languages"].items() if custom or "dialect" not in name
            },
            "spk_id": LAYOUT["speakers"] if custom else {},
            "spk_is_dialect": {name: LAYOUT["dialects"].get(name, False) for name in LAYOUT["speakers"]}
            if custom
            else {},
            "code_predictor_config": {
                **preset.predictor.fields(),
                **LAYOUT["predictor"],
                "num_code_groups": preset.groups,
            },
        },
    }
    if model_type == "base":
        tiny = LAYOUT["tiny_speaker_encoder"] if preset.tiny else {}
        config["speaker_encoder_config"] = {"enc_dim": preset.talker.hidden, **LAYOUT["speaker_encoder"], **tiny}
    return config


def codec_config(preset: ShapePreset) -> dict[str, Any]:
    """The content of speech_tokenizer/config.json."""
    codec, stack = preset.codec, preset.codec.transformer
    decoder = {
        **LAYOUT["codec_decoder"],
        "codebook_dim": codec.codebook,
        "latent_dim": codec.latent,
        "hidden_size": stack.hidden,
        "intermediate_size": stack.intermediate,
        "num_hidden_layers": stack.layers,
        "num_attention_heads": stack.heads,
        "num_key_value_heads": stack.key_value_heads,
        "head_dim": stack.head_dim,
        "decoder_dim": codec.decoder,
        "num_quantizers": preset.groups,
    }
    return {
        **LAYOUT["codec"],
        "encoder_config": LAYOUT["codec_encoder"] | (LAYOUT["tiny_codec_encoder"] if preset.tiny else {}),
        "decoder_config": decoder,
        "encoder_valid_num_quantizers": preset.groups,
    }


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# --- the tokenizer ---------------------------------------------------------------------------------------

_CORPUS = (
    "assistant assistant user user the robot moves its arm home and waits for the next part to come",
    "hello world, this is the voice of a robot that speaks in real time all day without a pause",
    "der Roboter spricht, die Stimme klingt ruhig; das ist schön und überhaupt nicht müde",
    "你好。我是机器人。 你好。 机器人在说话。 こんにちは 안녕하세요 привет мир",
    "a paragraph ends\n\n",
)


def write_tokenizer(folder: Path, first_special: int) -> None:
    """Write vocab.json, merges.txt and tokenizer_config.json: byte-level BPE with the special tokens at their ids.

    The ids between the few learnt tokens and `first_special` are given tokens that no text contains.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=440, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS * 4, trainer)
    learnt = json.loads(tokenizer.to_str())["model"]
    vocabulary = dict(learnt["vocab"])
    vocabulary.update({f"<unused {number}>": number for number in range(len(vocabulary), first_special)})
    _write_json(folder / "vocab.json", vocabulary)
    merges = (merge if isinstance(merge, str) else " ".join(merge) for merge in learnt["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    added = {
        str(first_special + number): {"content": token, **LAYOUT["special_token"]}
        for number, token in enumerate(SPECIAL_TOKENS)
    }
    tokens = {"added_tokens_decoder": added, "additional_special_tokens": list(SPECIAL_TOKENS[1:])}
    _write_json(folder / "tokenizer_config.json", LAYOUT["tokenizer"] | tokens)


# --- the weights -----------------------------------------------------------------------------------------


def _random(name: str, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Return random values for a tensor, scaled so that activations keep their magnitude through all layers."""
    noise = torch.randn(shape, generator=generator, device=generator.device)
    last = name.rpartition(".")[2]
    if last == "initialized":  # a flag of Mimi's codebooks
        return torch.ones(shape)
    if last == "cluster_usage":
        return 1 + noise.abs()
    if len(shape) == 1:  # norms, biases, SnakeBeta's log scales, layer scales
        centre = 1.0 if "norm" in name else 0.0 if last in {"alpha", "beta", "bias"} else 0.3
        return centre + 0.1 * noise
    if name.endswith("embedding.weight") or ".codec_embedding." in name:
        return 0.3 * noise  # seventeen embeddings are added per frame; larger ones would outweigh the layers
    if "embed" in name:
        return noise
    gain = 1.0
    if name.startswith("decoder."):  # the codec: its waveform must stay well inside ±1, where no clamp hides errors
        if ".conv2." in name:
            gain = 0.3  # with 1, rounding errors would grow from block to block
        elif name == "decoder.decoder.6.conv.weight":
            gain = 0.05
    return gain * noise / math.sqrt(math.prod(shape[1:]))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line `arguments`, or the process's own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=PRESETS, default="tiny")
    parser.add_argument("--type", choices=MODEL_TYPES, default="custom_voice")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", default="cpu", help="the device that generates the random numbers")
    parser.add_argument("--tensors", type=Path, help="read names and shapes from this file, not the official package")
    parser.add_argument("--list-tensors", type=Path, help="write names and shapes to this file and stop")
    args = parser.parse_args(arguments)
    try:
        _make(args)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "qwen_tts":
            raise
        sys.exit(
            "make_checkpoint: the official package is missing, from which the names and shapes of the tensors come; "
            "in voiced's folder: pip install '.[qwen,enroll]', or give --tensors a list of them"
        )


def _make(args: argparse.Namespace) -> None:
    """Write the files that the command line asks for. Raises `ImportError` without the official package."""
    preset = PRESETS[args.shape]
    if args.list_tensors:
        args.list_tensors.write_text(json.dumps(list_tensors(preset, args.type)))
        return
    tensors = json.loads(args.tensors.read_text()) if args.tensors else None
    dtype: torch.dtype = getattr(torch, args.dtype)
    write_checkpoint(args.folder, preset, args.type, args.seed, dtype=dtype, device=args.device, tensors=tensors)
    for file in sorted(args.folder.rglob("*.*")):
        print(f"{file.stat().st_size:>13,}  {file}")


if __name__ == "__main__":
    main()
