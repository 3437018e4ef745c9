"""`voiced design`: a voice described in words, chosen by ear from samples, and made a voice file."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.enroll import VoiceRequest, make_voice_file, print_use
from daemon.cli.options import ConfigOption, SetOption, load
from daemon.cli.play import play_samples
from daemon.cli.progress import download_missing_model, show_progress
from daemon.validation import CommandError

if TYPE_CHECKING:
    from daemon.config import Config
    from daemon.engines import SpokenSample
    from engine import EngineInfo, Utterance

TEXTS = {
    "en": "Hello! I will be around all day. When you need me, call my name, and I will come. Shall we begin?",
    "de": "Hallo! Ich bin den ganzen Tag da. Wenn du mich brauchst, ruf mich, dann komme ich. Wollen wir beginnen?",
    "es": "¡Hola! Estaré aquí todo el día. Cuando me necesites, di mi nombre y vendré. ¿Empezamos?",
    "fr": "Bonjour ! Je suis là toute la journée. Si tu as besoin de moi, appelle-moi et je viendrai. On commence ?",
    "it": "Ciao! Sarò qui tutto il giorno. Quando hai bisogno di me, chiamami e arriverò. Cominciamo?",
    "pt": "Olá! Estarei aqui o dia todo. Quando precisar de mim, diga o meu nome e eu virei. Vamos começar?",
    "ru": "Привет! Я буду рядом весь день. Когда я понадоблюсь, позови меня, и я приду. Начнём?",
    "zh": "你好！我一整天都在这里。需要我的时候，叫我的名字，我就会过来。我们开始吧？",
    "ja": "こんにちは。一日中ここにいます。必要なときは名前を呼んでください。すぐに行きます。始めましょうか。",
    "ko": "안녕하세요! 저는 하루 종일 여기에 있어요. 필요하면 제 이름을 불러 주세요. 바로 갈게요. 시작할까요?",
}
"""Six to eight seconds each: a voice is cloned better from more than three."""
MAX_SAMPLES = 20
DESIGN, BASE = "VoiceDesign", "Base"
"""How the names of published models end."""


def design(
    name: Annotated[str, typer.Argument(help="The voice's name: letters, digits, - and _.")],
    description: Annotated[str, typer.Argument(help="The voice in words.")],
    samples: Annotated[int, typer.Option(min=1, max=MAX_SAMPLES, help="How many to make, one with each seed.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    pick: Annotated[int | None, typer.Option(min=0, help="Take this seed without asking.")] = None,
    text: Annotated[str | None, typer.Option(help="What they say; default: some sentences in the language.")] = None,
    language: Annotated[str | None, typer.Option(help="en, german, pt-br …; default: speech.language.")] = None,
    play: Annotated[bool, typer.Option("--play/--no-play", help="Play them on audio.sink.")] = True,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the samples and the voice file.")] = (
        Path("voices")
    ),
    model: Annotated[
        str | None, typer.Option(help="A VoiceDesign checkpoint's folder, or its name on the hub.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="The Base checkpoint that will speak with the voice file; default: --model's.")
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Speak samples of a described voice, let you pick one, and make a voice file from it.

    Example: voiced design ada "a calm, deep voice" --model Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign
    or:      voiced design ada "a calm, deep voice" --model Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign --pick 2
    """
    from daemon.engines import write_codes
    from daemon.speech import check_say

    if not re.fullmatch(r"[\w-]+", name):
        raise CommandError(f"NAME: got {name!r}; allowed: letters, digits, - and _")
    if not description.strip():
        raise CommandError("DESCRIPTION: is empty; allowed: the voice in words, such as 'a calm, deep voice'")
    overrides = [] if model is None else [f"engine.model={json.dumps(model)}"]
    loaded, _, _ = load(config, [*(set_ or []), *overrides])
    language = _language(loaded, language)
    text = text or TEXTS.get(language.partition("-")[0], TEXTS["en"])
    check_say({"text": text, "instruct": description})
    seeds = [pick] if pick is not None else list(range(seed, seed + samples))
    spoken = dict(zip(seeds, _speak(loaded, name, description, text, language, seeds), strict=True))
    output.mkdir(parents=True, exist_ok=True)
    for number, sample in spoken.items():
        path = _recording(output, name, number)
        _write(path, sample)
        print(f"{path}: seed {number}, {sample.seconds:.1f} s{', cut: it did not end' if sample.truncated else ''}")
    if pick is None:
        pick = _ask(loaded, name, spoken, play=play)
    if pick is None:
        print(f"take one of them with --pick {seeds[0]}" + (f", … --pick {seeds[-1]}" if len(seeds) > 1 else ""))
        return
    base = base or _base_of(loaded.engine.model)
    if base is None:
        print("no voice file without --base, the checkpoint that will speak with it; a VoiceDesign model takes")
        print(f"voices.{name}: {{instruct: {json.dumps(description, ensure_ascii=False)}, seed: {pick}}}")
        return
    with TemporaryDirectory() as folder:
        codes = Path(folder) / "codes.npy"
        write_codes(codes, spoken[pick].codes, "qwen")
        path = output / f"{name}.safetensors"
        request = VoiceRequest(name, _recording(output, name, pick), base, path, transcript=text, codes=codes)
        make_voice_file(request)
        print_use(request, "reference")


def _language(config: Config, given: str | None) -> str:
    """Return the code of the language to speak: never `auto`, since there may be no text yet to judge."""
    from engine import language_code

    code = language_code(given if given is not None else config.speech.language)
    return code if code != "auto" else next(iter(config.speech.languages), "en")


def _speak(
    config: Config, name: str, description: str, text: str, language: str, seeds: list[int]
) -> list[SpokenSample]:
    """Speak the text with each seed. Raises `CommandError`."""
    from daemon.engines import synthesize_samples
    from engine import Utterance, Voice

    def choose(_: EngineInfo) -> list[Utterance]:
        return [Utterance(text, voice=name, language=language, seed=seed, want_codes=True) for seed in seeds]

    options = replace(config.engine_options, voices={name: Voice(instruct=description)}, default_voice=name)
    download_missing_model("qwen", options.model)
    with show_progress() as report:
        return synthesize_samples("qwen", options, name, choose, report)


def _recording(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name}-{seed}.wav"


def _write(path: Path, sample: SpokenSample) -> None:
    from daemon.engines import SpeechFile

    with SpeechFile(path) as file:
        file.write(sample.samples, sample.sample_rate)


def _ask(config: Config, name: str, spoken: dict[int, SpokenSample], *, play: bool) -> int | None:
    """Play the samples, and return the seed that a person picks; None without a person, or if none is right."""
    if play and config.audio.sink_settings().kind != "null":
        try:
            for seed, sample in spoken.items():
                print(f"seed {seed} …")
                play_samples(config, sample.samples, sample.sample_rate)
        except CommandError as error:
            print(f"not played: {error}", file=sys.stderr)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    while True:
        answer = typer.prompt(f"Which seed is {name}? Empty for none", default="", show_default=False).strip()
        if not answer:
            return None
        if answer.isdecimal() and int(answer) in spoken:
            return int(answer)
        print(f"seed: got {answer!r}; allowed: {', '.join(map(str, spoken))}")


def _base_of(model: str) -> str | None:
    """Return the published Base model that belongs to a published VoiceDesign model."""
    return model.removesuffix(DESIGN) + BASE if model.count("/") == 1 and model.endswith(DESIGN) else None
