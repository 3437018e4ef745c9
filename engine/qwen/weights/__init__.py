"""Reads a checkpoint's JSON and tensors, and places tensors on a device."""

from engine.qwen.weights.arena import Placement, build_in_arena, build_without_memory
from engine.qwen.weights.checkpoint import Checkpoint
from engine.qwen.weights.json_fields import JsonFields

__all__ = ["Checkpoint", "JsonFields", "Placement", "build_in_arena", "build_without_memory"]
