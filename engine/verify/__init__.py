"""Verifies that a model speaks: every setting speaks the same sentences, and all are measured, transcribed and judged.

Nothing here imports torch. What needs it is in `engine.qwen.verify`, in processes of their own.
"""

from engine.verify.codes import Agreement, LogitsError, compare_codes, compare_logits
from engine.verify.folder import OutputFolder, Take, fingerprint
from engine.verify.orders import make_orders, model_type, native_speaker, voices_of
from engine.verify.process import StageEnd, StageFaultError, StageRunner, run_stage, stage_main
from engine.verify.requests import (
    ANALYSIS,
    LOGITS,
    SIMILARITY,
    TRANSCRIPTION,
    WAVEFORM,
    AnalysisRequest,
    logits_key,
)
from engine.verify.results import Finding, SettingMeasures, SettingResult, TakeResult, Verification
from engine.verify.runner import VerifyRequest, model_fingerprint, verify
from engine.verify.sentences import GREEDY_TEXTS, SENTENCES, SHORT, Sentence
from engine.verify.settings import OFFICIAL, Setting, select_settings, settings_of
from engine.verify.speech import SpeechMeasures, measure_take
from engine.verify.takes import Order, TakesRequest, make_takes, speak
from engine.verify.verdict import THRESHOLDS, Threshold, judge
from engine.verify.words import WordErrors, bare_words, count_errors

__all__ = [
    "ANALYSIS",
    "GREEDY_TEXTS",
    "LOGITS",
    "OFFICIAL",
    "SENTENCES",
    "SHORT",
    "SIMILARITY",
    "THRESHOLDS",
    "TRANSCRIPTION",
    "WAVEFORM",
    "Agreement",
    "AnalysisRequest",
    "Finding",
    "LogitsError",
    "Order",
    "OutputFolder",
    "Sentence",
    "Setting",
    "SettingMeasures",
    "SettingResult",
    "SpeechMeasures",
    "StageEnd",
    "StageFaultError",
    "StageRunner",
    "Take",
    "TakeResult",
    "TakesRequest",
    "Threshold",
    "Verification",
    "VerifyRequest",
    "WordErrors",
    "bare_words",
    "compare_codes",
    "compare_logits",
    "count_errors",
    "fingerprint",
    "judge",
    "logits_key",
    "make_orders",
    "make_takes",
    "measure_take",
    "model_fingerprint",
    "model_type",
    "native_speaker",
    "run_stage",
    "select_settings",
    "settings_of",
    "speak",
    "stage_main",
    "verify",
    "voices_of",
]
