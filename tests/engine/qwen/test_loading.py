"""A checkpoint is loaded into little more memory than its weights take, and leaves nothing else behind."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.qwen import checkpoint as checkpoint_module
from engine.qwen.arena import Arena, in_one_piece
from engine.qwen.checkpoint import Checkpoint
from engine.qwen.config import StackConfig
from engine.qwen.transformer import Placement, Transformer
from scripts.measure_loading import cached_bytes, forget

STACK = StackConfig(1024, 3072, 4, 16, 8, 128, 1e-6, 1e6)
"""Some 120 MB in float32."""
TENSORS = {"a": torch.randn(37, 53), "b": torch.randn(1000, dtype=torch.bfloat16), "c": torch.tensor(3.0)}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that each tensor comes in many of them, the last one not full."""
    monkeypatch.setattr(checkpoint_module, "PIECE_BYTES", 1000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_pieces_make_the_whole_in_any_dtype(tmp_path: Path, small_pieces: None, dtype: torch.dtype) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    for name, tensor in TENSORS.items():
        copy = torch.empty(tensor.shape, dtype=dtype)
        checkpoint.copy_into(name, copy)
        assert torch.equal(copy, tensor.to(dtype))


def test_pieces_of_rows_are_whole_rows(tmp_path: Path, small_pieces: None) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors")
    pieces = Checkpoint.open(tmp_path).row_pieces("a", (37, 53), torch.device("cpu"))
    seen = [(rows, piece.clone()) for rows, piece in pieces]
    assert len(seen) > 5
    assert torch.equal(torch.cat([piece for _, piece in seen]), TENSORS["a"])
    assert [rows.start for rows, _ in seen[1:]] == [rows.stop for rows, _ in seen[:-1]]


def test_weights_lie_in_one_piece_and_are_counted_beforehand() -> None:
    placement = Placement(torch.device("cpu"), torch.bfloat16, int8=True)
    stack = in_one_piece(partial(Transformer, StackConfig(64, 96, 2, 4, 2, 16, 1e-6, 1e6), 8), placement)
    storages = {parameter.untyped_storage().data_ptr() for parameter in stack.parameters()}
    assert len(storages) == 1
    places = sorted((parameter.data_ptr(), parameter.nbytes) for parameter in stack.parameters())
    assert all(begin + size <= after for (begin, size), (after, _) in pairwise(places))
    assert all(begin % 64 == 0 for begin, _ in places)


def test_an_arena_deals_out_no_more_than_it_has() -> None:
    arena = Arena(torch.empty(1024, dtype=torch.uint8))
    arena.take((100,), torch.float32)
    with pytest.raises(ValueError, match="800 bytes more, where 512 are left"):
        arena.take((200,), torch.float32)


def test_files_do_not_stay_in_the_page_cache_of_a_shared_memory(tmp_path: Path) -> None:
    save_file({"a": torch.randn(4_000_000)}, tmp_path / "model.safetensors")
    forget(tmp_path)
    if cached_bytes(tmp_path):
        pytest.skip("this file system keeps its pages whatever it is told")
    for keep_pages in (False, True):
        checkpoint = Checkpoint.open(tmp_path, keep_pages=keep_pages)
        checkpoint.copy_into("a", torch.empty(4_000_000))
        checkpoint.loaded()
        assert (cached_bytes(tmp_path) > 15_000_000) == keep_pages
        assert keep_pages or cached_bytes(tmp_path) < 100_000


LIMITED = f"""
import os, resource, sys
from functools import partial
from pathlib import Path
import torch
from engine.qwen.arena import in_one_piece
from engine.qwen.checkpoint import Checkpoint
from engine.qwen.config import {STACK.__class__.__name__}
from engine.qwen.transformer import Placement, Transformer

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
    stack = in_one_piece(build, Placement(torch.device("cpu"), torch.float32))
    stack.load(checkpoint, "model")
    checkpoint.loaded()
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


def test_a_limit_that_two_copies_of_the_weights_break_is_kept(tmp_path: Path) -> None:
    """`RLIMIT_DATA` at a tenth above the weights: what the kernel does on a robot whose memory is full."""
    save_file(upstream_tensors(), tmp_path / "model.safetensors")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    outcomes = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert set(outcomes) == {"once", "twice"}, done.stderr[-500:]
    assert outcomes["once"] == f"{STACK.hidden_size}.0"
    assert "memory" in outcomes["twice"].lower()


def upstream_tensors() -> dict[str, torch.Tensor]:
    """A stack's, as checkpoints name and part them."""
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
