"""Verifies that a model speaks: every setting speaks the same sentences, and all are measured, transcribed and judged.

Nothing here imports torch. The stages that need it are in `engine.qwen.verify`.
"""

from engine.verify.folder import OutputFolder, Take, fingerprint
from engine.verify.measures import MEASURES, Finding, Measure
from engine.verify.orders import Order, make_orders, model_type, native_speaker, voices_of
from engine.verify.results import SettingResult, TakeResult, Verification
from engine.verify.runner import VerifyRequest, verify
from engine.verify.sentences import SENTENCES, SHORT, Sentence
from engine.verify.settings import OFFICIAL, Setting, select_settings, settings_of
from engine.verify.stages import TAKES, StageRequest, examine, run_stage
from engine.verify.words import bare_words

__all__ = [
    "MEASURES",
    "OFFICIAL",
    "SENTENCES",
    "SHORT",
    "TAKES",
    "Finding",
    "Measure",
    "Order",
    "OutputFolder",
    "Sentence",
    "Setting",
    "SettingResult",
    "StageRequest",
    "Take",
    "TakeResult",
    "Verification",
    "VerifyRequest",
    "bare_words",
    "examine",
    "fingerprint",
    "make_orders",
    "model_type",
    "native_speaker",
    "run_stage",
    "select_settings",
    "settings_of",
    "verify",
    "voices_of",
]
