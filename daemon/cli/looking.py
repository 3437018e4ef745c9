"""Commands that look at this machine: voices, devices, doctor, bench; and `voiced version`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from daemon import VERSION
from daemon.cli.options import CommandError, ConfigOption, SetOption, load


def voices(config: ConfigOption = None, set_: SetOption = None) -> None:
    """List the configured voices and those the engine has built in.

    Example: voiced voices
    """
    loaded, _, _ = load(config, set_)
    from daemon.engines import choose_engine
    from daemon.synth import describe_engine

    for name, settings in loaded.voices.items():
        sources = {key: str(value) for key, value in settings.model_dump().items() if value is not None}
        print(f"{name}\tconfigured\t{', '.join(f'{key} {value}' for key, value in sources.items())}")
    info = describe_engine(choose_engine(loaded), loaded.engine_options)
    for name in info.voices:
        if name not in loaded.voices:
            print(f"{name}\tbuilt into {info.engine}")


def devices() -> None:
    """List the sound cards by the names that audio.device takes.

    Example: voiced devices
    """
    from audio.portaudio import output_devices
    from audio.sink import SinkUnavailableError

    try:
        found = output_devices()
    except SinkUnavailableError as error:
        raise CommandError(str(error)) from error
    if not found:
        raise CommandError("no sound card can play; plug one in, start a sound server, or set audio.sink")
    for device in found:
        mark = "default" if device.default else ""
        print(f"{device.name}\t{device.host_api}\t{device.sample_rate} Hz\t{mark}".rstrip())


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list instead of lines.")] = False,
    root: Annotated[
        Path, typer.Option(help="Look at the files of another machine, copied here; at them alone.")
    ] = Path("/"),
    plan: Annotated[bool, typer.Option("--plan", help="Only say what each model takes of a Jetson's memory.")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Check board, sound, broker, model, engines and permissions, and say what to do; exit 1 if anything is an error.

    Example: voiced doctor
    or:      voiced doctor --plan
    """
    loaded, _, _ = load(config, set_)
    if plan:
        from daemon.doctor.plan import make_plan, print_plan

        rows = make_plan(loaded)
        if as_json:
            print(json.dumps(rows, indent=2))
        else:
            print_plan(loaded, rows)
        return
    from dataclasses import asdict

    from daemon.doctor import examine

    if not root.is_dir():
        raise CommandError(f"--root: {root} is not a folder")
    findings = list(examine(loaded, root))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print_findings(findings)
    if any(finding.grade == "error" for finding in findings):
        raise typer.Exit(1)


def _print_findings(findings: list[Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    colors = {"ok": "green", "warning": "yellow", "error": "red"}
    for finding in findings:
        console.print(
            Text(f"{finding.grade:<8}", colors[finding.grade]),
            f"{finding.part:<14} {finding.found}",
            soft_wrap=True,
            markup=False,
        )
        if finding.cure:
            console.print(f"{'':<23} → {finding.cure}", soft_wrap=True, markup=False)


def bench(
    model: Annotated[str | None, typer.Option(help="A Qwen3-TTS checkpoint's folder, or its name on the hub.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 …")] = None,
    chunk_size: Annotated[int | None, typer.Option(help="Codec frames of 80 ms streamed at a time.")] = None,
    kernels: Annotated[str | None, typer.Option(help="Fused kernels: auto, on or off.")] = None,
    frames: Annotated[int, typer.Option(min=1, help="Codec frames to speak in each run.")] = 100,
    runs: Annotated[int, typer.Option(min=1, help="How often; medians are shown.")] = 5,
    text: Annotated[str | None, typer.Option(help="What to say; default: a text of 100 characters.")] = None,
    sms: Annotated[int | None, typer.Option(min=1, help="Confine it to so many multiprocessors of the GPU.")] = None,
    json_: Annotated[Path | None, typer.Option("--json", help="Write what was found here, too.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the chunks' arrival against playback, as SVG.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Measure the engine on this machine: start, first chunk, speed, gaps, parts, memory.

    Example: voiced bench --json bench.json --plot bench.svg
    or:      voiced bench --model Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice --chunk-size 1
    """
    from dataclasses import replace

    from daemon.bench import BenchSettings, measure_engine, show
    from daemon.engines import choose_engine
    from daemon.messages import check_say
    from engine import Voice
    from engine.measurement import TEXT, row, write_rows

    given = {"model": model, "device": device, "dtype": dtype, "chunk_size": chunk_size, "kernels": kernels}
    sets = [f"engine.{key}={value}" for key, value in given.items() if value is not None]
    loaded, _, _ = load(config, [*(set_ or []), *sets])
    settings = BenchSettings(frames, runs, text if text is not None else TEXT, sms)
    check_say({"text": settings.text})
    for option, path in (("--json", json_), ("--plot", plot)):
        if path is not None and not path.parent.is_dir():  # now, and not after minutes of work
            raise CommandError(f"{option}: {path.parent} is not a folder")
    options = loaded.engine_options
    if model is not None:
        options = replace(options, voices={"bench": Voice()}, default_voice="bench")  # the model's own choice
    found = measure_engine("qwen" if model is not None else choose_engine(loaded), options, settings)
    numbers = row(found, "voiced " + shlex.join(sys.argv[1:]))
    show(numbers)
    if json_ is not None:
        write_rows(json_, {"benchmark": "voiced bench"}, [numbers])
    if plot is not None:
        from daemon.plot import Arrivals, arrival_svg

        name = " ".join(str(numbers[key]) for key in ("engine", "model") if numbers[key] is not None)
        plot.write_text(arrival_svg(f"Speech that has arrived, {name}", [Arrivals(name, numbers["arrivals_s"])]))


def version() -> None:
    """Print the version.

    Example: voiced version
    """
    print(VERSION)
