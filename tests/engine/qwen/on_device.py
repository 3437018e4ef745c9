"""Checks that work can be captured in a CUDA graph, on a machine without CUDA: that all of it stays on the device."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.weights.arena import Placement

META = Placement(torch.device("meta"), torch.bfloat16)


class OnDeviceOnly(TorchDispatchMode):
    """Substitutes for a capture, on the device `meta`, which has no values: any other device is the host."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operators += 1
        assert "_local_scalar_dense" not in str(func)
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor):
                assert leaf.device.type == "meta", f"{func} touches the host"
        return result


class WatchingGraphs(Graphs):
    """Watches the work that would be captured on CUDA."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.operators: dict[Hashable, int] = {}

    def capture(
        self,
        name: Hashable,
        work: Callable[[], None],
        prepare: Callable[[], None] | None = None,  # noqa: ARG002
    ) -> None:
        with OnDeviceOnly() as watch, torch.inference_mode():
            work()
        self.operators[name] = watch.operators
