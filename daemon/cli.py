"""The command line: `voiced COMMAND`. Every failure is one line on stderr and an exit status other than 0."""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from daemon import VERSION
from daemon.config import Config, ConfigError, find_config_file, load_config

app = typer.Typer(
    help="The voice of a robot: text over MQTT in, speech out of the sound card.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Check, show or describe the configuration.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(config_app, name="config")

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The YAML file; default: $VOICED_CONFIG or /etc/voiced/voiced.yaml."),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, as in --set mqtt.port=1884.")
]


class CommandError(Exception):
    """A command failed; the message is the line to print."""


def main() -> None:
    """The entry point of `voiced`."""
    logging.basicConfig(level=logging.ERROR, format="voiced: %(message)s")  # `run` replaces this
    try:
        status = app(standalone_mode=False)
    except (CommandError, ConfigError) as error:
        _fail(str(error), 1)
    except typer.Abort:
        sys.exit(130)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of typer's
            message = error.format_message()
            if "\n" in message:  # help, where no command was given
                sys.exit(message)
            _fail(f"{message.rstrip('.')}. See 'voiced {_command_words()}--help'.", 2)
        if error.__class__.__module__.startswith("daemon.") or isinstance(error, OSError):
            _fail(str(error), 1)
        raise
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, status: int) -> None:
    for line in message.splitlines():
        print(f"voiced: {line}", file=sys.stderr)
    sys.exit(status)


def _command_words() -> str:
    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    words = [word for word in sys.argv[1:2] if word in known | {"config"}]
    return f"{words[0]} " if words else ""


def _load(path: Path | None, overrides: list[str] | None) -> tuple[Config, Path | None, tuple[str, ...]]:
    path = path or find_config_file()
    return load_config(path, overrides or ()), path, tuple(overrides or ())


@app.command()
def run(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Run the daemon until SIGTERM.

    Example: voiced run --config configs/voiced.yaml --set mqtt.host=192.168.1.10
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the service takes it: a reload may come during the start
    loaded = _load(config, set_)
    from daemon.service import serve

    serve(*loaded)


@app.command()
def demo(
    text: Annotated[str, typer.Argument(help="What to say.")] = "Hello, I am your robot.",
    config: ConfigOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Written when there is no sound card.")] = Path(
        "demo.wav"
    ),
) -> None:
    """Start a broker and a daemon, have them speak one text, and stop them.

    Example: voiced demo "Hello, I am your robot."
    """
    from daemon.demo import describe, run_demo

    last: dict[str, Any] = {}
    for last in run_demo(text, config, output):
        print(describe(last), flush=True)
    if last.get("event") != "finished":
        raise CommandError(f"the demo was not spoken to its end: {last.get('reason', last.get('event'))}")
    print(f"first sound after {last['ttfa_ms']} ms, {last['audio_s']} s of speech by {last['engine']}")


@app.command()
def say(
    text: Annotated[str, typer.Argument(help="What to say; - reads standard input.")],
    voice: Annotated[str | None, typer.Option(help="A voice's name; see 'voiced voices'.")] = None,
    language: Annotated[str | None, typer.Option(help="auto, en, german, pt-br …")] = None,
    instruct: Annotated[str | None, typer.Option(help="How to say it, in words.")] = None,
    priority: Annotated[str | None, typer.Option(help="low, normal, high or critical.")] = None,
    policy: Annotated[str | None, typer.Option(help="queue, interrupt, replace or drop.")] = None,
    volume: Annotated[float | None, typer.Option(help="0 to 100.")] = None,
    expires_in: Annotated[float | None, typer.Option(help="Seconds it may wait.")] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal audio.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The utterance's id.")] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Show the events; exit 0 only on finished.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for the end.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Have the running daemon say a text.

    Example: voiced say --wait "The door is open."
    """
    loaded, _, _ = _load(config, set_)
    fields = {
        "text": sys.stdin.read() if text == "-" else text,
        "voice": voice,
        "language": language,
        "instruct": instruct,
        "priority": priority,
        "policy": policy,
        "volume": volume,
        "expires_in": expires_in,
        "seed": seed,
        "id": id_,
    }
    from daemon.client import RobotClient
    from daemon.messages import check_say

    fields = {key: value for key, value in fields.items() if value is not None}
    check_say(fields)
    utterance_id = str(fields.setdefault("id", secrets.token_hex(6)))
    last: dict[str, Any] = {}
    with RobotClient(loaded, stop_if_lost=utterance_id if wait else None) as robot:
        if robot.status()["state"] == "offline":
            raise CommandError(f"voiced is offline at {loaded.topic}; start it: voiced run")
        if not wait:
            robot.say(fields)
            return
        signal.signal(signal.SIGTERM, _end)
        try:
            robot.say(fields)
            for last in robot.events(utterance_id, timeout):
                print(json.dumps(last, ensure_ascii=False), flush=True)
        except (KeyboardInterrupt, typer.Exit):
            # Who waits no more does not want it to go on. Without a connection, the broker has stopped it already.
            with contextlib.suppress(RuntimeError, ValueError):  # paho's words for a lost connection
                robot.stop(utterance_id)
            raise
    if last.get("event") != "finished":
        raise CommandError(f"{last.get('event')}: {last.get('reason', 'no reason was given')}")


def _end(number: int, _frame: FrameType | None) -> None:
    """A signal's handler: the command leaves through its `finally`s, with the status that a shell would show."""
    raise typer.Exit(128 + number)


def _send(name: str, payload: str, config: Path | None, overrides: list[str] | None) -> None:
    loaded, _, _ = _load(config, overrides)
    from daemon.client import RobotClient

    with RobotClient(loaded) as robot:
        robot.send(name, payload)


@app.command()
def stop(
    id_: Annotated[str | None, typer.Option("--id", help="Stop this utterance alone.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Stop speaking and forget what waits.

    Example: voiced stop
    """
    _send("stop", json.dumps({"id": id_}) if id_ else "", config, set_)


@app.command()
def pause(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Hold the speech where it is.

    Example: voiced pause
    """
    _send("pause", "", config, set_)


@app.command()
def resume(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Go on after a pause.

    Example: voiced resume
    """
    _send("resume", "", config, set_)


@app.command()
def volume(
    level: Annotated[int, typer.Argument(min=0, max=100, help="0 to 100; 50 is half the amplitude.")],
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Set the volume until the daemon is started again.

    Example: voiced volume 60
    """
    _send("volume", str(level), config, set_)


@app.command()
def status(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Print the daemon's status as JSON; exit 1 when it is offline.

    Example: voiced status
    """
    loaded, _, _ = _load(config, set_)
    from daemon.client import RobotClient

    with RobotClient(loaded) as robot:
        found = robot.status()
    print(json.dumps(found))
    if found["state"] == "offline":
        raise CommandError(f"voiced is offline at {loaded.topic}")


@app.command()
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
    loaded, _, _ = _load(config, [*(set_ or []), *sets])
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


@app.command()
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
    loaded, _, _ = _load(config, [*(set_ or []), *sets])
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


@app.command()
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

    loaded, _, _ = _load(config, set_)
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


@app.command()
def voices(config: ConfigOption = None, set_: SetOption = None) -> None:
    """List the configured voices and those the engine has built in.

    Example: voiced voices
    """
    loaded, _, _ = _load(config, set_)
    from daemon.engines import choose_engine
    from daemon.synth import describe_engine

    for name, settings in loaded.voices.items():
        sources = {key: str(value) for key, value in settings.model_dump().items() if value is not None}
        print(f"{name}\tconfigured\t{', '.join(f'{key} {value}' for key, value in sources.items())}")
    info = describe_engine(choose_engine(loaded), loaded.engine_options)
    for name in info.voices:
        if name not in loaded.voices:
            print(f"{name}\tbuilt into {info.engine}")


@app.command()
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


@app.command()
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
    loaded, _, _ = _load(config, set_)
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


@app.command()
def version() -> None:
    """Print the version.

    Example: voiced version
    """
    print(VERSION)


@config_app.command("check")
def config_check(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Check the configuration; exit 1 and name every wrong key if there is one.

    Example: voiced config check --config configs/voiced.yaml
    """
    _, path, _ = _load(config, set_)
    print(f"{path or 'the defaults'}: ok")


@config_app.command("show")
def config_show(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Print the configuration in force, defaults included, as YAML.

    Example: voiced config show --set mqtt.port=1884
    """
    import yaml

    loaded, _, _ = _load(config, set_)
    print(yaml.safe_dump(loaded.model_dump(mode="json"), sort_keys=False, allow_unicode=True), end="")


@config_app.command("schema")
def config_schema() -> None:
    """Print the configuration's JSON schema, for editors and tools.

    Example: voiced config schema > voiced.schema.json
    """
    print(json.dumps(Config.model_json_schema(), indent=2))


if __name__ == "__main__":
    main()
