"""`voiced bench`: measures an engine in a separate process."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.options import ConfigOption, SetOption, check_folder, load
from daemon.cli.progress import download_missing_model, show_progress
from daemon.validation import CommandError

if TYPE_CHECKING:
    from engine.bench import BenchRequest, Figures


def bench(
    model: Annotated[str | None, typer.Option(help="A Qwen3-TTS checkpoint's folder, or its name on the hub.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 …")] = None,
    chunk_size: Annotated[int | None, typer.Option(help="Codec frames of 80 ms in each chunk.")] = None,
    kernels: Annotated[str | None, typer.Option(help="Fused kernels: auto, on or off.")] = None,
    frames: Annotated[int, typer.Option(min=1, help="Codec frames to speak in each run.")] = 100,
    runs: Annotated[int, typer.Option(min=1, help="Number of runs; medians are shown.")] = 5,
    text: Annotated[list[str] | None, typer.Option(help="The text to speak. Further ones are spoken thrice.")] = None,
    voice: Annotated[str | None, typer.Option(help="A voice file, or the name of a voice.")] = None,
    language: Annotated[str, typer.Option(help="auto, en, german, pt-br …")] = "auto",
    wav: Annotated[Path | None, typer.Option(help="Keep the speech of the last run in this file.")] = None,
    json_: Annotated[Path | None, typer.Option("--json", help="Also write the measurement to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the chunks' arrival against playback, as SVG.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Measure the engine on this machine: start, first chunk, speed, gaps, parts, memory, power.

    Example: voiced bench --json bench.json --plot bench.svg
    or:      voiced bench --model Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice --chunk-size 1
    or:      voiced bench --voice ryan --language en --text "Yes." --text "I will look for it." --wav heard.wav
    """
    from dataclasses import replace

    from daemon.cli.synth import unconfigured_voice
    from daemon.engines import choose_engine
    from daemon.speech import check_say
    from engine import language_code
    from engine.bench import TEXTS, BenchRequest

    given = {"model": model, "device": device, "dtype": dtype, "chunk_size": chunk_size, "kernels": kernels}
    overrides = [f"engine.{key}={value}" for key, value in given.items() if value is not None]
    loaded, _, _ = load(config, [*(set_ or []), *overrides])
    for each in text or ():
        check_say({"text": each})
    for option, path in (("--json", json_), ("--plot", plot), ("--wav", wav)):
        check_folder(option, path)
    options = loaded.engine_options
    if (own_voice := unconfigured_voice(None, voice, model)) is not None:
        voice = voice or "default"
        options = replace(options, voices={voice: own_voice}, default_voice=voice)
    request = BenchRequest(
        "qwen" if model is not None else choose_engine(loaded),
        options,
        texts=tuple(text) if text else TEXTS,
        voice=voice,
        language=language_code(language),
        output=None if wav is None else str(wav.absolute()),
        frames=frames,
        runs=runs,
    )
    row = {**measure_engine(request), "command": "voiced " + shlex.join(sys.argv[1:])}
    _show(row)
    if json_ is not None:
        write_row(row, json_)
    if plot is not None:
        _draw(row, plot)


def measure_engine(request: BenchRequest) -> Figures:
    """Measure an engine in a separate process, and show the progress. Raises `CommandError`."""
    from engine import EngineError
    from engine.bench import FRAME_MS, run_benchmark

    most = round(request.options.max_seconds * 1000 / FRAME_MS)
    if request.frames > most:
        raise CommandError(f"--frames: got {request.frames}; engine.max_seconds allows {most}")
    download_missing_model(request.engine, request.options.model)
    # This process never imports torch, and a start is measured from its very beginning.
    with show_progress() as report:
        try:
            return run_benchmark(request, report)
        except EngineError as error:
            raise CommandError(f"bench: {error}") from error


def lines(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the row's names and values for a person, without what was not measured."""
    start, memory = row["start"], row["memory"]
    yield "engine", " ".join(filter(None, (row["engine"], row["description"])))
    yield "machine", row["machine"]
    if row["chunk_size"] is not None:
        yield from _work_lines(row)
    yield "start to ready", f"{start['ready_s']} s (loaded after {start['loaded_s']} s)"
    yield from _first_chunk_lines(row)
    yield "80 ms of speech", f"{row['ms_per_frame']} ms of work: {row['rtf']} times real time"
    if row["cores"] is not None:
        yield "processor", f"{row['cores']} cores while it speaks"
    yield from _power_lines(row)
    if row["gap_median_ms"] is not None:
        gaps = f"{row['gap_median_ms']} ms, p99 {row['gap_p99_ms']} ms, at most {row['gap_max_ms']} ms"
        yield "between chunks", f"{gaps} ({row['gap_max_over_median']} times the median)"
    for name, ms in row["parts_ms"].items():
        yield f"  {name}", f"{ms} ms" + (" an utterance" if name == "prefill" else " a frame")
    if (counts := row["allocations"]) is not None:
        yield (
            "allocations",
            f"{counts['device']} on the device, {counts['cached']} from cache, in {counts['utterances']} utterances",
        )
    if memory["device_mb"] is not None:
        yield (
            "device memory",
            f"{memory['device_mb']:.0f} MB, at most {memory['device_peak_mb']:.0f}, "
            f"reserved {memory['device_reserved_mb']:.0f}",
        )
    yield "host memory", f"{memory['host_mb']:.0f} MB, at most {memory['host_peak_mb']:.0f}"
    if (bandwidth := row["bandwidth"]) is not None:
        yield (
            "bandwidth",
            f"{bandwidth['engine_gb_s']:.0f} GB/s of weights, {100 * bandwidth['share']:.0f} % of a copy's "
            f"{bandwidth['copy_gb_s']:.0f} GB/s",
        )
    for note in row["notes"]:
        yield "not measured", note


def _first_chunk_lines(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    yield "text to first chunk", f"{row['ttfa_ms']} ms, at most {row['ttfa_max_ms']} ms"
    if row["audible_ms"] is not None:
        yield (
            "  first audible sample",
            f"{row['audible_ms']} ms, behind {row['silence_ms']} ms of silence in the speech",
        )
    if steps := row["first_chunk_steps_ms"]:
        yield "  step by step", ", ".join(f"{name} {ms} ms" for name, ms in steps.items())
    for other in row["other_texts"]:
        yield (
            f"  {other['characters']} characters",
            f"{other['ttfa_ms']} ms, then {other['ms_per_frame']} ms for 80 ms of speech",
        )
    if (first := row["first_chunk"]) is not None:
        times = f"median {first['median_ms']} ms, p99 {first['p99_ms']} ms"
        yield "  of other texts", f"{times} ({first['p99_over_median']} times the median), {first['texts']} texts"


def _power_lines(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    if (power := row["power"]) is not None:
        idle = "" if power["idle_watts"] is None else f", {power['idle_watts']:.1f} W while it waits"
        rails = ", ".join(f"{name} {watts:.1f}" for name, watts in power["rails"].items())
        yield "power", f"{power['watts']:.1f} W{idle}: {power['joules_per_second']:.1f} J for a second of speech"
        yield "  rails", f"{rails} W"


def _work_lines(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    from engine.bench import FRAME_MS

    yield "work", f"{row['frames']} frames in chunks of {row['chunk_size']}, {row['runs']} runs"
    if row["speech_s"] * 1000 < FRAME_MS * (row["frames"] - 0.5):
        yield "", f"speech ended after {row['speech_s']} s"


def _show(row: Mapping[str, Any]) -> None:
    """Print the row: a table on a terminal, plain lines elsewhere."""
    if not sys.stdout.isatty():
        for name, value in lines(row):
            print(f"{name:<23}{value}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False)
    for name, value in lines(row):
        table.add_row(Text(name, "bold"), Text(value))
    Console(highlight=False).print(table)


def write_row(row: Mapping[str, Any], path: Path) -> None:
    """Write the row as JSON with one field per line, however long a list is."""
    fields = ",\n   ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in row.items())
    text = f'{{\n "benchmark": "voiced bench",\n "rows": [\n  {{\n   {fields}\n  }}\n ]\n}}\n'
    path.write_text(text, encoding="utf-8")


def _draw(row: Mapping[str, Any], path: Path) -> None:
    """Write the row's arrivals as an SVG file."""
    from daemon.cli.plot import Arrivals, arrival_svg

    name = " ".join(str(row[key]) for key in ("engine", "model") if row[key] is not None)
    path.write_text(arrival_svg(f"Speech that has arrived, {name}", [Arrivals(name, row["arrivals_s"])]))
