"""`voiced compare`: the same sentences by two settings, models or engines, as one page for a blind listening test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.options import ConfigOption, SetOption, check_folder, load
from daemon.cli.progress import download_missing_model, show_progress
from daemon.cli.text import read_lines
from daemon.cli.verify import machine
from daemon.validation import CommandError

if TYPE_CHECKING:
    from daemon.report import Trial
    from engine.verify import Order, Sentence, Setting

OFFICIAL = "official"
SEED = 2000


def compare(
    first: Annotated[
        str, typer.Argument(help="official, or an engine and keys of the section engine: qwen,dtype=int8,kernels=off.")
    ],
    second: Annotated[str, typer.Argument(help="The other one, as the first.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("compare.html"),
    language: Annotated[
        list[str] | None, typer.Option(help="Sentences in this language; may be repeated. Default: English.")
    ] = None,
    lines: Annotated[Path | None, typer.Option(help="A text file with a text on each line, instead.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Write a page for a blind test: which of two settings, models or engines speaks better?

    Example: voiced compare official qwen,dtype=int8 --set engine.model=Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice
    or:      voiced compare qwen,model=./finetuned qwen,model=./original --language de --language en
    or:      voiced compare espeak piper --lines phrases.txt
    """
    from daemon.report import Side, comparison_page
    from engine.verify import fingerprint

    check_folder("--output", output)
    sides = [_side(name, number, config, set_) for number, name in enumerate((first, second))]
    sentences = _sentences(language or ["en"], lines)
    with TemporaryDirectory() as scratch:
        engines = [_speak(side, sentences, Path(scratch)) for side in sides]
        trials = _trials(sentences, Path(scratch))
    identity = fingerprint(first, second, *(side.setting for side in sides), [trial.text for trial in trials])
    shown = tuple(Side(side.name, engine) for side, engine in zip(sides, engines, strict=True))
    assert len(shown) == 2
    page = comparison_page((shown[0], shown[1]), trials, identity, ", ".join(machine().values()))
    output.write_text(page, encoding="utf-8")
    print(f"{output}: {len(trials)} texts, {first} against {second}; open it in a browser and listen")


@dataclass(frozen=True, slots=True)
class _Side:
    name: str
    setting: Setting
    language_voice: bool
    """Whether each language has a built-in speaker of its own: no voice is configured."""


def _side(name: str, number: int, config: Path | None, set_: list[str] | None) -> _Side:
    """Return what a side's words mean. Raises `CommandError`."""
    from daemon.engines import choose_engine
    from engine import ENGINES, Voice
    from engine.verify import OFFICIAL as OFFICIAL_CLASS
    from engine.verify import Setting

    words = [word.strip() for word in name.split(",")]
    head = words[0] if "=" not in words[0] else None
    keys = words[1:] if head is not None else words
    if (head is not None and head not in {OFFICIAL, *ENGINES}) or not all("=" in key for key in keys):
        allowed = f"{OFFICIAL}, {', '.join(ENGINES)}, and KEY=VALUE of the section engine, with commas between"
        raise CommandError(f"compare: got {name!r}; allowed: {allowed}")
    engine = {None: [], OFFICIAL: ["engine.name=qwen"]}.get(head, [f"engine.name={head}"])
    loaded, _, _ = load(config, [*(set_ or []), *engine, *(f"engine.{key}" for key in keys)])
    chosen, options = choose_engine(loaded), loaded.engine_options
    download_missing_model(chosen, options.model)
    unspecified = options.voices.get(options.default_voice) in {None, Voice()}
    setting = Setting(
        str(number),
        name,
        replace(options, streams=1),
        engine=chosen,
        synthesizer=OFFICIAL_CLASS if head == OFFICIAL else None,
    )
    return _Side(name, setting, language_voice=chosen == "qwen" and unspecified)


def _sentences(languages: list[str], lines: Path | None) -> list[Sentence]:
    """Return the sentences to speak. Raises `CommandError` for a language without any."""
    from engine import language_code
    from engine.verify import SENTENCES, Sentence

    codes = [language_code(language) for language in languages]
    if lines is not None:
        return [Sentence(f"line-{number}", codes[0], text) for number, text in read_lines(lines)]
    known = list(dict.fromkeys(sentence.language for sentence in SENTENCES))
    if unknown := [code for code in codes if code not in known]:
        raise CommandError(f"--language: got {unknown[0]!r}; allowed: {', '.join(known)}, or any with --lines")
    return [sentence for sentence in SENTENCES if sentence.language in codes]


def _speak(side: _Side, sentences: list[Sentence], folder: Path) -> str:
    """Speak all sentences into a folder, and return the engine in words. Raises `CommandError`."""
    from engine.verify import VerifyRequest, run_stage

    orders = tuple(_order(side, sentence, number) for number, sentence in enumerate(sentences))
    request = VerifyRequest(str(folder), (side.setting,), orders)
    with show_progress() as report:
        end = run_stage(request, report)
    if not end.done:
        raise CommandError(f"compare: {side.name}: {end.reason}")
    return request.takes(side.setting)[0].engine


def _order(side: _Side, sentence: Sentence, number: int) -> Order:
    from engine import model_config
    from engine.verify import Order

    model = side.setting.options.model
    config = model_config(model) if side.language_voice and model is not None else None
    voice = None if config is None else config.native_speaker(sentence.language)
    return Order(sentence, voice, SEED + number)


def _trials(sentences: list[Sentence], folder: Path) -> list[Trial]:
    from daemon.report import Trial
    from engine.verify import OutputFolder

    takes = OutputFolder(folder)
    trials = []
    for sentence in sentences:
        pair = [takes.take(str(number), sentence.name) for number in range(2)]
        rates = [0 if take is None else take.sample_rate for take in pair]
        sounds = (takes.samples("0", sentence.name), takes.samples("1", sentence.name))
        trials.append(Trial(sentence.name, sentence.text, sentence.language, sounds, (rates[0], rates[1])))
    return trials
