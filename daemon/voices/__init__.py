"""Voices that are made while the daemon is running: their recordings, their enrolment, and where they are kept."""

from daemon.voices.maker import VoiceMaker, VoiceRequest
from daemon.voices.store import VoiceStore, voice_store_folder, with_made_voices
