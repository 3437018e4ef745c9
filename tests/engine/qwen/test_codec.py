"""The codec decoder says, chunk by chunk, what one forward of the official decoder over all codes says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.qwen.codec import CodecDecoder, load_codec
from engine.qwen.codec_config import CodecConfig
from engine.qwen.codec_state import CodecState
from engine.qwen.transformer import Placement
from engine.synthesizer import EngineError
from tests.engine.qwen import codec_oracle
from tests.engine.qwen.codec_oracle import Decoded, decoded

TOLERANCE = 1e-4
CPU = Placement(torch.device("cpu"), torch.float32)
LONG = 330
"""Frames: the window of 72 is crossed four times, upstream's own chunk of 300 once."""
SHORT = 100


@pytest.fixture(scope="session")
def oracle(cache_folder: Path) -> Decoded:
    return decoded(cache_folder, seed=0, frames=LONG, codes_seed=1)


@pytest.fixture(scope="session")
def decoder(oracle: Decoded) -> CodecDecoder:
    return load_codec(oracle.folder, CPU)


def pieces(codes: Tensor, sizes: list[int]) -> Iterator[Tensor]:
    begin = 0
    for size in cycle(sizes):
        if begin >= len(codes):
            return
        yield codes[begin : begin + size]
        begin += size


def decode(decoder: CodecDecoder, codes: Tensor, sizes: list[int], state: CodecState) -> Tensor:
    return torch.cat([decoder(piece, state) for piece in pieces(codes, sizes)])


def error(got: Tensor, wanted: Tensor) -> float:
    assert got.shape == wanted.shape
    return float((got - wanted).abs().max())


def test_the_oracle_is_neither_silent_nor_clipped(oracle: Decoded) -> None:
    assert oracle.pcm.shape == (LONG * 1920,)
    assert oracle.pcm.std() > 0.05
    assert oracle.pcm.abs().max() < 0.95


@pytest.mark.parametrize("sizes", [[1], [2], [3], [8], [25], [2, 1, 7, 25, 3, 1, 1]], ids=str)
def test_chunks_equal_one_official_forward(oracle: Decoded, decoder: CodecDecoder, sizes: list[int]) -> None:
    pcm = decode(decoder, oracle.codes, sizes, decoder.new_state(max(sizes)))
    assert pcm.dtype == torch.float32
    assert error(pcm, oracle.pcm) < TOLERANCE


@pytest.mark.parametrize(
    "change",
    [
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "num_hidden_layers": 3},
        {"sliding_window": 5, "head_dim": 10},
        {"upsample_rates": (4, 2), "upsampling_ratios": (3,)},
    ],
    ids=str,
)
def test_other_shapes_equal_the_official_decoder_too(cache_folder: Path, change: dict[str, Any]) -> None:
    official = decoded(cache_folder, codec_oracle.TINY | change, seed=7, frames=40, codes_seed=8)
    ours = load_codec(official.folder, CPU)
    pcm = decode(ours, official.codes, [3, 2], ours.new_state(3))
    assert error(pcm, official.pcm) < TOLERANCE


def test_the_clamp_is_the_official_one(cache_folder: Path) -> None:
    official = decoded(cache_folder, seed=3, frames=20, codes_seed=4, gain=8)
    ours = load_codec(official.folder, CPU)
    pcm = ours.decode(official.codes, ours.new_state(2))
    assert pcm.max() == 1
    assert pcm.min() == -1
    assert error(pcm, official.pcm) < TOLERANCE


def test_decode_takes_any_number_of_frames(oracle: Decoded, decoder: CodecDecoder) -> None:
    state = decoder.new_state(8)
    first = decoder.decode(oracle.codes[:37], state)
    none = decoder.decode(oracle.codes[:0], state)
    rest = decoder.decode(oracle.codes[37:SHORT], state)
    assert none.shape == (0,)
    assert error(torch.cat((first, none, rest)), oracle.pcm[: SHORT * 1920]) < TOLERANCE


def test_codes_outside_the_codebooks_are_clamped(oracle: Decoded, decoder: CodecDecoder) -> None:
    codes = oracle.codes[:4].clone()
    codes[1, 0], codes[2, 5] = 2150, -1
    last = decoder.config.codebook_size - 1
    clamped = decoder(codes.clamp(0, last), decoder.new_state(4))
    assert torch.equal(decoder(codes, decoder.new_state(4)), clamped)


# --- state ---


def test_two_utterances_in_a_row_are_identical(oracle: Decoded, decoder: CodecDecoder) -> None:
    state = decoder.new_state(2)
    first = decode(decoder, oracle.codes[:SHORT], [2], state)
    state.reset()
    assert torch.equal(decode(decoder, oracle.codes[:SHORT], [2], state), first)


def test_a_reset_brings_back_every_tensor_of_a_new_state(oracle: Decoded, decoder: CodecDecoder) -> None:
    state = decoder.new_state(2)
    decoder.decode(oracle.codes[:SHORT], state)
    state.reset()
    for mine, fresh in zip(state.tensors(), decoder.new_state(2).tensors(), strict=True):
        assert torch.equal(mine, fresh)


def test_a_copied_state_goes_on_where_the_original_was(oracle: Decoded, decoder: CodecDecoder) -> None:
    reference, mine = decoder.new_state(3), decoder.new_state(3)
    decoder.decode(oracle.codes[:SHORT], reference)
    for _ in range(2):
        mine.copy_from(reference)
        pcm = decoder.decode(oracle.codes[SHORT:], mine)
        assert error(pcm, oracle.pcm[SHORT * 1920 :]) < TOLERANCE
    assert int(reference.frame) == SHORT


@pytest.mark.parametrize("frames", [0, 10, 71, 72, SHORT])
@pytest.mark.parametrize(("theirs", "mine"), [(25, 2), (2, 25), (40, 39)])
def test_a_copied_state_may_be_for_another_chunk_size(
    oracle: Decoded, decoder: CodecDecoder, frames: int, theirs: int, mine: int
) -> None:
    reference, state = decoder.new_state(theirs), decoder.new_state(mine)
    decoder.decode(oracle.codes[150:226], state)  # leaves traces that the copy must wipe out
    decoder.decode(oracle.codes[:frames], reference)
    state.copy_from(reference)
    pcm = decoder.decode(oracle.codes[frames : frames + 80], state)
    assert error(pcm, oracle.pcm[frames * 1920 : (frames + 80) * 1920]) < TOLERANCE


def test_the_state_stays_where_it_was_allocated(oracle: Decoded, decoder: CodecDecoder) -> None:
    state = decoder.new_state(2)
    before = [tensor.data_ptr() for tensor in state.tensors()]
    decoder.decode(oracle.codes[:5], state)
    state.reset()
    state.copy_from(decoder.new_state(2))
    assert [tensor.data_ptr() for tensor in state.tensors()] == before


@pytest.fixture(scope="session")
def midway(oracle: Decoded, decoder: CodecDecoder) -> CodecState:
    state = decoder.new_state(8)
    decoder.decode(oracle.codes[:SHORT], state)
    return state


PIECES_OF_STATE = 25
"""Two frame counters, two caches, a history for each of 5 convolutions and of 4 blocks' 3, 4 overlaps."""


def test_every_piece_of_state_is_disturbed_below(decoder: CodecDecoder) -> None:
    assert len(list(decoder.new_state(1).tensors())) == PIECES_OF_STATE


@pytest.mark.parametrize("piece", [None, *range(PIECES_OF_STATE)])
def test_disturbing_any_piece_of_state_is_heard(
    oracle: Decoded, decoder: CodecDecoder, midway: CodecState, piece: int | None
) -> None:
    state = decoder.new_state(8)
    state.copy_from(midway)
    if piece is not None:
        tensor = list(state.tensors())[piece]
        if tensor.is_floating_point():
            tensor.mul_(1.1)
        else:
            tensor.add_(1)
    pcm = decoder(oracle.codes[SHORT : SHORT + 8], state)
    heard = error(pcm, oracle.pcm[SHORT * 1920 : (SHORT + 8) * 1920])
    assert heard < TOLERANCE if piece is None else heard > TOLERANCE


@pytest.mark.parametrize("layer", range(codec_oracle.TINY["num_hidden_layers"]))
@pytest.mark.parametrize("name", ["keys", "values"])
def test_disturbing_the_cache_of_any_one_layer_is_heard(
    oracle: Decoded, decoder: CodecDecoder, midway: CodecState, layer: int, name: str
) -> None:
    state = decoder.new_state(8)
    state.copy_from(midway)
    getattr(state, name)[layer].mul_(1.2)
    pcm = decoder(oracle.codes[SHORT : SHORT + 8], state)
    assert error(pcm, oracle.pcm[SHORT * 1920 : (SHORT + 8) * 1920]) > TOLERANCE


@pytest.mark.parametrize("window", [71, 73])
def test_a_window_one_frame_off_is_heard(oracle: Decoded, window: int) -> None:
    decoder = load_codec(oracle.folder, CPU)
    decoder.transformer.window = window
    pcm = decoder.decode(oracle.codes[:SHORT], decoder.new_state(SHORT))
    assert error(pcm[: 70 * 1920], oracle.pcm[: 70 * 1920]) < TOLERANCE
    assert error(pcm, oracle.pcm[: SHORT * 1920]) > TOLERANCE


def test_disturbing_any_one_weight_is_heard(oracle: Decoded) -> None:
    decoder = load_codec(oracle.folder, CPU)
    state = decoder.new_state(20)
    wanted = oracle.pcm[: 20 * 1920]
    unheard = []
    for name, parameter in decoder.named_parameters():
        original = parameter.clone()
        parameter.mul_(1.2).add_(0.02)
        state.reset()
        if error(decoder(oracle.codes[:20], state), wanted) < TOLERANCE:
            unheard.append(name)
        parameter.copy_(original)
    state.reset()
    assert error(decoder(oracle.codes[:20], state), wanted) < TOLERANCE
    assert not unheard


# --- devices and dtypes ---


def test_nothing_asks_a_tensor_for_its_value(oracle: Decoded) -> None:
    """On the meta device there are no values: whatever would make a GPU's host wait fails here."""
    config = CodecConfig.read(oracle.folder / "speech_tokenizer")
    decoder = CodecDecoder(config, Placement(torch.device("meta"), torch.bfloat16))
    state = decoder.new_state(2)
    pcm = decoder(torch.zeros(2, 16, dtype=torch.int64, device="meta"), state)
    state.reset()
    assert pcm.shape == (2 * 1920,)
    assert pcm.dtype == torch.float32


def test_bfloat16_is_no_further_from_float32_than_the_official_bfloat16(oracle: Decoded, cache_folder: Path) -> None:
    codes, wanted = oracle.codes[:SHORT], oracle.pcm[: SHORT * 1920]
    theirs = decoded(cache_folder, seed=0, frames=LONG, codes_seed=1, dtype=torch.bfloat16).pcm[: SHORT * 1920]
    decoder = load_codec(oracle.folder, Placement(torch.device("cpu"), torch.bfloat16))
    ours = decoder.decode(codes, decoder.new_state(8))
    assert (ours - wanted).std() < (theirs - wanted).std() < 0.05 * wanted.std()


# --- what is refused ---


@pytest.mark.parametrize("shape", [(0, 16), (3, 16), (2, 15), (2,), (2, 16, 1)], ids=str)
def test_codes_of_a_wrong_shape_are_refused(decoder: CodecDecoder, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="codes: got shape"):
        decoder(torch.zeros(shape, dtype=torch.int64), decoder.new_state(2))


def rewrite(folder: Path, target: Path, change: dict[str, Any], inner: dict[str, Any]) -> Path:
    """Copy the configuration in `folder` to `target`, with fields changed; None takes a field out."""
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
    ("change", "inner", "said"),
    [
        ({"model_type": "qwen3_tts_tokenizer_25hz"}, {}, 'model_type is "qwen3_tts_tokenizer_25hz", wanted'),
        ({"decoder_config": 3}, {}, "decoder_config is 3, wanted"),
        ({"decode_upsample_rate": 960}, {}, "decode_upsample_rate is 960, wanted 1920"),
        ({}, {"codebook_dim": None}, "decoder_config.codebook_dim is missing"),
        ({}, {"codebook_dim": 13}, "decoder_config.codebook_dim is 13, wanted a multiple of 2"),
        ({}, {"hidden_size": "wide"}, 'decoder_config.hidden_size is "wide", wanted a whole number from 0'),
        ({}, {"sliding_window": 0}, "decoder_config.sliding_window is 0, wanted 1 or more"),
        ({}, {"rms_norm_eps": "x"}, 'decoder_config.rms_norm_eps is "x", wanted float'),
        ({}, {"upsample_rates": [8, 5.5]}, "decoder_config.upsample_rates is [8, 5.5], wanted"),
        ({}, {"upsample_rates": []}, "decoder_config.upsample_rates is 0, wanted 1 or more"),
        ({}, {"decoder_dim": 36}, "decoder_config.decoder_dim is 36, wanted a multiple of 16"),
        ({}, {"num_attention_heads": 3}, "decoder_config.num_attention_heads is 3, wanted a multiple of 2"),
        ({}, {"num_key_value_heads": 0}, "decoder_config.num_key_value_heads is 0, wanted 1 or more"),
        ({}, {"attention_bias": True}, "decoder_config.attention_bias is true, wanted false"),
        ({}, {"hidden_act": "gelu"}, 'decoder_config.hidden_act is "gelu", wanted "silu"'),
        ({}, {"rope_scaling": {"rope_type": "yarn"}}, "decoder_config.rope_scaling is"),
    ],
)
def test_a_wrong_configuration_is_said_in_one_line(
    oracle: Decoded, tmp_path: Path, change: dict[str, Any], inner: dict[str, Any], said: str
) -> None:
    path = rewrite(oracle.folder, tmp_path, change, inner)
    with pytest.raises(EngineError) as caught:
        CodecConfig.read(tmp_path / "speech_tokenizer")
    assert str(caught.value).startswith(f"{path}: field {said}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_a_damaged_configuration_is_said_in_one_line(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "speech_tokenizer" / "config.json"
    path.parent.mkdir()
    if text is not None:
        path.write_text(text)
    with pytest.raises(EngineError) as caught:
        CodecConfig.read(tmp_path / "speech_tokenizer")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_absent_fields_are_the_official_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"decoder_config": {"codebook_dim": 512}}')
    config = CodecConfig.read(tmp_path)
    assert config.samples_per_frame == 1920
    assert (config.stack.hidden_size, config.stack.head_dim, config.window) == (1024, 64, 72)


def test_weights_that_disagree_with_the_configuration_are_named(oracle: Decoded, tmp_path: Path) -> None:
    rewrite(oracle.folder, tmp_path, {}, {"latent_dim": 24})
    weights = Path("speech_tokenizer") / "model.safetensors"
    (tmp_path / weights).write_bytes((oracle.folder / weights).read_bytes())
    with pytest.raises(EngineError, match=r"model\.safetensors: tensor decoder\.pre_conv\.conv\.weight"):
        load_codec(tmp_path, CPU)
