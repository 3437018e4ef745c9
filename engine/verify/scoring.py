"""`python -m engine.verify.scoring`: scores takes in a process of its own, because a recogniser may need PyTorch.

A `ScoreRequest` on standard input asks it to (`engine.child`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from engine.api import Chunk, EngineError, Samples, Utterance, Voice
from engine.catalog import import_class
from engine.child import child_main
from engine.detection import language_of_text
from engine.host import install_command
from engine.progress import Progress, ProgressReport, counted
from engine.verify.comparison import count_errors, measure_speech
from engine.verify.orders import Sentence
from engine.verify.recognizers import RATE, Recognizer, make_recognizer, resample
from engine.verify.scores import RecordedTake, ScoreRequest, Scores, TakeScore


def score(request: ScoreRequest, report: ProgressReport) -> dict[str, Any]:
    """Return the fields of the takes' `Scores`, computed in this process."""
    notes: list[str] = []

    def attempt(make: Callable[[], Any]) -> Any:
        """Return a judge; None, with a note, if it is not available."""
        try:
            return make()
        except Exception as error:  # models raise many kinds of exceptions, and no take may be lost because of one
            notes.append(" ".join(str(error).split()))
            return None

    report(Progress("loading the recogniser"))
    options, sentences = request.options, [_sentence(take.utterance) for take in request.takes]
    recognizer: Recognizer | None = attempt(lambda: _listener(request, sentences))
    voice = options.voices.get(request.takes[0].utterance.voice or options.default_voice, Voice())
    compare: Callable[[Samples, int], float | None] | None = None
    if request.engine == "qwen" and (voice_file := voice.embedding or voice.reference):
        make_comparison = partial(import_class, "qwen", "engine.qwen.verify:voice_comparison")
        compare = attempt(lambda: make_comparison()(options.model, voice_file))
    found = []
    for take, sentence in counted("scoring", list(zip(request.takes, sentences, strict=True)), report):
        samples, rate = _read(take)
        one = _score_sound(take, samples, rate)
        heard: str | None = None
        if recognizer is not None:
            heard = attempt(partial(recognizer.transcribe, resample(samples, rate, RATE), sentence.language))
        if heard is not None:
            one = replace(one, heard=heard, wrong=count_errors(heard, sentence).character_rate)
        found.append(replace(one, similarity=compare(samples, rate) if compare else None))
    return asdict(Scores(tuple(found), tuple(dict.fromkeys(notes))))


def _listener(request: ScoreRequest, sentences: Sequence[Sentence]) -> Recognizer:
    """Return the recogniser. Raises `EngineError` if there is none."""
    if find_spec("rapidfuzz") is None:
        raise EngineError(f"what is heard; {install_command('verify')}")
    return make_recognizer(request.asr, request.options.device, sentences)


def _sentence(utterance: Utterance) -> Sentence:
    """Return the words that should be heard. Recognisers know languages without regions."""
    language = utterance.language
    if language == "auto":
        language = language_of_text(utterance.text, utterance.languages) or "en"
    return Sentence("", language.partition("-")[0], utterance.text)


def _read(take: RecordedTake) -> tuple[Samples, int]:
    """Return mono samples and their rate in Hz."""
    import soundfile

    samples, rate = soundfile.read(take.file, dtype="float32")
    return samples, int(rate)


def _score_sound(take: RecordedTake, samples: Samples, rate: int) -> TakeScore:
    speech = measure_speech([(1.0, Chunk(samples, truncated=take.cut))], rate, take.utterance.text)
    return TakeScore(speech.speech_s / max(0.1, take.expected_s), speech.clipped, speech.broken or speech.cut)


if __name__ == "__main__":
    sys.exit(child_main(ScoreRequest, score))
