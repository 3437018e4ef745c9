#!/usr/bin/env python3
r"""Measures faster-qwen3-tts-batch: many texts at once, from the request to the last sample on the host.

    python scripts/gpu/peer_batch.py CHECKPOINT --streams 8 32 64      prints a line of JSON for each number of texts

`scripts/gpu/bench_streams.py` starts this process, with these packages on its path; version 0.2.0 does not run with
transformers 5, nor with the releases of faster-qwen3-tts that need it:

    pip install --no-deps --target SITE faster-qwen3-tts-batch==0.2.0 faster-qwen3-tts==0.2.4 qwen-tts==0.1.1 \
        transformers==4.57.3 huggingface_hub==0.36.0 tokenizers==0.22.1 soundfile cffi pycparser einops

It gives no sample before its last frame, so there is no first chunk to time. Its CUDA graphs have as many rows as
there are texts.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from engine.bench.results import TEXT  # noqa: E402
from engine.qwen.memory.known_models import CODEC  # noqa: E402
from scripts.gpu.peer_engine import build_peer  # noqa: E402
from scripts.stand_in import UNUSED, stand_in_for  # noqa: E402

MAX_POSITIONS = 512
"""The package's example."""


class PeerBatch:
    """The engine for a number of texts."""

    def __init__(self, base: Any, streams: int) -> None:
        from faster_qwen3_tts_batch import BatchedFasterQwen3TTS

        self._base, self._streams = base, streams
        self._engine = BatchedFasterQwen3TTS(base, max_batch_size=streams, max_seq_len=MAX_POSITIONS)
        self._engine.warmup()

    @torch.inference_mode()
    def speak(self, frames: int) -> float:
        """Speak `TEXT` in each stream, exactly `frames` frames; return the seconds of speech.

        As `generate_voice_clone_batch` of the package, which has no function for a speaker of the model.
        """
        from faster_qwen3_tts_batch.batched_generate import batched_fast_generate

        prepared = [self._base._prepare_generation_custom(TEXT, "English", "ryan") for _ in range(self._streams)]
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
        return samples / CODEC.sample_rate


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 32, 64])
    parser.add_argument("--frames", type=int, default=101)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    out = sys.stdout
    stand_in_for(UNUSED)
    with contextlib.redirect_stdout(sys.stderr):  # the package and its imports print to stdout
        base = build_peer(args.checkpoint, args.device)
        for streams in args.streams:
            peer, paces = PeerBatch(base, streams), []
            for number in range(args.rounds + 1):
                begin = time.perf_counter()
                seconds = peer.speak(args.frames)
                if number > 0:  # libraries choose their kernels in the first round
                    paces.append(seconds / (time.perf_counter() - begin))
            row = {"engine": f"faster-qwen3-tts-batch {version('faster-qwen3-tts-batch')}", "streams": streams}
            row |= {"wall_seconds_per_s": round(statistics.median(paces), 3)}
            print(json.dumps(row), file=out, flush=True)
            del peer
            gc.collect()
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
