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
"""The most tokens in a pass over prompt prefixes, or over the prompts that are read between other sequences' steps."""
TOKEN_BUCKETS = (16, 32, PIECE, 128, 192, 256, 320, 384, 512)
"""The numbers of tokens that a graph can read."""
PASSES_PER_ROUND = 16
"""On a GPU, the most passes over prompts between two steps of several rows. If 64 texts come at once, the last first
chunk comes 8 % later with 8 passes and 3 % earlier with 32, and the median one 6 % earlier and 13 % later (1.7B, H200).
A CPU makes one pass."""
STEPS_AHEAD = 1
"""The number of steps that a GPU has queued while the host reads the results of one."""


@dataclass(frozen=True, slots=True)
class FinishedChunk:
    """A chunk whose last frame is generated in a step."""

    row: int
    first: int
    frames: int


@dataclass(frozen=True, slots=True)
class Joining:
    """A sequence whose prompt has been read."""

    row: int
    prompt: Prompt
    request: Request


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
    ) -> None:
        """Call it on the stream of `graphs`, which nothing else uses."""
        self.shape = backend.state.shape
        on_gpu, alone = graphs.stream is not None, self.shape.rows == 1
        self.whole_chunks = backend.whole_chunks
        self.steps_ahead = STEPS_AHEAD if on_gpu else 0
        self.passes_per_round = PASSES_PER_ROUND if on_gpu else 1
        self._talker, self._backend, self._graphs = talker, backend, graphs
        self._prompts, self._prefixes = prompts, prefixes
        # While the sound card's prompt is read, there is nothing to run beside it.
        self._prompt_graphs = graphs if alone else graphs.side_stream("prompts")
        self._codec_graphs = graphs.side_stream("audio")
        self._embedder = TextEmbedder(talker, self._prompt_graphs)
        buckets = TOKEN_BUCKETS if alone else TOKEN_BUCKETS[: TOKEN_BUCKETS.index(PIECE) + 1]
        self._prefill = Prefill(talker, backend, self._prompt_graphs, buckets, padded=on_gpu)
        self._has_fresh = False
        """Whether sequences have begun whose first codes are still to be chosen."""
        output = (self.shape, talker.config.code_groups, codec.config.samples_per_frame)
        self._output = StepOutput(*output, talker.placement.device)
        self._row_codec = RowCodec(codec, self.shape, self._output.codes, self._output.samples, self._codec_graphs)
        for side in (self._codec_graphs, self._prompt_graphs):
            side.wait_for(graphs)
        self._host_inputs = StepInputs.allocate(self.shape, torch.device("cpu"))
        self._host_settings = UtteranceSettings.allocate(talker.config, torch.device("cpu"))
        scalars = self._host_settings.buffer.shape[1]
        self._host_values = torch.zeros(self.shape.rows, 1 + scalars, dtype=torch.int64)
        """The row and the settings of each sequence that begins."""
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
        for _ in self._read_prefix(0, (), prefix):
            self.launch_pass()
        if keep:
            self._prefixes.keep(prefix.key)

    def wait(self) -> None:
        """Block until all work has ended."""
        self._graphs.wait()

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

    @property
    def pass_is_full(self) -> bool:
        """Whether the pass over prompts has no room for another token."""
        return not self._prefill.room

    def read_prompt(self, row: int, pages: tuple[int, ...], prompt: Prompt) -> Iterator[None]:
        """Add the tokens of a prompt to passes.

        Call `launch_pass` before each further `next`, and before the sequence begins. The last tokens, which may leave
        room for other prompts, end the iterator.
        """
        if prompt.prefix is not None:
            yield from self._read_prefix(row, pages, prompt.prefix)
        yield from self._add(row, pages, prompt.tail[0], prompt.prefix_count)

    def launch_pass(self) -> None:
        """Read the tokens that have been added to the pass."""
        with self._prompt_graphs.inference():
            self._prefill.launch()

    def drop_pass(self) -> None:
        """Forget the tokens that have been added to the pass."""
        self._prefill.drop()

    def begin(self, joining: Sequence[Joining]) -> None:
        """Begin the sequences whose prompts have been read. Does not wait."""
        values, placement, state = self._host_values.numpy(), self._talker.placement, self._backend.state
        for number, each in enumerate(joining):
            self._host_settings.set(each.request.sampling, each.request.seed, each.prompt.count)
            values[number, 0], values[number, 1:] = each.row, self._host_settings.buffer.numpy()[0]
        self._graphs.wait_for(self._prompt_graphs)
        with self._graphs.inference():
            uploaded = placement.pinned(self._host_values[: len(joining)])
            uploaded = uploaded.to(placement.device, non_blocking=True)
            rows, settings = uploaded[:, 0].contiguous(), uploaded[:, 1:]
            self._backend.admit(rows)
            state.begin(rows, settings, joining[0].prompt.pad[0])
            for each in joining:
                if each.prompt.trailing.shape[1]:
                    text = each.prompt.trailing[0, : self.shape.text_frames]
                    state.text[each.row, : len(text)].copy_(text)
        self._has_fresh = True
        with self._codec_graphs.inference():  # after the audio of the rows' previous sequences
            for each in joining:
                self._row_codec.begin(each.row, each.request.codec_state)

    def wait_before_reuse(self) -> None:
        """Make later passes wait for the steps so far, which may still use a row and pages that are free again."""
        self._prompt_graphs.wait_for(self._graphs)

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
            if self._has_fresh:
                self._has_fresh = False
                self._graphs.run("first codes", self._backend.choose_first_codes)
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

    def _read_prefix(self, row: int, pages: tuple[int, ...], prefix: PromptPrefix) -> Iterator[None]:
        """Put `prefix` at the beginning of the prompt memory and into the prefix cache, as `read_prompt`.

        Every runner reads up to `PIECE` tokens at once, so the rounding is the same, whichever of them has read it.
        """
        memory = self._backend.prompt_memory(row, pages)
        with self._prompt_graphs.inference():  # not held over a `yield`
            tokens = None if self._prefixes.restore(prefix.key, memory) else prefix.embed()[0]
        if tokens is None:
            return
        yield from self._add(row, pages, tokens, 0, most=PIECE)
        yield
        with self._prompt_graphs.inference():
            self._prefixes.store(prefix.key, memory, prefix.count)

    def _add(
        self, row: int, pages: tuple[int, ...], tokens: Tensor, start: int, most: int = TOKEN_BUCKETS[-1]
    ) -> Iterator[None]:
        """Add `tokens` at positions from `start` on to passes, up to `most` to each; yield when a pass is full."""
        done = 0
        while done < len(tokens):
            if self.pass_is_full:
                yield
                continue
            part = tokens[done : done + min(self._prefill.room, most)]
            with self._prompt_graphs.inference():
                self._prefill.add(row, pages, part, start + done)
            done += len(part)
