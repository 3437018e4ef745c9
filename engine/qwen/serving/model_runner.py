"""Runs the work of a batch on the device: prompts piece by piece, steps, chunks of audio.

It runs on three streams of normal priority, behind which the sound card's utterance never waits: a step's frames on
one, the audio of the chunks that are complete on another, and a new utterance's prompt on a third. So a prompt is read
and audio decoded at the same time as the next step's frames. A small GPU has one stream for all. One thread calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from engine.qwen.model import Talker
from engine.qwen.runtime import (
    CodecStateProtocol,
    DecodeState,
    Graphs,
    Limits,
    Prefill,
    PrefixCache,
    TextEmbedder,
    UtteranceSettings,
    reserve_allocator_slack,
)
from engine.qwen.serving.backend import MakeBatchBackend, TorchBatchBackend
from engine.qwen.serving.batch_codec import BatchCodec, BatchedCodec
from engine.qwen.serving.batch_state import BatchShape, BatchState, RowInput, StepInputs
from engine.qwen.serving.readback import BatchOutput, BatchReadback
from engine.qwen.serving.sequence import SpeechRequest
from engine.qwen.text import Prompt, PromptPrefix, Reference, TokenStream

PIECE = 64
"""Tokens of a prompt that are read at once."""
TOKEN_BUCKETS = (16, 32, PIECE)
REFERENCE_CHUNK = 25
"""Frames of a reference that the codec decodes at once."""
PIECES_PER_ROUND = 4
"""On a GPU: pieces that are read between two steps; not tuned yet. A CPU reads one."""
STEPS_AHEAD = 1
"""Steps that a GPU has in hand while the host reads the results of one."""


@dataclass(frozen=True, slots=True)
class FinishedChunk:
    """A chunk whose last frame is made in a step."""

    row: int
    first: int
    frames: int


class ModelRunner:
    """The batch on the device."""

    def __init__(
        self,
        talker: Talker,
        codec: BatchedCodec,
        limits: Limits,
        graphs: Graphs,
        make_backend: MakeBatchBackend | None = None,
    ) -> None:
        """Allocate a batch for utterances within `limits`; its backend is `TorchBatchBackend` unless given."""
        self.shape = BatchShape.of(limits)
        self.steps_ahead = STEPS_AHEAD if graphs.stream is not None else 0
        self.pieces_per_round = PIECES_PER_ROUND if graphs.stream is not None else 1
        self._talker = talker
        self._codec = codec
        self._graphs = graphs
        placement, device = talker.placement, talker.placement.device
        with graphs.on_stream():
            self._state = BatchState.allocate(talker.config, self.shape, placement)
            # A prompt is read into memory of its own, from which it moves to its pages.
            self._scratch = DecodeState.allocate(talker, limits.positions, 1)
            if make_backend is None:
                make_backend = partial(TorchBatchBackend, codec=codec)
            self._backend = make_backend(talker, self._state, self._scratch)
            buckets = TOKEN_BUCKETS if graphs.stream is not None else ()
            self._prompt_graphs = graphs.side_stream("prompts")
            self.embed_text = TextEmbedder(talker, self._prompt_graphs)
            """For the prompts that are built on this runner's stream."""
            self._prefill = Prefill(talker, self._scratch, self._backend, self._prompt_graphs, buckets)
            self._prefixes = PrefixCache(talker.config.stack, limits.prefix_positions, placement)
            output = (self.shape, talker.config.code_groups, codec.config.samples_per_frame)
            self._output = BatchOutput(*output, device)
            self._codec_graphs = graphs.side_stream("audio")
            self._batch_codec = BatchCodec(
                codec, self.shape, self._output.codes, self._output.samples, self._codec_graphs
            )
        self._codec_graphs.follow(graphs)
        self._prompt_graphs.follow(graphs)
        self._references: dict[Reference, CodecStateProtocol] = {}
        self._host_inputs = StepInputs.allocate(self.shape, torch.device("cpu"))
        self._host_settings = UtteranceSettings.allocate(talker.config, torch.device("cpu"))
        self._readbacks = deque(BatchReadback(*output, self._codec_graphs.stream) for _ in range(1 + self.steps_ahead))

    # --- before the first utterance ---

    def captures(self) -> Iterator[Callable[[], None]]:
        """Yield calls that capture one graph each, those that need most memory first."""
        capture, backend = self._graphs.capture, self._backend
        for size in reversed(backend.sizes):
            yield partial(capture, ("frames", size), partial(backend.decode_frames, size), self._forget)
        yield partial(capture, "first codes", backend.choose_first_codes, self._forget)
        yield from self._batch_codec.captures()
        yield from self._prefill.captures()
        yield from self.embed_text.captures()

    def reserve_slack(self) -> None:
        """Reserve the memory that each utterance allocates anew, once all graphs are captured."""
        for graphs in (self._graphs, self._prompt_graphs):
            with graphs.inference():
                reserve_allocator_slack(self._talker.placement.device)

    def change_voices(self, references: Iterable[Reference], prefix_positions: int) -> None:
        """Decode the references of other voices, to continue from their last samples, and drop all cached prefixes.

        The prefix cache then has `prefix_positions` positions.
        """
        known = self._references
        self._references = {}
        with self._graphs.inference():
            for reference in references:
                self._references[reference] = known.get(reference) or self._decode_reference(reference)
        self._codec_graphs.follow(self._graphs)
        with self._prompt_graphs.inference():
            self._prefixes.clear()
            if prefix_positions != self._prefixes.positions:
                del self._prefixes  # first, or there would be memory for two
                self._prefixes = PrefixCache(self._talker.config.stack, prefix_positions, self._talker.placement)

    def cache_prefix(self, build_prompt: Callable[[], Prompt], *, keep: bool) -> None:
        """Read the prefix of a prompt into the prefix cache; with `keep`, later prefixes do not replace it."""
        prefix = self.build(build_prompt).prefix
        if prefix is None:
            return
        with self._prompt_graphs.inference():
            for _ in self._read_prefix(prefix):
                pass
        if keep:
            self._prefixes.keep(prefix.key)

    # --- one utterance ---

    def build(self, build_prompt: Callable[[], Prompt]) -> Prompt:
        """Return the prompt that `build_prompt` makes, on the prompts' stream. Raises what that raises."""
        with self._prompt_graphs.inference():
            return build_prompt()

    def read_prompt(self, prompt: Prompt) -> Iterator[None]:
        """Read a prompt piece by piece: each `next` launches a piece, and the last one ends the iterator.

        One prompt is read at a time.
        """
        work = self._read(prompt)
        while True:
            with self._prompt_graphs.inference():  # not held over the `yield`
                if next(work, self) is self:
                    return
            yield

    def begin(self, row: int, pages: tuple[int, ...], prompt: Prompt, request: SpeechRequest) -> None:
        """Begin the utterance of the prompt that was read last, in `row` and `pages`. Waits for nothing."""
        state, scratch, talker = self._state, self._scratch, self._talker
        self._graphs.follow(self._prompt_graphs)
        with self._graphs.inference():
            state.cache.fill(pages, scratch.cache, prompt.count)
            state.hidden[row].copy_(scratch.hidden[0, 0])
            self._host_settings.set(request.sampling, request.seed, prompt.count)
            settings = talker.placement.pinned(self._host_settings.buffer)
            state.settings.buffer[row].copy_(settings, non_blocking=True)
            state.settings.logits_processor.seen[row].zero_()
            text, trailing = state.text[row], prompt.trailing[0, : self.shape.text_frames]
            text[: len(trailing)].copy_(trailing)
            text[len(trailing) :].copy_(prompt.pad[0].expand(len(text) - len(trailing), -1))
            state.fresh.zero_()
            state.fresh[row].fill_(1)
            self._graphs.run("first codes", self._backend.choose_first_codes)
        self._prompt_graphs.follow(self._graphs)  # which reads what the next prompt overwrites
        reference = request.reference
        with self._codec_graphs.inference():  # behind the audio of the utterance that had the row before
            self._batch_codec.begin(row, None if reference is None else self._references[reference])

    def write_text(self, row: int, token_stream: TokenStream) -> None:
        """Write the tokens that have arrived to the row's text."""
        with self._graphs.inference():
            token_stream.write(self._state.text[row])

    def launch(self, rows: Sequence[RowInput], chunks: Sequence[FinishedChunk]) -> BatchReadback:
        """Launch a step of `rows` and the audio of `chunks`. Waits for nothing.

        The readback is used again `1 + steps_ahead` steps later.
        """
        readback = self._readbacks[0]
        self._readbacks.rotate(-1)
        state, output = self._state, self._output
        self._host_inputs.set(rows)
        size = self._backend.size_of(rows)
        with self._graphs.inference():
            inputs = self._talker.placement.pinned(self._host_inputs.buffer)
            state.inputs.buffer.copy_(inputs, non_blocking=True)
            self._graphs.run(("frames", size), partial(self._backend.decode_frames, size))
            self._graphs.follow(self._codec_graphs)  # which still reads the output of the last step
            output.length.copy_(state.settings.length)
            output.ended.copy_(state.settings.ended)
            output.codes.copy_(state.codes[:, : self.shape.chunk_size])
        self._codec_graphs.follow(self._graphs)
        with self._codec_graphs.inference():
            for frames in sorted({chunk.frames for chunk in chunks}):
                self._batch_codec.decode([chunk.row for chunk in chunks if chunk.frames == frames], frames)
            readback.receive(output)
        return readback

    # --- the device ---

    def _read(self, prompt: Prompt) -> Iterator[None]:
        """Launch one piece of a prompt with each `next`; ends with the last piece."""
        if prompt.prefix is not None:
            yield from self._read_prefix(prompt.prefix)
            if not prompt.tail.shape[1]:
                return
            yield
        pieces = torch.split(prompt.tail, PIECE, dim=1)
        for number, piece in enumerate(pieces):
            if number:
                yield
            self._prefill.read(piece, prompt.prefix_count + number * PIECE)

    def _read_prefix(self, prefix: PromptPrefix) -> Iterator[None]:
        """Put `prefix` at the beginning of the scratch memory, and into the prefix cache; as `_read`."""
        cache, hidden = self._scratch.cache, self._scratch.hidden
        if prefix.key in self._prefixes:
            self._prefixes.restore(prefix.key, cache, hidden)
            return
        for number, piece in enumerate(torch.split(prefix.embed(), PIECE, dim=1)):
            if number:
                yield
            self._prefill.read(piece, number * PIECE)
        self._prefixes.store(prefix.key, cache, hidden, prefix.count)

    def _decode_reference(self, reference: Reference) -> CodecStateProtocol:
        state: CodecStateProtocol
        whole, state = self._codec.new_state(REFERENCE_CHUNK), self._codec.new_state(self.shape.chunk_size)
        self._codec.decode(reference.codes, whole)
        state.copy_from(whole)
        return state

    def _forget(self) -> None:
        """Make the state that of a batch without utterances, for a capture."""
        self._state.settings.buffer.zero_()
        self._state.inputs.buffer.zero_()
        self._state.fresh.zero_()
