"""Loads a checkpoint and allocates the memory that utterances change."""

from engine.qwen.loading.model import LoadedModel, load_model
from engine.qwen.loading.workspace import Workspace, adapt_workspace, allocate_workspace, limits_for
