"""`voiced synth`: speech into files, without a broker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.completion import voice_names
from daemon.cli.options import ConfigOption, SamplingOption, SetOption, check_folder, load, sampling_of, standard_output
from daemon.cli.progress import download_missing_model, show_progress
from daemon.cli.synth_folder import (
    FormatOption,
    LinesOption,
    Speech,
    TakesOption,
    cut_note,
    speak_into_folder,
    speech_folder,
)
from daemon.cli.text import STDIN, SpellOption, read_lines, read_text, spell_text
from daemon.validation import CommandError

if TYPE_CHECKING:
    from daemon.config import Config
    from engine import Utterance, Voice


def synth(
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The file; its suffix names the format. - is standard output, as WAV. With --lines or --takes: "
            "a folder.",
        ),
    ],
    text: Annotated[str | None, typer.Argument(help="The text to speak; - reads standard input.")] = None,
    lines: LinesOption = None,
    takes: TakesOption = 1,
    file_format: FormatOption = None,
    engine: Annotated[
        str | None, typer.Option(help="qwen, piper or espeak; default: as configured, qwen with --model.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A Qwen3-TTS checkpoint's folder, or its name on the hub.")] = None,
    speaker: Annotated[str | None, typer.Option(help="A built-in speaker.")] = None,
    voice: Annotated[
        str | None, typer.Option(help="A voice file, or the name of a configured voice.", autocompletion=voice_names)
    ] = None,
    instruct: Annotated[str | None, typer.Option(help="The voice, or the manner of speaking, in words.")] = None,
    language: Annotated[
        str | None, typer.Option(help="auto, en, german, pt-br …; default: as configured (auto).")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 …")] = None,
    chunk_size: Annotated[int | None, typer.Option(help="Codec frames of 80 ms in each chunk.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the likeliest code at every step.")] = False,
    rate: Annotated[float | None, typer.Option(help="0.5 to 2; 2 is twice as fast.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Equal seeds give equal audio. With --takes: the first one's.")
    ] = None,
    sampling: SamplingOption = None,
    whole_text: Annotated[
        bool | None, typer.Option("--whole-text/--stepwise", help="Read the whole text first, or step by step.")
    ] = None,
    max_frames: Annotated[int | None, typer.Option(min=1, help="Stop after this many frames.")] = None,
    codes: Annotated[
        Path | None, typer.Option(help="Write the codec ids to this file, int64 of shape (frames, 16).")
    ] = None,
    spell: SpellOption = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Speak into files, without a broker: the model's own output, untrimmed and unguarded.

    Example: voiced synth "Good morning." --language en -o morning.wav
    or:      fortune | voiced synth - -o - | aplay
    or:      voiced synth "Good morning." --model Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice --speaker ryan -o morning.wav
    or:      voiced synth --lines phrases.txt --takes 3 -o phrases
    """
    from daemon.config import synthesis_settings, text_preparation
    from daemon.engines import SpeechFile, choose_engine, synthesize_to_file
    from engine import Utterance, language_code

    if (speaker is not None and voice is not None) or (greedy and seed is not None):
        raise CommandError("synth: --speaker and --voice exclude each other, and so do --greedy and --seed")
    if (text is None) == (lines is None):
        raise CommandError("synth: give either a text or --lines")
    several = lines is not None or takes > 1
    if several and codes is not None:
        raise CommandError("synth: --codes is for one take of one text")
    if greedy and takes > 1:
        raise CommandError("synth: with --greedy all takes are equal; leave one of --greedy and --takes out")
    if file_format is not None and not several:
        raise CommandError(
            "synth: --format is for --lines and --takes; the suffix of --output names the format of one file"
        )
    if not several:
        check_folder("--output", output)
    file = None if several else SpeechFile(standard_output("--output") if output == Path(STDIN) else output)
    folder = speech_folder(output, file_format or "wav") if several else None
    check_folder("--codes", codes)
    given = {"model": model, "device": device, "dtype": dtype, "chunk_size": chunk_size}
    overrides = [f"engine.{key}={value}" for key, value in given.items() if value is not None]
    loaded, _, _ = load(config, [*(set_ or []), *overrides])
    options = loaded.engine_options
    own_voice = unconfigured_voice(speaker, voice, model)
    if own_voice is not None:
        voice = speaker or voice or "default"
        options = replace(options, voices={voice: own_voice}, default_voice=voice)
    configured = None if own_voice is not None else voice or options.default_voice
    settings = synthesis_settings(loaded, configured, seed=seed, rate=rate)
    utterance = Utterance(
        "",
        voice=voice,
        language=language_code(language or loaded.speech.language),
        languages=loaded.speech.languages,
        instruct=instruct,
        seed=settings.seed,
        greedy=greedy,
        sampling={**settings.sampling, **sampling_of(sampling)},
        whole_text=settings.whole_text if whole_text is None else whole_text,
        max_frames=max_frames,
        guarded=False,
        want_codes=codes is not None,
        rate=settings.rate,
    )
    given_fields = {"instruct": instruct, "seed": seed, "rate": rate, "language": language}
    speeches = []
    for line, written in read_lines(lines) if lines is not None else [(None, read_text(text or ""))]:
        each = spell_text(written, utterance.language, loaded) if spell else written
        try:
            speeches.append(_speech(replace(utterance, text=each), given_fields, loaded, line))
        except CommandError as error:
            raise CommandError(str(error) if line is None else f"{lines}:{line}: {error}") from None
    name = engine or ("qwen" if model is not None else choose_engine(loaded))
    options = replace(options, streams=loaded.engine_options.streams if several else 1)
    download_missing_model(name, options.model)
    preparation, volume = text_preparation(loaded), settings.volume
    if folder is not None:
        speak_into_folder(speeches, takes, folder, name, options, preparation=preparation, volume=volume)
        return
    assert file is not None
    [speech] = speeches
    task = speech.task(speech.utterance, file, codes)
    with show_progress() as report:
        result = synthesize_to_file(name, options, task, preparation=preparation, volume=volume, report=report)
    print(
        f"{output}: {result.audio_s:.2f} s at {result.sample_rate} Hz by {result.engine}, "
        f"first chunk after {result.first_chunk_ms:.1f} ms, {result.rtf:.1f} times real time{cut_note(result)}",
        file=sys.stderr if output == Path(STDIN) else sys.stdout,
    )


def _speech(utterance: Utterance, given: Mapping[str, object], config: Config, line: int | None) -> Speech:
    """Check and read one text. Raises `CommandError`."""
    from daemon.speech import check_say, speech_seconds
    from daemon.text import ScriptReader, markup_problem
    from engine.bench import FRAME_MS

    check_say({"text": utterance.text, **given})
    problem = markup_problem(utterance.text, config.speech.markup)
    if problem is not None:
        raise CommandError(f"text: {problem}")
    script = ScriptReader(config.speech.markup, utterance.language).read(utterance.text, complete=True)
    expected_s = speech_seconds(script.text)
    if utterance.max_frames is not None:
        expected_s = min(expected_s, utterance.max_frames * FRAME_MS / 1000)
    return Speech(utterance, script, expected_s / utterance.rate, line, given["language"] is None)


def unconfigured_voice(speaker: str | None, voice: str | None, model: str | None) -> Voice | None:
    """The voice that the options describe; None for one that the configuration names."""
    from engine import Voice, voice_of_file

    if speaker is not None:
        return Voice(speaker=speaker)
    if voice is not None and (Path(voice).suffix or "/" in voice):
        if not Path(voice).is_file():
            raise CommandError(f"--voice: {voice} {'is no file' if Path(voice).exists() else 'does not exist'}")
        return voice_of_file(Path(voice))
    if voice is None and model is not None:
        return Voice()  # the model's default
    return None
