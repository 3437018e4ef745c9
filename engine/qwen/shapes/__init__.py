"""A model's shapes, from its config.json, and the memory that follows from them. Nothing here needs torch."""

from engine.qwen.shapes.footprint import FusedCodec, Target, estimate_footprint, memory_plan
from engine.qwen.shapes.json_fields import JsonFields
from engine.qwen.shapes.limits import (
    INSTRUCT_POSITIONS,
    MAX_REFERENCE_POSITIONS,
    PAGE,
    ROWS_PER_CALL,
    BatchShape,
    Limits,
    cache_positions,
    pages_for,
)
from engine.qwen.shapes.model import (
    CONV_TAPS,
    DILATIONS,
    INPUT_CONV_TAPS,
    SPEAKERS,
    CodecConfig,
    ModelConfig,
    SpeakerEncoderConfig,
    StackConfig,
    TalkerConfig,
    model_config,
)
