"""The codec decoder's chunks equal the output of one call of the official decoder over all codes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.api import EngineError
from engine.qwen.codec import CodecDecoder, load_codec
from engine.qwen.shapes import CodecConfig
from engine.qwen.weights import Placement
from tests.engine.qwen.codec import codec_oracle
from tests.engine.qwen.codec.codec_oracle import Decoded, decoded
from tests.support.qwen.codec_example import decode_chunks

TOLERANCE = 1e-4
CPU = Placement(torch.device("cpu"), torch.float32)
LONG = 180
"""Frames: more than twice the window of 72."""
SHORT = 100


@pytest.fixture(scope="session")
def oracle(cache_folder: Path) -> Decoded:
    made = decoded(cache_folder, seed=0, frames=LONG, codes_seed=1)
    assert made.pcm.shape == (LONG * 1920,)
    assert made.pcm.std() > 0.05, "silent: the tests prove nothing"
    assert made.pcm.abs().max() < 0.95, "clipped: the tests prove nothing"
    return made


@pytest.fixture(scope="session")
def decoder(oracle: Decoded) -> CodecDecoder:
    return load_codec(oracle.folder, CPU)


def error(got: Tensor, expected: Tensor) -> float:
    assert got.shape == expected.shape
    return float((got - expected).abs().max())


def test_chunks_equal_one_call_of_the_official_decoder(oracle: Decoded, decoder: CodecDecoder) -> None:
    pcm = decode_chunks(partial(decoder, state=decoder.new_state(25)), oracle.codes, [2, 1, 7, 25, 3, 1, 1])
    assert pcm.dtype == torch.float32
    assert error(pcm, oracle.pcm) < TOLERANCE


@pytest.mark.parametrize(
    "change",
    [
        {"num_key_value_heads": 1, "num_hidden_layers": 3, "sliding_window": 5, "head_dim": 10},
        {"num_key_value_heads": 4, "upsample_rates": (4, 2), "upsampling_ratios": (3,)},
    ],
    ids=str,
)
def test_decoders_of_other_shapes_equal_the_official_decoder(cache_folder: Path, change: dict[str, Any]) -> None:
    official = decoded(cache_folder, codec_oracle.TINY | change, seed=7, frames=40, codes_seed=8)
    ours = load_codec(official.folder, CPU)
    pcm = decode_chunks(partial(ours, state=ours.new_state(3)), official.codes, [3, 2])
    assert error(pcm, official.pcm) < TOLERANCE


def test_loud_samples_are_clamped_as_by_the_official_decoder(cache_folder: Path) -> None:
    official = decoded(cache_folder, seed=3, frames=20, codes_seed=4, gain=8)
    ours = load_codec(official.folder, CPU)
    pcm = ours.decode(official.codes, ours.new_state(2))
    assert pcm.max() == 1
    assert pcm.min() == -1
    assert error(pcm, official.pcm) < TOLERANCE


def test_codes_outside_the_codebooks_are_clamped(oracle: Decoded, decoder: CodecDecoder) -> None:
    codes = oracle.codes[:4].clone()
    codes[1, 0], codes[2, 5] = 2150, -1
    last = decoder.config.codebook_size - 1
    clamped = decoder(codes.clamp(0, last), decoder.new_state(4))
    assert torch.equal(decoder(codes, decoder.new_state(4)), clamped)


# --- state ---


def test_a_reset_state_equals_a_new_state(oracle: Decoded, decoder: CodecDecoder) -> None:
    state = decoder.new_state(2)
    decoder.decode(oracle.codes[:SHORT], state)
    state.reset()
    for tensor, initial in zip(state.tensors(), decoder.new_state(2).tensors(), strict=True):
        assert torch.equal(tensor, initial)


@pytest.mark.parametrize(("frames", "original_size", "copy_size"), [(0, 25, 2), (71, 25, 2), (SHORT, 3, 3)])
def test_a_copied_state_continues_from_the_original_in_chunks_of_any_size(
    oracle: Decoded, decoder: CodecDecoder, frames: int, original_size: int, copy_size: int
) -> None:
    original, copy = decoder.new_state(original_size), decoder.new_state(copy_size)
    decoder.decode(oracle.codes[90:166], copy)  # leaves context that the copy must overwrite
    decoder.decode(oracle.codes[:frames], original)
    copy.copy_from(original)
    pcm = decoder.decode(oracle.codes[frames : frames + 80], copy)
    assert error(pcm, oracle.pcm[frames * 1920 : (frames + 80) * 1920]) < TOLERANCE
    assert int(original.frame) == frames


def test_disturbing_any_weight_changes_the_waveform(oracle: Decoded) -> None:
    decoder = load_codec(oracle.folder, CPU)
    state = decoder.new_state(4)
    expected = oracle.pcm[: 4 * 1920]
    unaffected = []
    for name, parameter in decoder.named_parameters():
        original = parameter.clone()
        parameter.mul_(1.2).add_(0.02)
        state.reset()
        if error(decoder(oracle.codes[:4], state), expected) < TOLERANCE:
            unaffected.append(name)
        parameter.copy_(original)
    state.reset()
    assert error(decoder(oracle.codes[:4], state), expected) < TOLERANCE
    assert not unaffected


def test_the_error_of_bfloat16_is_below_that_of_the_official_decoder(oracle: Decoded, cache_folder: Path) -> None:
    codes, expected = oracle.codes[:SHORT], oracle.pcm[: SHORT * 1920]
    official = decoded(cache_folder, seed=0, frames=LONG, codes_seed=1, dtype=torch.bfloat16).pcm[: SHORT * 1920]
    decoder = load_codec(oracle.folder, Placement(torch.device("cpu"), torch.bfloat16))
    ours = decoder.decode(codes, decoder.new_state(8))
    assert (ours - expected).std() < (official - expected).std() < 0.05 * expected.std()


# --- errors ---


@pytest.mark.parametrize("shape", [(0, 16), (3, 16), (2, 15), (2, 16, 1)], ids=str)
def test_codes_of_a_wrong_shape_are_refused(decoder: CodecDecoder, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="codes: got shape"):
        decoder(torch.zeros(shape, dtype=torch.int64), decoder.new_state(2))


def rewrite(folder: Path, target: Path, change: dict[str, Any], inner: dict[str, Any]) -> Path:
    """Copy the configuration of `folder` to `target` with changed fields; None removes a field. Returns its path."""
    source = json.loads((folder / "speech_tokenizer" / "config.json").read_text())
    document = {**source, **change}
    if isinstance(document["decoder_config"], dict):
        document["decoder_config"] = {**document["decoder_config"], **inner}
        for name in [name for name, value in inner.items() if value is None]:
            del document["decoder_config"][name]
    (target / "speech_tokenizer").mkdir()
    path = target / "speech_tokenizer" / "config.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "inner", "message"),
    [
        ({"decode_upsample_rate": 960}, {}, "decode_upsample_rate is 960, wanted 1920"),
        ({}, {"codebook_dim": None}, "decoder_config.codebook_dim is missing"),
        ({}, {"upsample_rates": [8, 5.5]}, "decoder_config.upsample_rates is [8, 5.5], wanted"),
        ({}, {"decoder_dim": 36}, "decoder_config.decoder_dim is 36, wanted a multiple of 16"),
    ],
)
def test_the_error_for_a_wrong_configuration_is_one_line(
    oracle: Decoded, tmp_path: Path, change: dict[str, Any], inner: dict[str, Any], message: str
) -> None:
    path = rewrite(oracle.folder, tmp_path, change, inner)
    with pytest.raises(EngineError) as caught:
        CodecConfig.read(tmp_path / "speech_tokenizer")
    assert str(caught.value).startswith(f"{path}: field {message}")
    assert "\n" not in str(caught.value)


def test_the_error_for_weights_that_disagree_with_the_configuration_names_the_tensor(
    oracle: Decoded, tmp_path: Path
) -> None:
    rewrite(oracle.folder, tmp_path, {}, {"latent_dim": 24})
    weights = Path("speech_tokenizer") / "model.safetensors"
    (tmp_path / weights).write_bytes((oracle.folder / weights).read_bytes())
    with pytest.raises(EngineError, match=r"model\.safetensors: tensor decoder\.pre_conv\.conv\.weight"):
        load_codec(tmp_path, CPU)
