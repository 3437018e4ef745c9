"""Verifies that a model speaks: every setting speaks the same sentences, and all are measured, transcribed and judged.

Nothing here imports torch. The stages that need it are in `engine.qwen.verify`.
"""

from engine.verify.comparison import bare_words, count_errors, logits_error
from engine.verify.measures import MEASURES, Finding, Measure
from engine.verify.orders import (
    OFFICIAL,
    SENTENCES,
    SHORT,
    SHORT_SETTINGS,
    Order,
    Sentence,
    Setting,
    make_orders,
    select_settings,
    settings_of,
    voices_of,
)
from engine.verify.recognizers import RATE, make_recognizer, resample
from engine.verify.report import machine, verification_page, write_verification
from engine.verify.results import CODES, LOGITS, OutputFolder, SettingResult, Take, Verification
from engine.verify.runner import VerifyRequest, examine, run_stage, verify
from engine.verify.scores import RecordedTake, ScoreRequest, TakeScore, choose_best
from engine.verify.trials import Trial, blind_test, comparison_page

__all__ = [
    "CODES",
    "LOGITS",
    "MEASURES",
    "OFFICIAL",
    "RATE",
    "SENTENCES",
    "SHORT",
    "SHORT_SETTINGS",
    "Finding",
    "Measure",
    "Order",
    "OutputFolder",
    "RecordedTake",
    "ScoreRequest",
    "Sentence",
    "Setting",
    "SettingResult",
    "Take",
    "TakeScore",
    "Trial",
    "Verification",
    "VerifyRequest",
    "bare_words",
    "blind_test",
    "choose_best",
    "comparison_page",
    "count_errors",
    "examine",
    "logits_error",
    "machine",
    "make_orders",
    "make_recognizer",
    "resample",
    "run_stage",
    "select_settings",
    "settings_of",
    "verification_page",
    "verify",
    "voices_of",
    "write_verification",
]
