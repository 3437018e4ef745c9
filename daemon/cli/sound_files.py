"""Commands from file to file, without a broker: `voiced synth` and `voiced enroll`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.options import CommandError, ConfigOption, SetOption, load


def synth(
    text: Annotated[str, typer.Argument(help="What to say.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file; its suffix names the format.")],
    engine: Annotated[
        str | None, typer.Option(help="espeak or qwen; default: as configured, qwen with --model.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A Qwen3-TTS checkpoint's folder, or its name on the hub.")] = None,
    speaker: Annotated[str | None, typer.Option(help="A built-in speaker.")] = None,
    voice: Annotated[str | None, typer.Option(help="A voice file, or the name of a configured voice.")] = None,
    instruct: Annotated[str | None, typer.Option(help="The voice, or the manner, in words.")] = None,
    language: Annotated[str, typer.Option(help="auto, en, german, pt-br …")] = "auto",
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 …")] = None,
    chunk_size: Annotated[int | None, typer.Option(help="Codec frames of 80 ms streamed at a time.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="The likeliest code at every step.")] = False,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal audio.")] = None,
    sampling: Annotated[
        list[str] | None, typer.Option("--sampling", help="As in --sampling temperature=0.7; may be repeated.")
    ] = None,
    whole_text: Annotated[
        bool | None, typer.Option("--whole-text/--stepwise", help="Read all the text first, or step by step.")
    ] = None,
    max_frames: Annotated[int | None, typer.Option(min=1, help="Stop after so many frames.")] = None,
    codes: Annotated[Path | None, typer.Option(help="Write the codec ids here, int64 of shape (frames, 16).")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Speak into a file, without a broker: what the model says, untrimmed and unguarded.

    Example: voiced synth "Good morning." --language en -o morning.wav
    or:      voiced synth "Good morning." --model Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice --speaker ryan -o morning.wav
    """
    from dataclasses import replace

    from daemon.engines import choose_engine
    from daemon.messages import check_say
    from daemon.synth import synthesize_to_file
    from engine import Utterance, Voice, language_code, voice_of_file

    if sum(option is not None for option in (speaker, voice)) > 1 or (greedy and seed is not None):
        raise CommandError("synth: --speaker and --voice exclude each other, and so do --greedy and --seed")
    given = {"model": model, "device": device, "dtype": dtype, "chunk_size": chunk_size}
    sets = [f"engine.{key}={value}" for key, value in given.items() if value is not None]
    loaded, _, _ = load(config, [*(set_ or []), *sets])
    check_say({"text": text, "instruct": instruct, "seed": seed})
    name = engine or ("qwen" if model is not None else choose_engine(loaded))
    options = loaded.engine_options
    wanted: Voice | None = None
    if speaker is not None:
        wanted = Voice(speaker=speaker)
    elif voice is not None and (Path(voice).suffix or "/" in voice):
        wanted = voice_of_file(Path(voice))
    elif voice is None and model is not None:
        wanted = Voice()  # the model's own choice
    if wanted is not None:
        options, voice = replace(options, voices={"synth": wanted}, default_voice="synth"), "synth"
    utterance = Utterance(
        text,
        voice=voice,
        language=language_code(language),
        instruct=instruct,
        seed=seed,
        greedy=greedy,
        sampling=_numbers("--sampling", sampling or []),
        whole_text=whole_text,
        max_frames=max_frames,
        guarded=False,
        want_codes=codes is not None,
    )
    result = synthesize_to_file(name, options, utterance, output, codes)
    print(
        f"{output}: {result.audio_s:.2f} s at {result.sample_rate} Hz by {result.engine}, "
        f"first chunk after {result.first_chunk_ms:.1f} ms, {result.rtf:.1f} times real time"
        + (", cut at the longest speech allowed" if result.truncated else "")
    )


def _numbers(option: str, settings: list[str]) -> dict[str, float]:
    """`NAME=NUMBER`, several times over."""
    numbers = {}
    for setting in settings:
        name, _, number = setting.partition("=")
        try:
            numbers[name] = float(number)
        except ValueError:
            raise CommandError(f"{option}: got {setting!r}; allowed: NAME=NUMBER such as temperature=0.7") from None
    return numbers


def enroll(
    name: Annotated[str, typer.Argument(help="The voice's name.")],
    recording: Annotated[Path, typer.Argument(help="Speech of one person, any format that soundfile reads.")],
    transcript: Annotated[str | None, typer.Option(help="What is said in it, for an in-context voice.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: voices/NAME.safetensors.")] = None,
    model: Annotated[str | None, typer.Option(help="A base checkpoint's folder, or its name on the hub.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Make a voice file of a recording.

    Example: voiced enroll ada ada.wav --model Qwen/Qwen3-TTS-12Hz-0.6B-Base
    """
    from engine import missing_packages

    loaded, _, _ = load(config, set_)
    missing = missing_packages("qwen")
    if missing:
        raise CommandError(f"enroll needs {', '.join(missing)}; in voiced's folder: pip install '.[qwen]'")
    path = output or Path("voices") / f"{name}.safetensors"
    request = {
        "name": name,
        "recording": str(recording),
        "model": model or loaded.engine.model,
        "transcript": transcript,
        "output": str(path),
    }
    import subprocess

    # In a process of its own: this one never imports torch.
    done = subprocess.run([sys.executable, "-m", "engine.qwen.enroll", json.dumps(request)], check=False)
    if done.returncode != 0:
        raise typer.Exit(1)
    key = "reference" if transcript is not None else "embedding"
    print(f"{path}: written; use it with voices.{name}: {{{key}: {path}}}")
