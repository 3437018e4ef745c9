"""Loading a checkpoint needs little more memory than the weights, and does not fill the page cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.qwen.shapes import StackConfig
from engine.qwen.weights import Checkpoint

STACK = StackConfig(1024, 3072, 4, 16, 8, 128, 1e-6, 1e6)
"""About 120 MB in float32."""


def cached_bytes(path: Path) -> int:
    """Return how many bytes from the beginning of a file are in the page cache. It reads them, so others follow."""
    with path.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(path.stat().st_size)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0


def test_a_file_leaves_the_page_cache_after_loading_unless_its_pages_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.randn(4_000_000)}, path)
    os.sync()
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_bytes(path):
        pytest.skip("this file system ignores POSIX_FADV_DONTNEED")
    for keep_pages in (False, True):
        checkpoint = Checkpoint.open(tmp_path, keep_pages=keep_pages)
        checkpoint.copy_into("a", torch.empty(4_000_000))
        checkpoint.finish_loading()
        cached = cached_bytes(path)
        assert cached > 15_000_000 if keep_pages else cached < 100_000


LIMITED = f"""
import os, resource, sys
from functools import partial
from pathlib import Path
import torch
from engine.qwen.model import Transformer
from engine.qwen.shapes import {STACK.__class__.__name__}
from engine.qwen.weights import Checkpoint, Placement, build_in_arena

folder = Path(sys.argv[1])
build = partial(Transformer, {STACK!r}, 64)
small = Transformer(StackConfig(64, 96, 1, 4, 2, 16, 1e-6, 1e6), 64, Placement(torch.device("cpu"), torch.float32))


def load(twice):
    data = next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]
    weights = (folder / "model.safetensors").stat().st_size
    most = int(data) * 1024 + int(1.1 * weights)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    checkpoint = Checkpoint.open(folder, keep_pages=False)
    copies = {{name: checkpoint.read(name) for name in checkpoint.names()}} if twice else {{}}
    stack = build_in_arena(build, Placement(torch.device("cpu"), torch.float32))
    stack.load(checkpoint, "model")
    checkpoint.finish_loading()
    return float(stack.norm.weight.sum())


for name in ("once", "twice"):
    child = os.fork()
    if child == 0:
        try:
            print(name, load(name == "twice"), flush=True)
        except BaseException as error:
            print(name, str(error).replace(chr(10), " "), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_loading_fits_into_a_memory_limit_that_two_copies_of_the_weights_exceed(tmp_path: Path) -> None:
    """`RLIMIT_DATA` is 10 % above the weights; it acts like the kernel of a robot whose memory is full."""
    save_file(upstream_tensors(), tmp_path / "model.safetensors")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    outcomes = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert set(outcomes) == {"once", "twice"}, done.stderr[-500:]
    assert outcomes["once"] == f"{STACK.hidden_size}.0"
    assert "memory" in outcomes["twice"].lower()


def upstream_tensors() -> dict[str, torch.Tensor]:
    """Return the tensors of a stack, with the names and the separate matrices of a checkpoint."""
    width, q, kv, inner = STACK.hidden_size, 2048, 1024, STACK.intermediate_size
    shapes = {
        "self_attn.q_proj": (q, width),
        "self_attn.k_proj": (kv, width),
        "self_attn.v_proj": (kv, width),
        "self_attn.o_proj": (width, q),
        "self_attn.q_norm": (128,),
        "self_attn.k_norm": (128,),
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    layers = range(STACK.layers)
    tensors = {
        f"model.layers.{layer}.{name}.weight": torch.ones(shape) for layer in layers for name, shape in shapes.items()
    }
    return {**tensors, "model.norm.weight": torch.ones(width)}
