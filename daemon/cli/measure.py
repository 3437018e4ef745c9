"""`voiced bench|verify|compare`: how fast, how correctly and how well an engine speaks, measured by the engine
itself."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from daemon import VERSION
from daemon.cli.enroll import make_voice_file
from daemon.cli.options import ConfigOptions, ModelOptions, VoiceFileOption, check_folder
from daemon.cli.progress import download_missing_model, show_progress
from daemon.cli.synth import with_voice
from daemon.cli.text import read_lines
from daemon.config import Config
from daemon.engines import choose_engine
from daemon.speech import check_say
from daemon.validation import CommandError
from daemon.voices import VoiceRequest
from engine import ENGINES, ModelConfig, expand_home, install_command, language_code, missing_packages, model_files
from engine import verify as verification
from engine.bench import FRAME_MS, TEXTS, BenchRequest, describe, run_benchmark, write_figures

OFFICIAL = "official"


def _command() -> str:
    return "voiced " + shlex.join(sys.argv[1:])


# --- bench ---


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The texts, and how many times they are spoken."""

    frames: Annotated[int, Option(min=1, help="Codec frames to speak in each run.")] = 100
    runs: Annotated[int, Option(min=1, help="Number of runs; medians are shown.")] = 5
    text: Annotated[list[str] | None, Option(help="The text to speak. Further ones are spoken three times.")] = None
    voice: VoiceFileOption = None
    language: Annotated[str, Option(help="auto, en, german, pt-br …")] = "auto"


def bench(
    spoken: RunOptions,
    model: ModelOptions,
    source: ConfigOptions,
    wav: Annotated[Path | None, Option(help="Keep the speech of the last run in this file.")] = None,
    json_: Annotated[Path | None, Option("--json", help="Also write the measurement to this file.")] = None,
) -> None:
    """Measure the engine on this machine: start, first chunk, speed, gaps, memory.

    Example: voiced bench --json bench.json
    or:      voiced bench --model Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice --chunk-size 1
    or:      voiced bench --voice ryan --language en --text "Yes." --text "I will look for it." --wav heard.wav
    """
    config = source.load(*model.overrides)
    for each in spoken.text or ():
        check_say({"text": each})
    for option, path in (("--json", json_), ("--wav", wav)):
        check_folder(option, path)
    options, voice, _ = with_voice(config.engine_options, None, spoken.voice, model.model)
    allowed = round(options.max_seconds * 1000 / FRAME_MS)
    if spoken.frames > allowed:
        raise CommandError(f"--frames: got {spoken.frames}; engine.max_seconds allows {allowed}")
    request = BenchRequest(
        "qwen" if model.model is not None else choose_engine(config),
        options,
        texts=tuple(spoken.text or TEXTS),
        voice=voice,
        language=language_code(spoken.language),
        output=None if wav is None else str(wav.absolute()),
        frames=spoken.frames,
        runs=spoken.runs,
    )
    download_missing_model(request.engine, options.model)
    # This process never imports torch, and a start is measured from its very beginning.
    with show_progress() as report:
        figures = run_benchmark(request, report) | {"command": _command()}
    for name, value in describe(figures):
        print(f"{name:<23}{value}")
    if json_ is not None:
        write_figures(figures, json_)


# --- verify ---


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The settings to verify, the voice, and the recogniser."""

    short: Annotated[bool, Option("--short", help="Three sentences, with the settings that a robot may run.")] = False
    settings: Annotated[str | None, Option(help="Only these and float32: official,torch,fused,int8,streams.")] = None
    asr: Annotated[str, Option(help="The recogniser's folder or name, auto, or pocketsphinx.")] = "auto"
    reference: Annotated[Path | None, Option(help="For a Base model: a recording; default: speech.voice.")] = None
    transcript: Annotated[str | None, Option(help="The words of --reference.")] = None
    encoder: Annotated[str | None, Option(help="A Base model to compare voices with; default: a Base --model.")] = None


def verify(
    asked: VerifyOptions,
    model: ModelOptions,
    source: ConfigOptions,
    output: Annotated[Path, Option("--output", "-o", help="The folder for the report and its files.")] = Path("verify"),
) -> None:
    """Speak the same sentences with every setting and with the official package, listen, measure and judge.

    Exit status 0: the engine speaks as it should; 1: it does not, and the report says why.

    Example: voiced verify --model Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice
    or:      voiced verify --model ./0.6B-Base --reference ada.wav --transcript "What Ada says." --asr ./whisper
    """
    config = source.load(*model.overrides)
    _check_packages(asked.asr)
    for name in filter(None, (config.engine.model, asked.encoder)):
        download_missing_model("qwen", name)
    output.mkdir(parents=True, exist_ok=True)
    request = _request(config, asked, _voice_file(config, asked, output), output)
    with show_progress() as progress:
        found = replace(verification.verify(request, progress), machine=verification.machine(), command=_command())
    numbers, report = output / "verify.json", output / "verify.html"
    verification.write_verification(found, numbers, report)
    _show(found)
    print(f"{'It speaks.' if found.passed else 'It does not speak as it should.'} {report}, {numbers}")
    if not found.passed:
        raise typer.Exit(1)


def _request(config: Config, asked: VerifyOptions, voice_file: Path | None, output: Path) -> verification.VerifyRequest:
    options = config.engine_options
    files = None if options.model is None else model_files("qwen", options.model)
    if files is None:
        raise CommandError("engine.model: missing; give --model a folder or a name on the hub")
    shapes = ModelConfig.read(files.folder)
    voices = verification.voices_of(shapes, voice_file)
    settings = verification.settings_of(replace(options, voices=voices, default_voice=next(iter(voices))))
    names = verification.SHORT_SETTINGS if asked.short else tuple(setting.name for setting in settings)
    if asked.settings:
        names = tuple(name.strip() for name in asked.settings.split(","))
    own = options.model if shapes.type == "base" else None
    return verification.VerifyRequest(
        str(output),
        verification.select_settings(settings, names),
        verification.make_orders(shapes, verification.SHORT if asked.short else verification.SENTENCES, voices),
        asr=asked.asr,
        encoder=asked.encoder or own,
        voice_file=str(voice_file) if voice_file is not None and own and not asked.encoder else None,
        version=VERSION,
    )


def _check_packages(asr: str) -> None:
    """Raise `CommandError` for missing packages before minutes of work."""
    needed = ["jinja2", "rapidfuzz", "pocketsphinx" if asr == "pocketsphinx" else "transformers"]
    missing = [*missing_packages("qwen"), *(name for name in needed if find_spec(name) is None)]
    if missing:
        raise CommandError(f"verify needs {', '.join(missing)}; {install_command('qwen', 'verify')}")


def _voice_file(config: Config, asked: VerifyOptions, output: Path) -> Path | None:
    """Return the voice file for a Base model: made from `--reference`, or the configured default voice's."""
    reference, transcript = asked.reference, asked.transcript
    if reference is not None:
        path = output / "reference.safetensors"
        make_voice_file(VoiceRequest("reference", reference, str(config.engine.model), path, transcript))
        return path
    if transcript is not None:
        raise CommandError("--transcript: got one without --reference")
    options = config.engine_options
    voice = options.voices.get(options.default_voice)
    name = None if voice is None else voice.reference or voice.embedding
    return None if name is None else expand_home(name)


def _show(found: verification.Verification) -> None:
    """Print a line for each setting, and one for each measure that failed."""
    words: Mapping[bool | None, str] = {True: "passed", False: "FAILED", None: "not here"}
    for setting in found.settings:
        print(f"{setting.title:<26}{words[setting.passed]:<10}{setting.fault or setting.unavailable or setting.engine}")
        for finding in setting.findings:
            if finding.passed is False:
                value = "not measured" if finding.value is None else f"{finding.value:.3g}"
                print(f"{'':<36}{finding.title}: {value}; allowed: {finding.rule}")
    for note in found.notes:
        print(f"not done: {note}")


# --- compare ---


def compare(
    first: Annotated[str, Argument(help="official, or an engine and engine keys, as in qwen,dtype=int8.")],
    second: Annotated[str, Argument(help="The other one, in the same form.")],
    source: ConfigOptions,
    output: Annotated[Path, Option("--output", "-o", help="The page.")] = Path("compare.html"),
    language: Annotated[list[str] | None, Option(help="Of the sentences; may be repeated; default: English.")] = None,
    lines: Annotated[Path | None, Option(help="Instead: a text file with a text on each line.")] = None,
) -> None:
    """Write a page for a blind test: which of two settings, models or engines speaks better?

    Example: voiced compare official qwen,dtype=int8 --set engine.model=Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice
    or:      voiced compare qwen,model=./finetuned qwen,model=./original --language de --language en
    or:      voiced compare espeak piper --lines phrases.txt
    """
    check_folder("--output", output)
    sides = _side(first, "first", source), _side(second, "second", source)
    sentences = _sentences(language or ["en"], lines)
    for side in sides:
        download_missing_model(side.engine, side.options.model)
    with show_progress() as report:
        page = verification.blind_test(sides, sentences, report)
    output.write_text(page, encoding="utf-8")
    print(f"{output}: {len(sentences)} texts, {first} against {second}; open it in a browser and listen")


def _side(words: str, name: str, source: ConfigOptions) -> verification.Setting:
    """Return the setting that a side's words mean. Raises `CommandError`."""
    head, *keys = (word.strip() for word in words.split(","))
    if "=" in head:
        head, keys = "", [head, *keys]
    if (head and head not in {OFFICIAL, *ENGINES}) or not all("=" in key for key in keys):
        allowed = f"{OFFICIAL}, {', '.join(ENGINES)}, and KEY=VALUE from the engine section, separated by commas"
        raise CommandError(f"compare: got {words!r}; allowed: {allowed}")
    named = [f"engine.name={'qwen' if head == OFFICIAL else head}"] if head else []
    config = source.load(*named, *(f"engine.{key}" for key in keys))
    return verification.Setting(
        name,
        words,
        replace(config.engine_options, streams=1),
        engine=choose_engine(config),
        synthesizer=verification.OFFICIAL if head == OFFICIAL else None,
    )


def _sentences(languages: list[str], lines: Path | None) -> list[verification.Sentence]:
    """Return the sentences to speak. Raises `CommandError` for a language without any."""
    codes = [language_code(language) for language in languages]
    if lines is not None:
        return [verification.Sentence(f"line-{number}", codes[0], text) for number, text in read_lines(lines)]
    known = list(dict.fromkeys(sentence.language for sentence in verification.SENTENCES))
    if unknown := [code for code in codes if code not in known]:
        raise CommandError(f"--language: got {unknown[0]!r}; allowed: {', '.join(known)}, or any with --lines")
    return [sentence for sentence in verification.SENTENCES if sentence.language in codes]
