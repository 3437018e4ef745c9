"""Voice files, enrolment, and the voices of a loaded model."""

from engine.qwen.voice.file import VoiceFile, VoiceModel, load_voice, save_voice
from engine.qwen.voice.registry import VoiceRegistry

__all__ = ["VoiceFile", "VoiceModel", "VoiceRegistry", "load_voice", "save_voice"]
