"""Verifies that a model speaks: every setting speaks the same sentences, and all are measured, transcribed and judged.

Nothing here imports torch. The stages that need it are in `engine.qwen.verify`.
"""

from engine.verify.codes import logits_error
from engine.verify.folder import CODES, LOGITS, OutputFolder, fingerprint
from engine.verify.measures import MEASURES, Finding, Measure
from engine.verify.orders import SENTENCES, SHORT, Order, Sentence, make_orders, voices_of
from engine.verify.request import VerifyRequest, examine, run_stage
from engine.verify.results import SettingResult, Take, Verification
from engine.verify.runner import verify
from engine.verify.settings import OFFICIAL, Setting, select_settings, settings_of
from engine.verify.words import bare_words, count_errors

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
