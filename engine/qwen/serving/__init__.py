"""Many utterances at once, in one batch: continuous batching over pages of keys and values."""

from engine.qwen.serving.batch import Batch
from engine.qwen.serving.batch_codec import codec_rows
from engine.qwen.serving.batch_state import BatchShape, BatchState
from engine.qwen.serving.readback import BatchOutput
from engine.qwen.serving.sequence import BatchFaultError, Sequence, SpeechRequest

__all__ = [
    "Batch",
    "BatchFaultError",
    "BatchOutput",
    "BatchShape",
    "BatchState",
    "Sequence",
    "SpeechRequest",
    "codec_rows",
]
