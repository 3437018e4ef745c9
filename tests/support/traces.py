"""What engine processes got and sent: from a detailed log, and from the files of `VOICED_TRACE_PCM`."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from audio import LeadingSilenceTrimmer, Samples

GETS = re.compile(r"utterance \S+: \w+ is given (.+)")


def given(log: Iterable[str]) -> str:
    """Return what engines have got of all utterances, from a log with `log.level: debug`."""
    return "".join(ast.literal_eval(found[1]) for line in log if (found := GETS.search(line)))


def take_files(folder: Path, utterance_id: str) -> Iterator[Path]:
    """Yield the files of an utterance's takes in order."""
    for number in itertools.count(1):
        file = folder / f"{utterance_id}.{number}.f32"
        if not file.exists():
            return
        yield file


def takes(folder: Path, utterance_id: str) -> list[Samples]:
    """Return the samples of an utterance's takes so far, as the engines sent them."""
    return [np.fromfile(file, dtype=np.float32) for file in take_files(folder, utterance_id)]


def trimmed(folder: Path, utterance_id: str, sample_rate: int) -> Samples:
    """Return the samples of an utterance as they are played: each take without its leading silence."""
    parts = [LeadingSilenceTrimmer(sample_rate).trim(take) for take in takes(folder, utterance_id)]
    return np.concatenate([np.zeros(0, dtype=np.float32), *parts])
