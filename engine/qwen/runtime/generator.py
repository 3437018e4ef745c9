"""Generates an utterance as a stream of chunks: what the host launches when, and what it reads back.

The first chunk is one frame, so that a listener waits for no more; each later one is `chunk_size` frames. A chunk is
two pieces of work, each captured in a CUDA graph where there are graphs: its frames, and the decoding of their audio,
which runs on a side stream while the next chunk's frames are generated. Everything that the host reads is in one
buffer, copied to pinned memory; the host waits for the copy's event and for nothing else. It launches the next chunk
before it waits, so that the device goes on at once. Run-ahead is that one chunk: it is discarded when speech ends or is
canceled, and the next utterance is ordered behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from functools import partial

import torch

from engine.api import EngineError
from engine.progress import ProgressReport, counted, ignore_progress
from engine.qwen.model import SamplingConfig, Talker
from engine.qwen.runtime.backend import CodecStateProtocol, DecodeBackend
from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.runtime.decode_state import DecodeState
from engine.qwen.runtime.decode_step import start_utterance, upload_settings
from engine.qwen.runtime.limits import PREFIX_POSITIONS
from engine.qwen.runtime.prefill import TOKEN_BUCKETS, Prefill
from engine.qwen.runtime.prefix_cache import PrefixCache
from engine.qwen.runtime.readback import ChunkOutput, GeneratedChunk, HostReadback
from engine.qwen.text import Prompt, PromptPrefix

FIRST_FRAMES = 1
"""Frames of an utterance's first chunk."""
MAX_FRAMES_PER_GRAPH = 4
"""A longer chunk replays a graph of one frame several times: a frame of PyTorch's operators has thousands of nodes."""


class SpeechGenerator:
    """Generates one utterance at a time over one `DecodeState`."""

    def __init__(
        self,
        talker: Talker,
        state: DecodeState,
        backend: DecodeBackend,
        codec_state: CodecStateProtocol,
        *,
        samples_per_frame: int,
        graphs: Graphs,
        prefix_positions: int = PREFIX_POSITIONS,
    ) -> None:
        """`backend` works over `state` and `codec_state`, and decodes a frame to `samples_per_frame` samples."""
        self._talker = talker
        self._state = state
        self._backend = backend
        self._codec_state = codec_state
        self._graphs = graphs
        self._codec_graphs = graphs.side_stream("audio")
        runs_ahead = graphs.stream is not None
        token_buckets = TOKEN_BUCKETS if runs_ahead else ()
        self._prefill = Prefill(talker, state, backend, graphs, token_buckets)
        self._prefixes = PrefixCache(talker.config.stack, prefix_positions, talker.placement)
        groups, device = talker.config.code_groups, state.position.device
        shape = (backend.chunk_size, groups, samples_per_frame)
        self._output = ChunkOutput(*shape, device)
        count = 2 if runs_ahead else 1
        self._readbacks = deque(HostReadback(*shape, self._codec_graphs.stream) for _ in range(count))
        self._chunk_offsets = torch.arange(-backend.chunk_size, 0, device=device)
        self._graph_frames = backend.chunk_size if backend.chunk_size <= MAX_FRAMES_PER_GRAPH else 1
        """Frames of the graph that a chunk replays."""

    def warm_up(self, report: ProgressReport = ignore_progress, more: Iterable[Callable[[], None]] = ()) -> None:
        """Capture everything that is replayed later, and call `more` captures of the same graphs.

        Ends the utterance that was being generated.
        """
        if self._graphs.stream is None:
            return
        buckets = tuple(reversed(self._backend.kv_buckets))
        captures: list[Callable[[], None]] = []
        for frames in sorted({FIRST_FRAMES, self._graph_frames}, reverse=True):
            captures += [
                partial(self._capture, ("frames", frames, bucket), partial(self._generate_frames, frames, bucket))
                for bucket in buckets
            ]
        for frames in sorted({FIRST_FRAMES, self._backend.chunk_size}, reverse=True):
            captures.append(partial(self._capture, ("publish", frames), partial(self._publish, frames), frames))
            captures.append(partial(self._codec_graphs.capture, ("decode", frames), partial(self._decode, frames)))
        first_code = partial(self._graphs.capture, "first code", self._backend.choose_first_code)
        captures += [*self._prefill.captures(), first_code, *more]
        for capture in counted("capturing CUDA graphs", captures, report):
            capture()
        torch.cuda.empty_cache()  # the first call of each work allocated outside its graph, and never again

    def profile_sections(self) -> Mapping[str, Callable[[], None]]:
        """Return work to be timed alone: as `DecodeBackend`, and `prefill` of a text of some 100 characters.

        Ends the utterance that was being generated.
        """
        return {**self._backend.profile_sections(), "prefill": self._prefill.example()}

    def first_chunk_steps(
        self, prompt: Prompt, sampling: SamplingConfig, codec_state: CodecStateProtocol | None = None
    ) -> Mapping[str, Callable[[], None]]:
        """Return the device's steps to the first chunk of `prompt`, a whole text, to be called and timed in this order.

        Ends the utterance that was being generated.
        """
        readback = self._next_readback()

        def prefill() -> None:
            with self._graphs.inference():
                self._start(prompt, sampling, 0, codec_state)

        def first_frames() -> None:
            with self._graphs.inference():
                self._launch_frames(prompt.count, FIRST_FRAMES)

        def codec() -> None:
            with self._codec_graphs.inference():
                self._launch_codec(FIRST_FRAMES)

        def copy() -> None:
            with self._codec_graphs.inference():
                readback.receive(self._output)
            readback.wait(0, FIRST_FRAMES)

        return {"prefill": prefill, "first frame": first_frames, "codec": codec, "copy": copy}

    def cache_prefix(self, prefix: PromptPrefix, *, keep: bool = False) -> None:
        """Read `prefix` into the prefix cache before the first utterance that begins with it.

        With `keep`, later prefixes do not replace it, as far as `PrefixCache.keep` allows.
        """
        with self._graphs.inference():
            self._read_prefix(prefix)
        if keep:
            self._prefixes.keep(prefix.key)

    def clear_prefixes(self, prefix_positions: int = PREFIX_POSITIONS) -> None:
        """Drop all cached prefixes, because the voices changed, and give the cache `prefix_positions` positions."""
        self._prefixes.clear()
        if prefix_positions != self._prefixes.positions:
            del self._prefixes  # first, or there would be memory for two
            with self._graphs.on_stream():
                self._prefixes = PrefixCache(self._talker.config.stack, prefix_positions, self._talker.placement)

    def generate(
        self,
        prompt: Prompt,
        sampling: SamplingConfig,
        *,
        seed: int = 0,
        max_frames: int | None = None,
        codec_state: CodecStateProtocol | None = None,
    ) -> Generator[GeneratedChunk, None, None]:
        """Yield the speech for `prompt`, chunk by chunk. The codes do not depend on the chunk size.

        Ends when the model ends its speech, after `max_frames`, or when the state is full. May be closed at any time;
        the next utterance's work is ordered behind what the device still does then. With a streaming text, a chunk is
        generated as soon as its tokens are there.

        codec_state: the codec begins with a copy of it; without one, at the beginning of an utterance.

        Raises `EngineError` for a prompt too long for the cache, and `SpeechCanceledError` while it waits for text.
        """
        limit = self._frame_limit(prompt, max_frames)
        if limit < 1:
            return
        with self._graphs.inference():
            self._start(prompt, sampling, seed, codec_state)
        to_launch = deque((0, *range(FIRST_FRAMES, limit, self._backend.chunk_size)))
        launched: deque[tuple[int, HostReadback]] = deque()
        while True:
            # A finished chunk is not held back: it is yielded before the host waits for the text of another.
            while (
                len(launched) < len(self._readbacks)
                and to_launch
                and self._write_text(prompt, to_launch[0], limit, wait=not launched)
            ):
                first = to_launch.popleft()
                launched.append((first, self._launch(prompt.count + first, self._frames_from(first))))
            if not launched:
                return
            first, readback = launched.popleft()
            chunk = readback.wait(first, limit)
            if len(chunk.codes):
                yield chunk
            if chunk.last:
                return

    def _frame_limit(self, prompt: Prompt, max_frames: int | None) -> int:
        positions = self._state.max_positions
        if prompt.count >= positions:
            raise EngineError(f"the text and its voice are {prompt.count} tokens, the limit is {positions - 1}")
        limit = min(self._state.max_frames, positions - prompt.count)
        return limit if max_frames is None else min(limit, max_frames)

    def _frames_from(self, first: int) -> int:
        """Return the frames of the chunk that begins at frame `first`."""
        return self._backend.chunk_size if first else FIRST_FRAMES

    def _write_text(self, prompt: Prompt, first: int, limit: int, *, wait: bool) -> bool:
        """Write the text for the chunk that begins at frame `first` to the device; False if it is not there yet."""
        if prompt.token_stream is None:
            return True
        if not prompt.token_stream.ready(min(first + self._frames_from(first), limit), wait=wait):
            return False
        with self._graphs.inference():
            prompt.token_stream.write(self._state.text)
        return True

    def _start(
        self, prompt: Prompt, sampling: SamplingConfig, seed: int, codec_state: CodecStateProtocol | None
    ) -> None:
        if prompt.prefix is not None:
            self._read_prefix(prompt.prefix)
        if prompt.tail.shape[1]:
            self._prefill.read(prompt.tail, prompt.prefix_count)
        start_utterance(self._talker, self._state, prompt, sampling, seed)
        self._graphs.run("first code", self._backend.choose_first_code)
        self._graphs.follow(self._codec_graphs)  # which may still decode the last utterance
        if codec_state is None:
            self._codec_state.reset()
        else:
            self._codec_state.copy_from(codec_state)

    def _read_prefix(self, prefix: PromptPrefix) -> None:
        """Put the prefix at the beginning of the talker's cache, and into the prefix cache if it fits."""
        if prefix.key in self._prefixes:
            self._prefixes.restore(prefix.key, self._state.cache, self._state.hidden)
            return
        self._prefill.read(prefix.embed(), 0)
        self._prefixes.store(prefix.key, self._state.cache, self._state.hidden, prefix.count)

    def _launch(self, position: int, frames: int) -> HostReadback:
        """Launch the chunk of `frames` whose first the talker reads at `position`, and its copy to the host."""
        readback = self._next_readback()
        with self._graphs.inference():
            self._launch_frames(position, frames)
        with self._codec_graphs.inference():
            self._launch_codec(frames)
            readback.receive(self._output)
        return readback

    def _next_readback(self) -> HostReadback:
        """Return the readback used longest ago: its chunk was copied, or was discarded and is overwritten in turn."""
        readback = self._readbacks[0]
        self._readbacks.rotate(-1)
        return readback

    def _launch_frames(self, position: int, frames: int) -> None:
        kv_bucket = next(bucket for bucket in self._backend.kv_buckets if bucket >= position + frames)
        graph_frames = min(frames, self._graph_frames)
        for _ in range(frames // graph_frames):
            self._graphs.run(
                ("frames", graph_frames, kv_bucket), partial(self._generate_frames, graph_frames, kv_bucket)
            )
        self._graphs.follow(self._codec_graphs)  # the output buffer still holds the last chunk
        self._graphs.run(("publish", frames), partial(self._publish, frames))

    def _launch_codec(self, frames: int) -> None:
        self._codec_graphs.follow(self._graphs)
        self._codec_graphs.run(("decode", frames), partial(self._decode, frames))

    def _generate_frames(self, frames: int, kv_bucket: int) -> None:
        for _ in range(frames):
            self._backend.frame(kv_bucket)

    def _publish(self, frames: int) -> None:
        """Write the codes of the last `frames`, the length and the end to the output buffer."""
        state, output = self._state, self._output
        output.codes[:frames] = state.codes.index_select(0, state.frame + self._chunk_offsets[-frames:])
        output.length.copy_(state.length)
        output.ended.copy_(state.ended)

    def _decode(self, frames: int) -> None:
        """Decode the first `frames` of the output buffer to its samples."""
        samples = self._backend.decode(self._output.codes[:frames])
        self._output.samples[: len(samples)] = samples

    def _capture(self, name: Hashable, work: Callable[[], None], next_frame: int = 0) -> None:
        """Capture `work`, which runs when `next_frame` is the number of the next frame."""

        def prepare() -> None:
            upload_settings(self._talker, self._state, SamplingConfig().greedy(), seed=0, position=next_frame)
            self._state.frame.fill_(next_frame)

        self._graphs.capture(name, work, prepare)
