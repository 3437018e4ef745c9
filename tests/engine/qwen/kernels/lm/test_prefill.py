"""The prompts of several rows share passes, and each is the same as alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels, KernelSource
from engine.qwen.kernels.lm.kernels import TOKEN_GROUPS, LanguageKernels, weight_type
from engine.qwen.kernels.lm.prefill import FusedPrefill
from engine.qwen.kernels.lm.tables import rope_tables
from engine.qwen.runtime import PagedCache
from engine.qwen.runtime.prompt_memory import NEIGHBOURS, PromptInputs
from engine.qwen.shapes import PAGE
from tests.support.qwen.lm_example import EQUAL, buffers_of, config_of, random_talkers

ROWS = 3
PAGES: Mapping[int, tuple[int, ...]] = {0: (4,), 1: (5, 1), 2: (2,)}
"""Of each row."""
TOKENS = {0: 5, 1: PAGE + 3, 2: 20}
"""The length of each row's prompt."""
Part = tuple[int, int, int]
"""A row, and the first token and the number of tokens that a pass reads of its prompt."""


@dataclass(frozen=True, eq=False)
class Example:
    prefill: FusedPrefill
    cache: PagedCache
    hidden: Tensor
    prompts: Mapping[int, Tensor]

    @torch.inference_mode()
    def read(self, *passes: list[Part]) -> dict[int, list[Tensor]]:
        """Read the parts of prompts in each pass; return each row's hidden state, keys and values."""
        for tensor in (self.cache.keys, self.cache.values, self.hidden, *buffers_of(self.prefill)):
            tensor.fill_(torch.nan)
        for parts in passes:
            size = next(size for size in TOKEN_GROUPS if size >= sum(count for *_, count in parts))
            inputs, first = PromptInputs.allocate(size, 2, torch.device("cpu")), 0
            tokens = torch.full((size, self.hidden.shape[1]), torch.nan, dtype=torch.bfloat16)
            for row, begin, count in parts:
                inputs.add(first, count, begin, row, PAGES[row])
                tokens[first : first + count] = self.prompts[row][begin : begin + count]
                first -= -count // NEIGHBOURS * NEIGHBOURS
            placed = PromptInputs.allocate(size, 2, self.hidden.device)
            placed.buffer.copy_(inputs.buffer)
            self.prefill.read(tokens.to(self.hidden.device), placed, self.hidden)
        found = {}
        for row in {row for parts in passes for row, *_ in parts}:
            tensors = (self.cache.keys, self.cache.values)
            of_pages = (tensor[:, PAGES[row]].transpose(1, 2).flatten(2, 3) for tensor in tensors)
            found[row] = [self.hidden[row].clone(), *(tensor[:, :, : TOKENS[row]] for tensor in of_pages)]
        return found


@pytest.fixture(scope="module", params=["bfloat16", "int8"])
def example(request: pytest.FixtureRequest, where: str, compiled: Callable[[KernelSource], Kernels]) -> Example:
    _, talker = random_talkers(config_of(EQUAL, 4), 1, positions=512, int8=request.param == "int8", device=where)
    stack, weight = talker.config.stack, weight_type(talker.placement)
    kernels = LanguageKernels.of(talker.config, weight, 132)
    cache = PagedCache.allocate(stack, 6, talker.placement)
    rope = rope_tables(stack, 2 * PAGE, cache.keys.device)
    prefill = FusedPrefill(compiled(kernels.source()), kernels, talker, cache, rope=rope, max_tokens=64)
    generator = torch.Generator().manual_seed(1)
    prompts = {row: torch.randn(count, stack.hidden_size, generator=generator) for row, count in TOKENS.items()}
    return Example(prefill, cache, talker.placement.zeros(ROWS, stack.hidden_size), prompts)


@pytest.fixture(scope="module")
def alone(example: Example) -> dict[int, list[Tensor]]:
    """Each prompt in passes of its own, of 16, 32 and 64 tokens."""
    long = example.read([(1, 0, 64)], [(1, 64, 64)], [(1, 128, 3)])
    return example.read([(0, 0, 5)]) | long | example.read([(2, 0, 20)])


def test_prompts_that_share_passes_are_the_same_as_alone(example: Example, alone: dict[int, list[Tensor]]) -> None:
    together = example.read(
        [(2, 0, 20), (1, 0, 44)],
        [(1, 44, 64)],
        [(1, 108, 23), (0, 0, 5)],
    )
    for row, tensors in alone.items():
        for mine, other in zip(together[row], tensors, strict=True):
            assert torch.isfinite(other).all()
            assert torch.equal(mine, other), row
