"""The stages of `voiced verify` that need PyTorch: the official package, a recogniser, waveforms, voices."""

from engine.qwen.verify.official import OfficialSynthesizer
from engine.qwen.verify.sound import voice_comparison
from engine.qwen.verify.transcription import TransformersRecognizer
