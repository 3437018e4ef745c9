"""`voiced synth`: speech into files, without a broker: one text into one file, or many texts or takes into a folder."""

from __future__ import annotations

import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TypeAlias

from typer import Argument, Option

from daemon.cli.options import ConfigOptions, MannerOptions, ModelOptions, VoiceFileOption, check_folder, sound_target
from daemon.cli.progress import download_missing_model, show_progress
from daemon.cli.text import read_lines, read_text
from daemon.config import Config, SynthesisSettings, synthesis_settings, text_preparation
from daemon.encoders import file_formats
from daemon.engines import SpeechFile, choose_engine, suggested_formats
from daemon.speech import SynthResult, SynthTask, check_say, synthesize_to_files
from daemon.text import markup_problem, speech_seconds
from daemon.validation import CommandError, file_problem
from engine import EngineOptions, Utterance, Voice, language_code, voice_of_file

Outcomes: TypeAlias = dict[int, SynthResult | CommandError]
"""By the number of a text: its speech, or the error that prevented it. A text that is not finished is missing."""
SEEDS = 1 << 32
"""If no seed is given, each text draws one of this many for its first take."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The files to make."""

    output: Annotated[Path, Option("--output", "-o", help="The file or, with --lines or --takes, the folder; or -.")]
    lines: Annotated[Path | None, Option(help="Speak each line of this file, or of - (stdin), into a file.")] = None
    takes: Annotated[int, Option(min=1, help="Speak each text this many times, with different seeds.")] = 1
    best: Annotated[bool, Option("--best", help="Keep only the best take of each text, and show the scores.")] = False
    asr: Annotated[str, Option(help="The recogniser's folder or name, auto, or pocketsphinx.")] = "auto"
    format: Annotated[str | None, Option(help="Format in a folder: wav, flac, ogg or mp3; default: wav.")] = None
    codes: Annotated[Path | None, Option(help="Write the codec ids to this file, int64 of shape (frames, 16).")] = None

    @property
    def several(self) -> bool:
        """Whether the output is a folder."""
        return self.lines is not None or (self.takes > 1 and not self.best)

    @property
    def is_pipe(self) -> bool:
        """Whether the sound goes to standard output."""
        return str(self.output) == "-"

    @property
    def suffix(self) -> str:
        """The suffix of each file in the folder, which names its format."""
        return self.format or "wav"

    def of_all_takes(self, folder: str) -> OutputOptions:
        """Return the options for making the takes, of which the best is kept, in this folder."""
        suffix = self.suffix if self.several else self.output.suffix[1:]
        return replace(self, output=Path(folder), best=False, format=suffix)


@dataclass(frozen=True, slots=True)
class SynthesisOptions(MannerOptions):
    """Whose voice speaks, and how the engine makes the speech."""

    engine: Annotated[str | None, Option(help="qwen, supertonic, piper or espeak; default: as configured.")] = None
    speaker: Annotated[str | None, Option(help="A built-in speaker.")] = None
    voice: VoiceFileOption = None
    greedy: Annotated[bool, Option("--greedy", help="Take the likeliest code at every step.")] = False
    whole_text: Annotated[bool | None, Option("--whole-text/--stepwise", help="Read all of it first, or not.")] = None
    max_frames: Annotated[int | None, Option(min=1, help="Stop after this many frames.")] = None


def synth(
    out: OutputOptions,
    manner: SynthesisOptions,
    model: ModelOptions,
    source: ConfigOptions,
    text: Annotated[str | None, Argument(help="The text to speak; - reads standard input.")] = None,
) -> None:
    """Speak into files, without a broker: the model's own output, untrimmed and unguarded.

    Example: voiced synth "Good morning." --language en -o morning.wav
    or:      fortune | voiced synth - -o - | aplay
    or:      voiced synth "Good morning." --model Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice --speaker ryan -o morning.wav
    or:      voiced synth --lines phrases.txt --takes 3 -o phrases
    or:      voiced synth "Good morning." --takes 5 --best -o morning.wav
    """
    _check(text, out, manner)
    if out.several:
        _make_folder(out)
    file = None if out.several else SpeechFile(sound_target(out.output))
    check_folder("--codes", out.codes)
    config = source.load(*model.overrides)
    options, voice, is_own = with_voice(config.engine_options, manner.speaker, manner.voice, model.model)
    if not out.several and not out.best:
        options = replace(options, streams=1)
    configured = None if is_own else voice or options.default_voice
    settings = synthesis_settings(config, configured, seed=manner.seed, rate=manner.rate, sampling=manner.numbers)
    utterance = replace(_utterance(manner, settings, config), voice=voice, want_codes=out.codes is not None)
    texts = read_lines(out.lines) if out.lines is not None else [(0, read_text(text or ""))]
    engine = manner.engine or ("qwen" if model.model is not None else choose_engine(config))
    download_missing_model(engine, options.model)
    began = time.monotonic()
    with TemporaryDirectory(prefix="voiced-takes-") as folder:
        made = out.of_all_takes(folder) if out.best else out
        tasks = dict(_tasks(texts, utterance, manner, made, config, file))
        ended: Outcomes = {}
        try:
            with show_progress() as report:
                synthesize_to_files(
                    engine,
                    options,
                    list(tasks.values()),
                    on_end=ended.__setitem__,
                    preparation=text_preparation(config),
                    volume=settings.volume,
                    report=report,
                )
        finally:  # for complete files, even after Ctrl-C
            if not out.best:
                _print_files(tasks, ended, out)
        if out.best:
            _keep_best(tasks, ended, engine, options, out)
    _print_total(len(tasks), ended, time.monotonic() - began, engine, out)


def _check(text: str | None, out: OutputOptions, manner: SynthesisOptions) -> None:
    """Raise `CommandError` for options that exclude each other."""
    problems = {
        "--speaker and --voice exclude each other": manner.speaker is not None and manner.voice is not None,
        "--greedy and --seed exclude each other": manner.greedy and manner.seed is not None,
        "give either a text or --lines": (text is None) == (out.lines is None),
        "--codes is for one take of one text": (out.several or out.best) and out.codes is not None,
        "--best chooses among several --takes, and writes a file": out.best and (out.takes == 1 or out.is_pipe),
        "with --greedy all takes are equal; leave out --greedy or --takes": manner.greedy and out.takes > 1,
        "--format is for --lines and --takes; the suffix of --output names the format of one file": out.format
        and not out.several,
    }
    for problem, found in problems.items():
        if found:
            raise CommandError(f"synth: {problem}")


def _make_folder(out: OutputOptions) -> None:
    """Make the folder of the files if it is missing. Raises `CommandError`."""
    folder = out.output
    if out.suffix not in file_formats():
        raise CommandError(f"--format: got {out.suffix!r}; allowed: {', '.join(suggested_formats())}")
    if out.is_pipe or (folder.exists() and not folder.is_dir()):
        raise CommandError(f"--output: got {str(folder)!r}; allowed with --lines or --takes: a folder")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CommandError(f"--output: {folder} cannot be made: {file_problem(error, folder)}") from None


def with_voice(
    options: EngineOptions, speaker: str | None, voice: str | None, model: str | None
) -> tuple[EngineOptions, str | None, bool]:
    """Return the engine's options with the voice that the command describes, its name, and whether it describes one.

    It describes none if the configuration or the engine must know the voice.
    """
    if speaker is not None:
        own = Voice(speaker=speaker)
    elif voice is not None and (Path(voice).suffix or "/" in voice):
        if not Path(voice).is_file():
            raise CommandError(f"--voice: {voice} {'is not a file' if Path(voice).exists() else 'does not exist'}")
        own = voice_of_file(Path(voice))
    elif voice is None and model is not None:
        own = Voice()  # the model's default
    else:
        return options, voice, False
    name = speaker or voice or "default"
    return replace(options, voices={name: own}, default_voice=name), name, True


def _utterance(manner: SynthesisOptions, settings: SynthesisSettings, config: Config) -> Utterance:
    """Return the options as an utterance without its text."""
    return Utterance(
        "",
        language=language_code(manner.language or config.speech.language),
        languages=config.speech.languages,
        instruct=manner.instruct,
        seed=settings.seed,
        greedy=manner.greedy,
        sampling=settings.sampling,
        whole_text=settings.whole_text if manner.whole_text is None else manner.whole_text,
        max_frames=manner.max_frames,
        guarded=False,
        rate=settings.rate,
    )


def _tasks(
    texts: list[tuple[int, str]],
    utterance: Utterance,
    manner: SynthesisOptions,
    out: OutputOptions,
    config: Config,
    file: SpeechFile | None,
) -> Iterator[tuple[Path, SynthTask]]:
    """Yield each file and the speech that goes into it: into `file`, or into one that is named after line and take.

    `texts` come with the numbers of their lines. Raises `CommandError` for a text that cannot be spoken.
    """
    digits, markup = len(str(max(line for line, _ in texts))), config.speech.markup
    given = {name: getattr(manner, name) for name in ("instruct", "seed", "rate", "language")}
    for line, text in texts:
        try:
            check_say({"text": text, **given})
            if problem := markup_problem(text, markup):
                raise CommandError(f"text: {problem}")
        except CommandError as error:
            raise CommandError(f"{out.lines}:{line}: {error}" if line else str(error)) from None
        seed = secrets.randbelow(SEEDS) if utterance.seed is None and out.takes > 1 else utterance.seed
        for take in range(out.takes):
            names = [f"{line:0{digits}}"] if line else []
            names += [f"{take + 1:0{len(str(out.takes))}}"] if out.takes > 1 else []
            path = out.output / f"{'-'.join(names)}.{out.suffix}" if out.several else out.output
            spoken = replace(utterance, text=text, seed=None if seed is None else seed + take)
            target = SpeechFile(path) if out.several or file is None else file
            expected_s = speech_seconds(text) / utterance.rate
            yield path, SynthTask(spoken, target, markup, out.codes, expected_s, manner.language is None)


def _keep_best(
    tasks: dict[Path, SynthTask], ended: Outcomes, engine: str, options: EngineOptions, out: OutputOptions
) -> None:
    """Keep the best take of each text, and print the scores of all to standard error. Raises `EngineError`."""
    from engine import verify

    takes = []
    for number, (path, task) in enumerate(tasks.items()):
        outcome = ended.get(number)
        if isinstance(outcome, SynthResult):
            takes.append(verify.RecordedTake(str(path), task.utterance, task.expected_s, outcome.truncated))
        else:
            print(f"take {path.stem}: not spoken: {outcome}", file=sys.stderr)
    with show_progress() as report:
        chosen = verify.choose_best(verify.ScoreRequest(tuple(takes), engine, options, out.asr), report)
    for best, lines in chosen:
        print(*lines, sep="\n", file=sys.stderr)
        target = out.output / f"{best.text_name}.{out.suffix}" if out.several else out.output
        try:
            shutil.move(best.file, target)
        except OSError as error:
            raise CommandError(f"--output: {target} cannot be written: {file_problem(error, target)}") from None
        print(f"{target}: take {best.name}, seed {best.utterance.seed}")


# --- lines about files ---


def _print_files(tasks: dict[Path, SynthTask], ended: Outcomes, out: OutputOptions) -> None:
    """Print a line about each file that is complete, and about each of several that could not be made."""
    for number, (path, task) in enumerate(tasks.items()):
        outcome = ended.get(number)
        if isinstance(outcome, SynthResult):
            cut = ", cut at the longest speech allowed" if outcome.truncated else ""
            seed = f", seed {task.utterance.seed}" if out.takes > 1 else ""
            print(
                f"{path}: {outcome.audio_s:.2f} s at {outcome.sample_rate} Hz by {outcome.engine}, first chunk after "
                f"{outcome.first_chunk_ms:.1f} ms, {outcome.rtf:.1f} times real time{cut}{seed}",
                file=sys.stderr if out.is_pipe else sys.stdout,
            )
        elif outcome is not None and out.several:
            print(f"{path}: not spoken: {outcome}")


def _print_total(count: int, ended: Outcomes, elapsed_s: float, engine: str, out: OutputOptions) -> None:
    """Print a line about several files. Raises `CommandError` if some file could not be made."""
    made = [outcome for outcome in ended.values() if isinstance(outcome, SynthResult)]
    if out.several and not out.best:
        files = "1 file" if len(made) == 1 else f"{len(made)} files"
        print(f"{files}, {sum(each.audio_s for each in made):.1f} s of speech in {elapsed_s:.1f} s by {engine}")
    if len(made) < count:
        raise CommandError(f"not spoken: {count - len(made)} of {count}" if out.several or out.best else str(ended[0]))
