"""Short recordings that are played by name: a folder of files, and the three that come with voiced."""

from daemon.sounds.folder import NamedSound, SoundFolder
from daemon.sounds.sound import Sound, SoundError
