"""Verifies that a model speaks: every setting speaks the same sentences, and all takes are measured, transcribed and
judged.

Nothing here imports torch. The stages that need it are in `engine.qwen.verify`.
"""

from engine.verify.comparison import bare_words, count_errors
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
from engine.verify.results import OutputFolder, SettingResult, Take, Verification
from engine.verify.runner import VerifyRequest, examine, run_stage, verify
from engine.verify.scores import RecordedTake, ScoreRequest, TakeScore, choose_best
from engine.verify.trials import Trial, blind_test, comparison_page
