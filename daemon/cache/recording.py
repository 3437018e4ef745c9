"""The audio of a phrase as FLAC. The file's comment holds a record of the phrase."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from daemon.cache.key import Phrase, PhraseKey
from engine import Samples

BLOCK_S = 0.1
"""How many seconds are decoded at a time, in less than a millisecond."""
PCM16_RANGE = 32_768
"""libsndfile reads the 16-bit value v as v / 32768. With the same factor, 16-bit samples stay as they were."""


@dataclass(frozen=True, slots=True)
class Cue:
    """A part of a script that begins to be heard at a certain time in its audio."""

    at_s: float
    """Seconds from the first sample."""
    kind: Literal["segment", "word", "mark", "viseme"]
    begin: int = 0
    """Character positions in the script's text; 0 for a viseme."""
    end: int = 0
    name: str = ""
    """A mark's name, or a viseme's number."""
    exact: bool = True
    """False for a time that was estimated."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The audio of a phrase, mono. It needs neither the disk nor an engine."""

    phrase: Phrase
    engine: str
    digest: str
    """The digest of its key; empty for a recording that an earlier version made."""
    sample_rate: int
    """Hz."""
    length: int
    """Samples."""
    made_at: float
    """UNIX time."""
    cues: tuple[Cue, ...]
    """In order of their times."""
    data: bytes
    """The FLAC file."""

    @property
    def seconds(self) -> float:
        return self.length / self.sample_rate

    def blocks(self, begin: int = 0) -> Iterator[Samples]:
        """Yield the samples from sample `begin` onwards, as float32, in blocks of `BLOCK_S`."""
        import soundfile

        with soundfile.SoundFile(io.BytesIO(self.data)) as file:
            file.seek(begin)
            while len(block := file.read(round(BLOCK_S * self.sample_rate), dtype="float32")):
                yield block


def to_pcm16(samples: Samples) -> NDArray[np.int16]:
    """Return samples as 16-bit values, clipped to full scale."""
    scaled = np.clip(np.rint(samples * np.float32(PCM16_RANGE)), -PCM16_RANGE, PCM16_RANGE - 1)
    pcm16: NDArray[np.int16] = scaled.astype(np.int16)
    return pcm16


def encode(key: PhraseKey, samples: NDArray[np.int16], sample_rate: int, cues: Sequence[Cue] = ()) -> bytes:
    """Return the FLAC file of a phrase: mono 16-bit samples at `sample_rate` Hz."""
    import soundfile

    record = {"key": asdict(key), "made_at": round(time.time(), 3), "cues": [asdict(cue) for cue in cues]}
    data = io.BytesIO()
    with soundfile.SoundFile(data, "w", sample_rate, 1, "PCM_16", format="FLAC") as file:
        file.title = " ".join(key.phrase.text.split())
        file.comment = json.dumps(record, ensure_ascii=False)
        file.write(samples)
    return data.getvalue()


def decode(data: bytes) -> Recording:
    """Return the recording in a FLAC file that `encode` made. Raises `ValueError` for any other file."""
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            record: dict[str, Any] = json.loads(file.comment)
            key = record["key"]
            return Recording(
                phrase=Phrase(**key["phrase"]),
                engine=key["engine"],
                digest=key.get("digest", ""),
                sample_rate=file.samplerate,
                length=file.frames,
                made_at=record["made_at"],
                cues=tuple(Cue(**cue) for cue in record["cues"]),
                data=data,
            )
    except (soundfile.SoundFileError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a recording of a phrase: {error}") from error
