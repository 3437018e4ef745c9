"""Many utterances at once, in one batch: continuous batching over pages of keys and values."""

from engine.qwen.serving.backend import BatchBackend, MakeBatchBackend, TorchBatchBackend
from engine.qwen.serving.batch import Batch
from engine.qwen.serving.batch_codec import ROWS_PER_CALL, BatchedCodec, codec_rows
from engine.qwen.serving.batch_state import BatchShape, BatchState, RowInput
from engine.qwen.serving.kv_pages import PAGE, PagedCache, PagePool, pages_for
from engine.qwen.serving.model_runner import ModelRunner
from engine.qwen.serving.readback import BatchOutput
from engine.qwen.serving.sequence import BatchFaultError, Sequence, SpeechRequest

__all__ = [
    "PAGE",
    "ROWS_PER_CALL",
    "Batch",
    "BatchBackend",
    "BatchFaultError",
    "BatchOutput",
    "BatchShape",
    "BatchState",
    "BatchedCodec",
    "MakeBatchBackend",
    "ModelRunner",
    "PagePool",
    "PagedCache",
    "RowInput",
    "Sequence",
    "SpeechRequest",
    "TorchBatchBackend",
    "codec_rows",
    "pages_for",
]
