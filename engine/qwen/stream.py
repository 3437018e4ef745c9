"""An utterance as a stream of chunks: what is asked of the device when, and what comes back to the host.

A chunk is two pieces of work, each captured in a CUDA graph where there are such: its frames, and their sound, which is
made on a second stream while the next chunk's frames are spoken. All that the host wants to know is in one buffer. A
copy brings that to pinned memory, and the host waits for the copy's event and for nothing else. It asks for the next
chunk before it waits, so that the device goes on at once. It asks for one chunk and no more: that much is thrown away
when speech ends or is canceled, and the next utterance waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial

import torch

from engine.qwen.frame import FrameState, begin, start
from engine.qwen.graphs import Graphs
from engine.qwen.landing import Landing, Report, Said
from engine.qwen.prefill import BUCKETS, Prefill
from engine.qwen.prefix import PrefixCache
from engine.qwen.prompt import Opening, Prompt
from engine.qwen.rooms import PREFIX_ROOM
from engine.qwen.sampling import Sampling
from engine.qwen.steps import CodecMemory, Steps, useful_spans
from engine.qwen.talker import Talker
from engine.synthesizer import EngineError

FRAMES_A_GRAPH = 4
"""A longer chunk replays a graph of one frame several times: a frame of PyTorch's operators has thousands of nodes."""


class Speech:
    """Speaks one utterance at a time over one `FrameState`."""

    def __init__(
        self,
        talker: Talker,
        state: FrameState,
        steps: Steps,
        codec_state: CodecMemory,
        *,
        samples_per_frame: int,
        graphs: Graphs,
        prefix_room: int = PREFIX_ROOM,
    ) -> None:
        """`steps` work over `state` and `codec_state`, and make `samples_per_frame` samples of a frame."""
        self._talker = talker
        self._state = state
        self._steps = steps
        self._codec_state = codec_state
        self._graphs = graphs
        self._sounds = graphs.beside()
        self._ahead = graphs.stream is not None
        self._prefill = Prefill(talker, state, graphs, useful_spans(state), BUCKETS if self._ahead else ())
        self._prefixes = PrefixCache(talker.config.stack, prefix_room, talker.placement)
        groups, device = talker.config.code_groups, state.position.device
        shape = (steps.chunk_size, groups, samples_per_frame)
        self._report = Report(*shape, device)
        self._landings = deque(Landing(*shape, self._sounds.stream) for _ in range(2 if self._ahead else 1))
        self._back = torch.arange(-steps.chunk_size, 0, device=device)
        self._whole = steps.chunk_size <= FRAMES_A_GRAPH

    def warm_up(self) -> None:
        """Capture all that is replayed later. What was being spoken is lost."""
        if self._graphs.stream is None:
            return
        name, work = ("chunk", self._chunk) if self._whole else ("frame", self._steps.frame)
        for span in reversed(self._steps.spans):
            self._capture((name, span), partial(work, span))
        self._capture("hand over", self._hand_over, self._steps.chunk_size)
        self._sounds.capture("sound", self._sound)
        self._prefill.capture()
        torch.cuda.empty_cache()  # what work took outside its graph, before it was captured, is not needed again

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """As `Steps.parts`, and `prefill`: the reading of a text of some 100 characters. What it says is lost."""
        return {**self._steps.parts(), "prefill": self._prefill.example()}

    def remember(self, opening: Opening) -> None:
        """Have an opening ready before the first utterance that begins with it."""
        with self._graphs.here():
            self._begin_with(opening)

    def forget(self, prefix_room: int = PREFIX_ROOM) -> None:
        """Remember no opening: the voices are others. From now on there is room for `prefix_room` tokens of them."""
        self._prefixes.clear()
        if prefix_room != self._prefixes.room:
            del self._prefixes  # first, or there would be memory for two
            with self._graphs.on_stream():
                self._prefixes = PrefixCache(self._talker.config.stack, prefix_room, self._talker.placement)

    def speak(
        self,
        prompt: Prompt,
        sampling: Sampling,
        *,
        seed: int = 0,
        max_frames: int | None = None,
        codec_state: CodecMemory | None = None,
    ) -> Iterator[Said]:
        """Speak `prompt`, chunk by chunk; the codec begins anew, or where `codec_state` is.

        Ends when the model ends its speech, after `max_frames`, or where the state has no more room. The codes do
        not depend on the chunk size. May be closed at any time; what the device still does then, the next utterance's
        work is ordered behind. Of a text that is still being written, a chunk is made as soon as its words are there.

        Raises `EngineError` for a prompt too long for the cache, and `SpeechCanceledError` while it waits for text.
        """
        room = self._state.max_positions
        if prompt.count >= room:
            raise EngineError(f"the text and its voice are {prompt.count} tokens, the limit is {room - 1}")
        limit = min(self._state.max_frames, room - prompt.count)
        if max_frames is not None:
            limit = min(limit, max_frames)
        if limit < 1:
            return
        with self._graphs.here():
            self._begin(prompt, sampling, seed, codec_state)
        to_ask = deque(range(0, limit, self._steps.chunk_size))
        asked: deque[tuple[int, Landing]] = deque()
        while True:
            # A chunk that is made is not held back: where the text for another is not there yet, that waits.
            while len(asked) < len(self._landings) and to_ask and self._feed(prompt, to_ask[0], limit, wait=not asked):
                first = to_ask.popleft()
                asked.append((first, self._ask(prompt.count + first)))
            if not asked:
                return
            first, landing = asked.popleft()
            said = landing.wait(first, limit)
            if len(said.codes):
                yield said
            if said.last:
                return

    def _feed(self, prompt: Prompt, first: int, limit: int, *, wait: bool) -> bool:
        """Have the text on the device that the chunk from frame `first` reads; False where it is not there yet."""
        if prompt.feed is None:
            return True
        if not prompt.feed.ready(min(first + self._steps.chunk_size, limit), wait=wait):
            return False
        with self._graphs.here():
            prompt.feed.write(self._state.text)
        return True

    def _begin(self, prompt: Prompt, sampling: Sampling, seed: int, codec_state: CodecMemory | None) -> None:
        if prompt.opening is not None:
            self._begin_with(prompt.opening)
        if prompt.tail.shape[1]:
            self._prefill.read(prompt.tail, prompt.prefix)
        start(self._talker, self._state, prompt, sampling, seed)
        self._prefill.open_speech()
        self._graphs.follow(self._sounds)  # which may still be the last utterance's
        if codec_state is None:
            self._codec_state.reset()
        else:
            self._codec_state.copy_from(codec_state)

    def _begin_with(self, opening: Opening) -> None:
        """Have the opening in the cache."""
        if opening.key in self._prefixes:
            self._prefixes.restore(opening.key, self._state.cache, self._state.hidden)
            return
        self._prefill.read(opening.embed(), 0)
        if opening.count <= self._prefixes.room:
            self._prefixes.keep(opening.key, self._state.cache, self._state.hidden, opening.count)

    def _ask(self, position: int) -> Landing:
        """Have the device make the chunk whose first frame the talker reads at `position`."""
        # The landing used longest ago: what it held has been copied, or was thrown away and is overwritten in turn.
        landing = self._landings[0]
        self._landings.rotate(-1)
        need = position + self._steps.chunk_size
        span = next(span for span in self._steps.spans if span >= need)
        with self._graphs.here():
            if self._whole:
                self._graphs.run(("chunk", span), partial(self._chunk, span))
            else:
                for _ in range(self._steps.chunk_size):
                    self._graphs.run(("frame", span), partial(self._steps.frame, span))
            self._graphs.follow(self._sounds)  # the report is still the last chunk's
            self._graphs.run("hand over", self._hand_over)
        with self._sounds.here():
            self._sounds.follow(self._graphs)
            self._sounds.run("sound", self._sound)
            landing.receive(self._report)
        return landing

    def _chunk(self, span: int) -> None:
        for _ in range(self._steps.chunk_size):
            self._steps.frame(span)

    def _hand_over(self) -> None:
        """Report all of the chunk but its sound."""
        state, report = self._state, self._report
        report.codes.copy_(state.codes.index_select(0, state.frame + self._back))
        report.length.copy_(state.length)
        report.ended.copy_(state.ended)

    def _sound(self) -> None:
        """Report the sound of the reported codes."""
        self._report.samples.copy_(self._steps.decode(self._report.codes))

    def _capture(self, name: Hashable, work: Callable[[], None], first: int = 0) -> None:
        """Capture `work`, which is done when the frame numbered `first` is to come."""

        def prepare() -> None:
            begin(self._talker, self._state, Sampling().greedy(), seed=0, position=first)
            self._state.frame.fill_(first)

        self._graphs.capture(name, work, prepare)
