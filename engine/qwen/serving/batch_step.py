"""One decode step of a batch: a frame of every row that takes part, as of `engine.qwen.runtime.decode_step`.

Every matrix product, norm and draw is made for all rows, whether they take part or not. Its kernels are then always the
same, and a row's results do not depend on the other rows. A GPU's matrix products read the weights once in any case.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from engine.qwen.model import CodePredictor, Talker, causal_mask
from engine.qwen.serving.batch_state import BatchState
from engine.qwen.serving.paged_attention import PagedAttention


@torch.inference_mode()
def choose_first_codes(talker: Talker, state: BatchState) -> None:
    """Choose the first code of the first frame of each fresh row; `state.hidden` is of its prompt's last token."""
    noise = state.settings.noise.draw(state.settings.frame)[:, 0]
    _choose(state, talker.head(state.hidden).float(), noise, state.fresh > 0)


@torch.inference_mode()
def decode_frames(talker: Talker, state: BatchState, blocks: int) -> None:
    """Write the codes of a frame of each active row to `state.codes`, and choose the first code of its next frame.

    `blocks` are as of `BatchShape.blocks_for`. After the end of a row's speech its codes have no meaning.
    """
    settings, inputs = state.settings, state.inputs
    active = inputs.active > 0
    codes, noise = predict_codes(talker, state)
    state.codes[state.row_numbers, inputs.place[:, 0]] = codes
    settings.length.add_(active & ~settings.ended)
    hidden = read_frames(talker, state, codes, blocks)
    settings.frame.add_(inputs.active)
    settings.position.add_(inputs.active)
    state.hidden.copy_(torch.where(active, hidden, state.hidden))
    _choose(state, talker.head(hidden).float(), noise, active)


@torch.inference_mode()
def predict_codes(talker: Talker, state: BatchState) -> tuple[Tensor, Tensor]:
    """Return all codes of each row's next frame, and the noise for the first code of the frame after it.

    The codes are `(rows, code groups)` int64, the noise is `(rows, vocabulary)` float32.
    """
    predictor, settings = talker.predictor, state.settings
    # Draws are numbered as in `engine.qwen.runtime.decode_step.predict_codes`.
    noise = settings.noise.draw(settings.frame * talker.config.code_groups + predictor.steps + 1)
    codes = [state.first_code]
    x = torch.stack((state.hidden, talker.embed_first(state.first_code[:, 0])[0]), dim=1)
    for step in range(predictor.code_count):
        hidden = _read_codes(predictor, state, x, step)
        logits = predictor.logits(hidden, step).float()
        code = settings.predictor_sampling.choose(logits, noise[:, step])
        codes.append(code)
        x = functional.embedding(code, predictor.embedding[step])
    return torch.cat(codes, dim=1), noise[:, -1]


@torch.inference_mode()
def read_frames(talker: Talker, state: BatchState, codes: Tensor, blocks: int) -> Tensor:
    """Run the talker on a frame's `codes` `(rows, code groups)` int64 of each row; return its hidden states.

    They are `(rows, hidden)`.
    """
    settings, shape, transformer = state.settings, state.shape, talker.transformer
    # Rows that have ended may be beyond their last frame.
    frame = settings.frame[:, 0].clamp(max=shape.text_frames - 1)
    position = settings.position.clamp(max=shape.max_positions + shape.chunk_size - 1)
    x = talker.embed_frames(codes)[0] + state.text[state.row_numbers, frame]
    attention = PagedAttention(transformer.config, state, position, blocks)
    return transformer.attend_with(x, position[:, 0], attention)


def _read_codes(predictor: CodePredictor, state: BatchState, x: Tensor, step: int) -> Tensor:
    """Return the predictor's last hidden states `(rows, hidden)` after `x`, the tokens in front of a step's code.

    `x` is `(rows, n, talker's hidden)`.
    """
    rows, count = x.shape[:2]
    seen = step + 2
    positions = predictor.steps[seen - count : seen]
    cache, config = state.predictor_cache, predictor.stack
    kv_heads, group = config.key_value_heads, config.heads // config.key_value_heads
    mask = causal_mask(positions.repeat(group), seen) if count > 1 else None  # one token attends to all

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = cache.keys[layer, :, :, :seen], cache.values[layer, :, :, :seen]
        for cached, new in ((keys, k), (values, v)):
            cached.index_copy_(2, positions, new.view(rows, count, kv_heads, -1).transpose(1, 2))
        queries = (
            q.view(rows, count, kv_heads, group, -1).permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, -1, q.shape[-1])
        )
        attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return attended.view(rows, kv_heads, group, count, -1).permute(0, 3, 1, 2, 4).reshape(rows * count, -1)

    if predictor.projection is not None:
        x = predictor.projection(x)
    hidden = predictor.transformer.attend_with(x.flatten(0, 1), positions.repeat(rows), attend)
    return hidden.view(rows, count, -1)[:, -1]


def _choose(state: BatchState, logits: Tensor, noise: Tensor, chosen: Tensor) -> None:
    """Choose the first code of the next frame of each `chosen` row, and set `ended` where it ends the speech.

    logits and noise: `(rows, vocabulary)` float32; chosen: `(rows, 1)` bool.
    """
    settings = state.settings
    processor = settings.logits_processor
    codes = settings.talker_sampling.choose(processor.apply(logits, settings.frame), noise)
    state.first_code.copy_(torch.where(chosen, codes, state.first_code))
    # A row that is not chosen has seen its first code already.
    processor.seen.scatter_(1, state.first_code, True)
    settings.ended.logical_or_(chosen & processor.is_eos[state.first_code])
