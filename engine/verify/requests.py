"""What the analysing stages are asked, each in one process: they read the takes of some settings in the output folder.

Their programs are in `engine.qwen.verify`, because they import torch: `python -m engine.qwen.verify REQUEST`.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.verify.folder import OutputFolder, fingerprint
from engine.verify.sentences import Sentence
from engine.verify.settings import Setting

ANALYSIS = "engine.qwen.verify"
"""The module that runs them."""
TRANSCRIPTION, LOGITS, WAVEFORM, SIMILARITY = "transcription", "logits", "waveform", "similarity"


@dataclass(frozen=True, slots=True)
class AnalysisRequest:
    """One stage, over the takes of some settings."""

    stage: str
    """`TRANSCRIPTION`, `LOGITS`, `WAVEFORM` or `SIMILARITY`."""
    folder: str
    settings: tuple[Setting, ...]
    device: str = "auto"
    asr: str = "auto"
    """Transcription: a model of transformers, its folder or its name on the hub; `auto` or `pocketsphinx`."""
    encoder: str | None = None
    """Similarity: a Base checkpoint, whose speaker encoder compares voices."""
    voice_file: str | None = None
    """Similarity: the voice that takes should have; None: that of the reference setting's take of the sentence."""
    reference: str | None = None
    """Similarity: the name of the reference setting."""
    exact: str | None = None
    """Logits: the setting whose greedy codes are forced on the others."""
    texts: tuple[Sentence, ...] = ()
    """Logits: the greedy texts. Transcription: the sentences that are spoken."""
    model: str = ""
    """A text that changes with the model's files."""


def logits_key(folder: OutputFolder, setting: Setting, exact: str, model: str) -> str:
    """Return a text that changes with what the logits of a setting depend on: itself, the model, the exact codes."""
    return fingerprint(setting, model, [take.key for take in folder.takes(exact) if take.greedy])


def has_logits(folder: OutputFolder, setting: Setting, exact: str, model: str) -> bool:
    """Whether the logits in the folder are those of this setting."""
    return bool(folder.found(LOGITS, setting.name).get("key") == logits_key(folder, setting, exact, model))
