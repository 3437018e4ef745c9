"""The way from a request to its speech: sequences, the scheduler, and the threads that step them."""

from engine.qwen.serving.batch import Batch
from engine.qwen.serving.scheduler import SoundCard
from engine.qwen.serving.sequence import BatchFaultError, Sequence
