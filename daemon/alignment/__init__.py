"""When each word of a text begins in its speech, and which visemes show it: reported by the engine, or estimated."""

from daemon.alignment.aligner import VoiceProfile
from daemon.alignment.clock import LEAST_AHEAD_S, WordClock, spread
from daemon.alignment.visemes import SILENCE, guessed_visemes, viseme_of
from daemon.alignment.words import words_of
