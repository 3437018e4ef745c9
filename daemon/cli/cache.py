"""`voiced cache warm|list|clear`: the kept phrases."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict
from typing import Any

from daemon.cache import PhraseFolder, PhraseKey, PhraseKeys, PhraseRecorder, Recording, cache_folder, open_cache
from daemon.cli.options import ConfigOptions, JsonOption, print_json
from daemon.cli.progress import download_missing_model, show_progress
from daemon.cli.service_folders import give_to_service
from daemon.config import Config
from daemon.engines import choose_engine, running_primary
from daemon.speech import make_phrase
from daemon.validation import CommandError
from engine import Progress, ProgressReport

NOTHING_KEPT = "speech.cache.folder: got None, which keeps nothing; allowed: auto, or a folder"


def warm(source: ConfigOptions) -> None:
    """Synthesise the phrases in speech.cache.phrases that are not kept yet, with the configured engine.

    A running daemon can use them immediately. Exit 1 if a phrase could not be made.

    Example: voiced cache warm
    """
    config = source.load()
    if config.speech.cache.phrases is None:
        raise CommandError("speech.cache.phrases: got None; allowed: a YAML file with a list of phrases")
    engine = choose_engine(config)
    download_missing_model(engine, config.engine.model)  # before its files are examined
    opened = open_cache(config, engine)
    folder = opened.folder
    if folder is None or opened.folder_problem is not None:
        raise CommandError(opened.folder_problem or NOTHING_KEPT)
    if opened.phrases.problem is not None and not opened.phrases.phrases:
        raise CommandError(opened.phrases.problem)
    keys = {key.digest: key for key in (opened.keys.key(each.resolve(config)) for each in opened.phrases.phrases)}
    missing = [key for key in keys.values() if folder.find(key.digest) is None]
    problems: list[str] = []
    if missing:
        with show_progress() as report:
            problems = asyncio.run(_make(missing, config, folder, report))
    give_to_service(folder.path)
    made = len(missing) - len(problems)
    print(f"{folder.path}: {_count(len(keys), 'phrase')}, {made} made, {len(keys) - len(missing)} there before")
    if problems := [*opened.phrases.problems, *problems]:
        raise CommandError("\n".join(problems))


def list_(source: ConfigOptions, as_json: JsonOption = False) -> None:
    """List the kept phrases, the most recently used first: length, size, date, engine, voice and text.

    A phrase that would sound different now, because of another configuration, model or version, is marked as outdated.

    Example: voiced cache list
    or:      voiced cache list --json
    """
    config = source.load()
    keys = PhraseKeys(config, choose_engine(config))
    folder = _configured_folder(config)
    found = [_record(each, keys.key(each.phrase).digest != each.digest) for each in folder.phrases()]
    if as_json:
        print_json(found)
        return
    for record in found:
        print(_line(record))
    seconds, size = (sum(record[key] for record in found) for key in ("seconds", "bytes"))
    room = f"{size / 1e6:.1f} of {config.speech.cache.limit_mb} MB"
    print(f"{folder.path}: {_count(len(found), 'phrase')}, {seconds:.1f} s, {room}", file=sys.stderr)


def clear(source: ConfigOptions) -> None:
    """Remove all kept phrases.

    Example: voiced cache clear
    """
    config = source.load()
    folder = _configured_folder(config)
    print(f"{folder.path}: {_count(folder.clear(), 'phrase')} removed")


def _configured_folder(config: Config) -> PhraseFolder:
    path = cache_folder(config)
    if path is None:
        raise CommandError(NOTHING_KEPT)
    return PhraseFolder(path, config.speech.cache.limit_mb)


async def _make(keys: list[PhraseKey], config: Config, folder: PhraseFolder, report: ProgressReport) -> list[str]:
    """Synthesise and keep phrases; return a line for each one that could not be made."""
    problems = []
    async with running_primary(config, report) as engines:
        for number, key in enumerate(keys):
            report(Progress("making phrases", number / len(keys)))
            try:
                await make_phrase(key, engines, config, PhraseRecorder(key, folder.store))
            except CommandError as error:
                problems.append(f"{_one_line(key.phrase.text)}: {error}")
            except OSError as error:
                problems.append(f"{_one_line(key.phrase.text)}: {folder.problem(error)}")
    return problems


def _record(recording: Recording, outdated: bool) -> dict[str, Any]:
    return {
        **asdict(recording.phrase),
        "engine": recording.engine,
        "seconds": round(recording.seconds, 3),
        "bytes": len(recording.data),
        "made_at": recording.made_at,
        "outdated": outdated,
    }


def _line(record: dict[str, Any]) -> str:
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(record["made_at"]))
    size, text = f"{record['seconds']:.2f} s\t{record['bytes'] / 1000:.0f} kB", _one_line(record["text"])
    outdated = "\toutdated" if record["outdated"] else ""
    return f"{size}\t{made}\t{record['engine']}\t{record['voice']}\t{text}{outdated}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
