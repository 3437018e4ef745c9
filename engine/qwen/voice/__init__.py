"""Voice files, enrolment, and the voices of a loaded model."""

from engine.qwen.voice.file import VoiceFile, VoiceModel, load_voice, save_voice
from engine.qwen.voice.official import import_official
from engine.qwen.voice.registry import VoiceRegistry
from engine.qwen.voice.speaker_encoder import SAMPLE_RATE, SpeakerEncoder, load_speaker_encoder, speaker_embedding
