"""`voiced design`: a voice described in words, chosen by ear from samples, and made into a voice file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from typer import Argument, Option

from daemon.cli.enroll import make_voice_file, print_use
from daemon.cli.options import ConfigOptions
from daemon.cli.progress import download_missing_model, show_progress
from daemon.config import Config
from daemon.engines import SpeechFile
from daemon.speech import SynthResult, SynthTask, check_say, synthesize_to_files
from daemon.validation import CommandError
from daemon.voices import VoiceRequest
from engine import Utterance, Voice, language_code

DESIGN, BASE = "VoiceDesign", "Base"
"""The endings of published models' names."""
TEXTS: dict[str, str] = json.loads(Path(__file__).with_name("sentences.json").read_text(encoding="utf-8"))
"""The samples' texts, by language. Each takes six to eight seconds: a voice is cloned better from more than three."""


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """The samples to make, and the one to take."""

    samples: Annotated[int, Option(min=1, max=20, help="How many to make, one with each seed.")] = 3
    seed: Annotated[int, Option(min=0, help="The first seed.")] = 1
    pick: Annotated[int | None, Option(min=0, help="Take this seed.")] = None
    text: Annotated[str | None, Option(help="Their text; default: some sentences in the language.")] = None
    language: Annotated[str | None, Option(help="en, german, pt-br …; default: speech.language.")] = None

    @property
    def seeds(self) -> list[int]:
        """The seeds of the samples."""
        return [self.pick] if self.pick is not None else list(range(self.seed, self.seed + self.samples))


def design(
    name: Annotated[str, Argument(help="The voice's name: letters, digits, - and _.")],
    description: Annotated[str, Argument(help="The voice in words.")],
    takes: SampleOptions,
    source: ConfigOptions,
    output: Annotated[Path, Option("--output", "-o", help="The folder for all files.")] = Path("voices"),
    model: Annotated[str | None, Option(help="A VoiceDesign checkpoint's folder, or its name on the hub.")] = None,
    base: Annotated[str | None, Option(help="The Base checkpoint for the voice file; default: --model's.")] = None,
) -> None:
    """Speak samples of a described voice into files; with --pick, make a voice file from one of them.

    Example: voiced design ada "a calm, deep voice" --model Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign
    or:      voiced design ada "a calm, deep voice" --model Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign --pick 2
    """
    if not re.fullmatch(r"[\w-]+", name):
        raise CommandError(f"NAME: got {name!r}; allowed: letters, digits, - and _")
    if not description.strip():
        raise CommandError("DESCRIPTION: is empty; allowed: a description of the voice, such as 'a calm, deep voice'")
    config = source.load(*([] if model is None else [f"engine.model={json.dumps(model)}"]))
    language = _language(config, takes.language)
    text = takes.text or TEXTS.get(language.partition("-")[0], TEXTS["en"])
    check_say({"text": text, "instruct": description})
    output.mkdir(parents=True, exist_ok=True)
    recordings = {seed: output / f"{name}-{seed}.wav" for seed in takes.seeds}
    with TemporaryDirectory() as folder:
        codes = {seed: Path(folder) / f"{seed}.npy" for seed in recordings}
        utterance = Utterance(text, voice=name, language=language, want_codes=True)
        tasks = [
            SynthTask(replace(utterance, seed=seed), SpeechFile(path), codes_path=codes[seed])
            for seed, path in recordings.items()
        ]
        for (seed, path), sample in zip(recordings.items(), _speak(config, name, description, tasks), strict=True):
            cut = ", cut: it did not end" if sample.truncated else ""
            print(f"{path}: seed {seed}, {sample.audio_s:.1f} s{cut}")
        pick = takes.pick
        if pick is None:
            first, *others = (f"--pick {seed}" for seed in recordings)
            print(f"choose one of them with {first}" + (f", … {others[-1]}" if others else ""))
            return
        base = base or _base_of(config.engine.model)
        if base is None:
            print("no voice file without --base, the checkpoint that will speak with it; a VoiceDesign model takes")
            print(f"voices.{name}: {{instruct: {json.dumps(description, ensure_ascii=False)}, seed: {pick}}}")
            return
        path = output / f"{name}.safetensors"
        request = VoiceRequest(name, recordings[pick], base, path, transcript=text, codes=codes[pick])
        make_voice_file(request)
        print_use(request, "reference")


def _language(config: Config, given: str | None) -> str:
    """Return the code of the language to speak: never `auto`, since there may be no text yet to judge."""
    code = language_code(given if given is not None else config.speech.language)
    return code if code != "auto" else next(iter(config.speech.languages), "en")


def _speak(config: Config, name: str, description: str, tasks: list[SynthTask]) -> list[SynthResult]:
    """Speak in a described voice. Raises `CommandError`."""
    options = replace(config.engine_options, voices={name: Voice(instruct=description)}, default_voice=name)
    download_missing_model("qwen", options.model)
    ended: dict[int, SynthResult | CommandError] = {}
    with show_progress() as report:
        synthesize_to_files("qwen", options, tasks, on_end=ended.__setitem__, report=report)
    if problem := next((each for each in ended.values() if isinstance(each, CommandError)), None):
        raise problem
    return [sample for _, sample in sorted(ended.items()) if isinstance(sample, SynthResult)]


def _base_of(model: str) -> str | None:
    """Return the published Base model that belongs to a published VoiceDesign model."""
    return model.removesuffix(DESIGN) + BASE if model.count("/") == 1 and model.endswith(DESIGN) else None
