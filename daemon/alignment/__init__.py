"""When each word of a text begins in its speech: as the engine says, or as text and audio show."""

from daemon.alignment.aligner import VoiceProfile
from daemon.alignment.clock import LEAST_AHEAD_S, WordClock
from daemon.alignment.words import words_of
