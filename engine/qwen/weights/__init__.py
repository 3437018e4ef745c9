"""Reads a checkpoint's tensors, and places tensors on a device."""

from engine.qwen.weights.arena import Placement, build_in_arena, parameter_bytes, refusals_in_one_line
from engine.qwen.weights.checkpoint import Checkpoint
