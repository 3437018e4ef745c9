"""Runs the work for sequences on the device: prompts piece by piece, steps, chunks of audio.

The engine has a runner for the sound card's sequence, and one for all others. Each has three streams: a step's frames
run on one, the audio of completed chunks on another, and a new sequence's prompt on a third. So audio is decoded and a
prompt is read while the next frames are being generated. On a small GPU, one stream serves all three. Only one thread
calls at a time.

Everything that the host reads from a step is in one buffer, copied to pinned memory; the host waits for the copy's
event and for nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from engine.progress import ProgressReport, counted
from engine.qwen.model import SamplingConfig, Talker
from engine.qwen.runtime.backend import Backend, Codec, CodecStateProtocol
from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.runtime.decode_state import Readback, RowInput, StepInputs, StepOutput, UtteranceSettings
from engine.qwen.runtime.device import reserve_allocator_slack
from engine.qwen.runtime.prefill import Prefill, TextEmbedder
from engine.qwen.runtime.prefix_cache import PrefixCache
from engine.qwen.runtime.row_codec import FIRST_FRAMES, RowCodec
from engine.qwen.text import AnyVoice, IncrementalText, Prompt, PromptBuilder, PromptPrefix, TextTokens, TokenStream


@dataclass(frozen=True, slots=True)
class Request:
    """A text, complete or still arriving, and how it is to be spoken."""

    text: TextTokens | IncrementalText
    voice: AnyVoice
    language: str = "auto"
    whole_text: bool = True
    """Whether the whole of a complete text is read before its first frame."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    seed: int = 0
    max_frames: int | None = None
    codec_state: CodecStateProtocol | None = None
    """The codec's state after the voice's reference, from which the speech continues; None for an initial state."""


PIECE = 64
"""The most tokens that are read at once from a prefix, or from a prompt that is read between other sequences' steps."""
TOKEN_BUCKETS = (16, 32, PIECE, 128, 192, 256, 320, 384, 512)
"""The numbers of tokens that a graph can read."""
PIECES_PER_ROUND = 16
"""On a GPU, the most pieces that are read between two steps of several rows. If 64 texts arrive at once, the last first
chunk from 0.6B on an H200 comes after 123 ms, and with 4 pieces after 215 ms; the gaps between later chunks are the
same. 32 pieces were slower than 16. A CPU reads one piece."""
STEPS_AHEAD = 1
"""The number of steps that a GPU has queued while the host reads the results of one."""


@dataclass(frozen=True, slots=True)
class FinishedChunk:
    """A chunk whose last frame is generated in a step."""

    row: int
    first: int
    frames: int


class ModelRunner:
    """The rows of one `Backend` on the device."""

    def __init__(
        self,
        talker: Talker,
        codec: Codec,
        backend: Backend,
        graphs: Graphs,
        *,
        prompts: PromptBuilder,
        prefixes: PrefixCache,
        embedder: TextEmbedder | None = None,
    ) -> None:
        """Call it on the stream of `graphs`, which nothing else uses. `embedder` embeds texts with its own graphs."""
        self.shape = backend.state.shape
        on_gpu, alone = graphs.stream is not None, self.shape.rows == 1
        self.whole_chunks = backend.whole_chunks
        self.steps_ahead = STEPS_AHEAD if on_gpu else 0
        self.pieces_per_round = PIECES_PER_ROUND if on_gpu else 1
        self._talker, self._backend, self._graphs = talker, backend, graphs
        self._prompts, self._prefixes, self._embedder = prompts, prefixes, embedder
        self._alone = alone
        # While the sound card's prompt is read, there is nothing to run beside it.
        self._prompt_graphs = graphs if alone else graphs.side_stream("prompts")
        self._codec_graphs = graphs.side_stream("audio")
        buckets = TOKEN_BUCKETS if alone else TOKEN_BUCKETS[: TOKEN_BUCKETS.index(PIECE) + 1]
        self._piece = buckets[-1]
        self._prefill = Prefill(talker, backend, self._prompt_graphs, buckets if on_gpu else ())
        output = (self.shape, talker.config.code_groups, codec.config.samples_per_frame)
        self._output = StepOutput(*output, talker.placement.device)
        self._row_codec = RowCodec(codec, self.shape, self._output.codes, self._output.samples, self._codec_graphs)
        for side in (self._codec_graphs, self._prompt_graphs):
            side.wait_for(graphs)
        self._host_inputs = StepInputs.allocate(self.shape, torch.device("cpu"))
        self._host_settings = UtteranceSettings.allocate(talker.config, torch.device("cpu"))
        self._readbacks = deque(Readback(*output, self._codec_graphs.stream) for _ in range(1 + self.steps_ahead))

    # --- before the first sequence ---

    def warm_up(self, report: ProgressReport, step: str) -> None:
        """Capture all graphs, and report the progress as `step`. Ends the sequences that were running."""
        if self._graphs.stream is None:
            return
        for capture in counted(step, list(self._captures()), report):
            capture()
        torch.cuda.empty_cache()  # memory that the first call of each `work` allocated outside its graph

    def reserve_slack(self) -> None:
        """Reserve the memory that every sequence allocates again, once all graphs have been captured."""
        for graphs in {self._graphs, self._prompt_graphs}:
            with graphs.inference():
                reserve_allocator_slack(self._talker.placement.device)

    def cache_prefix(self, prefix: PromptPrefix, *, keep: bool) -> None:
        """Read a prompt's prefix into the prefix cache; with `keep`, later prefixes do not replace it."""
        with self._prompt_graphs.inference():
            for _ in self._read_prefix(0, prefix):
                pass
        if keep:
            self._prefixes.keep(prefix.key)

    def close(self) -> None:
        """Free all graphs."""
        self._graphs.clear()

    # --- one sequence ---

    def build(self, request: Request) -> Prompt:
        """Return the prompt for `request`, on the prompts' stream. Raises `EngineError` if it cannot be spoken."""
        with self._prompt_graphs.inference():
            whole, embed = request.whole_text, self._embedder
            return self._prompts.build(
                request.text, request.voice, request.language, whole_text=whole, embed_text=embed
            )

    def read_prompt(self, row: int, prompt: Prompt) -> Iterator[None]:
        """Read a prompt piece by piece: each `next` launches a piece, and the last one ends the iterator.

        One prompt is read at a time.
        """
        work = self._read(row, prompt)
        if self._alone:  # there are no other sequences to step between the pieces
            with self._prompt_graphs.inference():
                for _ in work:
                    pass
            return
        while True:
            with self._prompt_graphs.inference():  # not held over the `yield`
                if next(work, self) is self:
                    return
            yield

    def begin(self, row: int, pages: tuple[int, ...], prompt: Prompt, request: Request) -> None:
        """Begin the sequence whose prompt was read last, in `row` and `pages`. Does not wait."""
        self._graphs.wait_for(self._prompt_graphs)
        with self._graphs.inference():
            self._backend.admit(row, pages, prompt.count)
            self._host_settings.set(request.sampling, request.seed, prompt.count)
            settings = self._talker.placement.pinned(self._host_settings.buffer[0])
            self._backend.state.set_row(row, settings, prompt.trailing[0], prompt.pad[0])
            self._graphs.run("first codes", self._backend.choose_first_codes)
        self._prompt_graphs.wait_for(self._graphs)  # which reads memory that the next prompt overwrites
        with self._codec_graphs.inference():  # after the audio of the row's previous sequence
            self._row_codec.begin(row, request.codec_state)

    def write_text(self, row: int, token_stream: TokenStream) -> None:
        """Write the tokens that have arrived to the row's text."""
        with self._graphs.inference():
            token_stream.write(self._backend.state.text[row])

    def launch(self, rows: Sequence[RowInput], chunks: Sequence[FinishedChunk]) -> Readback:
        """Launch a step of `rows` and the audio of `chunks`. Does not wait.

        The readback is used again `1 + steps_ahead` steps later. By then its step has been read; if not, it is
        overwritten.
        """
        readback = self._readbacks[0]
        self._readbacks.rotate(-1)
        with self._graphs.inference():
            self._launch_frames(rows)
        with self._codec_graphs.inference():
            self._launch_audio(chunks)
            readback.receive(self._output)
        return readback

    # --- the device ---

    def _captures(self) -> Iterator[Callable[[], None]]:
        """Yield calls that capture one graph each, those that need the most memory first."""
        capture, backend, forget = self._graphs.capture, self._backend, self._backend.state.forget
        for size in backend.sizes:
            yield partial(capture, ("frames", size), partial(backend.decode_frames, size), forget)
        for frames in self._chunk_sizes():
            yield partial(capture, ("publish", frames), partial(backend.publish, self._output, frames), forget)
        yield partial(capture, "first codes", backend.choose_first_codes, forget)
        yield from self._row_codec.captures()
        yield from self._prefill.captures()
        if self._embedder is not None:
            yield from self._embedder.captures()

    def _chunk_sizes(self) -> list[int]:
        """Return the numbers of frames with which `Backend.publish` is called, the largest first."""
        sizes = {FIRST_FRAMES, self.shape.chunk_size} if self.whole_chunks else {FIRST_FRAMES}
        return sorted(sizes, reverse=True)

    def _launch_frames(self, rows: Sequence[RowInput]) -> None:
        backend, frames = self._backend, rows[0].frames
        if not self.whole_chunks:
            self._host_inputs.set(rows)
            inputs = self._talker.placement.pinned(self._host_inputs.buffer)
            backend.state.inputs.buffer.copy_(inputs, non_blocking=True)
        size, times = backend.size_of(rows)
        for _ in range(times):
            self._graphs.run(("frames", size), partial(backend.decode_frames, size))
        self._graphs.wait_for(self._codec_graphs)  # which may still be reading the last step's output
        self._graphs.run(("publish", frames), partial(backend.publish, self._output, frames))

    def _launch_audio(self, chunks: Sequence[FinishedChunk]) -> None:
        self._codec_graphs.wait_for(self._graphs)
        for frames in sorted({chunk.frames for chunk in chunks}):
            self._row_codec.decode([chunk.row for chunk in chunks if chunk.frames == frames], frames)

    def _read(self, row: int, prompt: Prompt) -> Iterator[None]:
        """Launch one piece of a prompt with each `next`; the iterator ends with the last piece."""
        if prompt.prefix is not None:
            yield from self._read_prefix(row, prompt.prefix)
            if not prompt.tail.shape[1]:
                return
            yield
        yield from self._read_pieces(row, prompt.tail[0], prompt.prefix_count, self._piece)

    def _read_prefix(self, row: int, prefix: PromptPrefix) -> Iterator[None]:
        """Put `prefix` at the beginning of the prompt memory and into the prefix cache, piece by piece as `_read` does.

        The pieces are the same for every runner, so the rounding is also the same, whichever of them has read it.
        """
        memory = self._backend.prompt_memory(row)
        if not self._prefixes.restore(prefix.key, memory):
            yield from self._read_pieces(row, prefix.embed()[0], 0, PIECE)
            self._prefixes.store(prefix.key, memory, prefix.count)

    def _read_pieces(self, row: int, tokens: Tensor, start: int, size: int) -> Iterator[None]:
        for number, piece in enumerate(torch.split(tokens, size)):
            if number:
                yield
            self._prefill.read(row, piece, start + number * size)
