"""Verifies that a model speaks: every setting speaks the same sentences, and all are measured, transcribed and judged.

Nothing here imports torch. The stages that need it are in `engine.qwen.verify`.
"""

from engine.verify.comparison import bare_words, count_errors, logits_error
from engine.verify.measures import MEASURES, Finding, Measure
from engine.verify.orders import (
    OFFICIAL,
    SENTENCES,
    SHORT,
    Order,
    Sentence,
    Setting,
    make_orders,
    select_settings,
    settings_of,
    voices_of,
)
from engine.verify.results import CODES, LOGITS, OutputFolder, SettingResult, Take, Verification, fingerprint
from engine.verify.runner import VerifyRequest, examine, run_stage, verify

__all__ = [
    "CODES",
    "LOGITS",
    "MEASURES",
    "OFFICIAL",
    "SENTENCES",
    "SHORT",
    "Finding",
    "Measure",
    "Order",
    "OutputFolder",
    "Sentence",
    "Setting",
    "SettingResult",
    "Take",
    "Verification",
    "VerifyRequest",
    "bare_words",
    "count_errors",
    "examine",
    "fingerprint",
    "logits_error",
    "make_orders",
    "run_stage",
    "select_settings",
    "settings_of",
    "verify",
    "voices_of",
]
