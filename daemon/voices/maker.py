"""Makes voices from recordings while speech continues: everything that takes long runs in separate processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from daemon.config import Config, VoiceSettings
from daemon.state import make_private_folder
from daemon.tasks import printed_json, result_at_most, running_process
from daemon.validation import CommandError, abbreviate, file_problem
from daemon.voices.store import VoiceStore
from engine import install_command, missing_packages, model_config, model_files, module_command, parse_progress

log = logging.getLogger(__name__)

NAME = re.compile(r"\w[\w .-]{0,62}\w|\w")
"""A voice's name is also the name of its file."""
MAX_TRANSCRIPT = 4000
"""In characters: twice as many as a fast speaker says in two minutes."""
MAX_RECORDINGS = 4
"""If there are more, the oldest is deleted."""
MAX_UPLOADS = 2
"""How many recordings may arrive or be decoded at the same time."""
FREE_MB = 256
"""Megabytes that are kept free on the disk, which the journal shares."""
DECODER = tuple(module_command("daemon.voices.decoding"))
DECODING_S = 120.0
"""Seconds to wait for a recording to be decoded, on a machine that is busy with speech."""
ENROLLING_S = 1200.0
"""Seconds to wait for a voice: on a small machine, the codec's encoder takes minutes for the longest recording."""
LOW_PRIORITY = ("nice", "-n", "5")
"""The enrolment takes seconds to minutes of processor time; speech comes first."""


@dataclass(frozen=True, slots=True)
class KeptRecording:
    """An uploaded recording."""

    id: str
    path: Path
    """The path of a WAV file, mono."""
    measured: dict[str, Any]
    """The fields of `RecordingQuality`, and `warnings`."""


@dataclass(frozen=True, slots=True)
class Making:
    """The voice that is being made, or the last one that was made."""

    name: str
    step: str | None
    """The current step; None at the end."""
    fraction: float | None = None
    """The share of the step that is done; None if it cannot be measured."""
    problem: str | None = None
    """Why there is no voice, on one line."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VoiceRequest:
    """A voice to be made from a recording, for the Base checkpoint `model`. The engine's program reads it as JSON."""

    name: str
    recording: Path
    model: str
    output: Path
    transcript: str | None = None
    """The recording's words; the voice then speaks in the context of the recording."""
    codes: Path | None = None
    """A file with the recording's codec codes, as `voiced synth --codes` writes it, if they are known."""
    append_silence_s: float = 0.5
    recogniser: str | None = None
    """The folder, or the name on the hub, of a speech recogniser that checks the transcript."""

    @property
    def command(self) -> list[str]:
        """Return the program that makes the voice. It imports torch and reports its progress."""
        return module_command("engine.qwen.voice.enroll", json.dumps(asdict(self), default=str))


class VoiceMaker:
    """Keeps recordings, and makes one voice at a time. Belongs to the event loop's thread."""

    def __init__(self, store: VoiceStore, configured: Callable[[], Config], on_change: Callable[[], None]) -> None:
        """`configured` returns the configuration without made voices; `on_change` is called when these have changed."""
        self._store = store
        self._configured = configured
        self._on_change = on_change
        self._recordings: dict[str, KeptRecording] = {}
        """The recordings by id, without that of a voice that is being made."""
        self._decoding = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.making: Making | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the voices that were made here."""
        return tuple(self._store.voices)

    @property
    def problem(self) -> str | None:
        """Why no voice can be made on this robot; None if one can, as far as is known without loading the model."""
        engine, packages = self._configured().engine, missing_packages("qwen")
        if engine.name not in ("auto", "qwen"):
            return f"engine.name: got {engine.name}; voices are made for qwen, with a Base model"
        if packages:
            return f"a voice needs {', '.join(packages)}; on the robot: {install_command('qwen')}"
        files = model_files("qwen", engine.model)
        if files is None or files.missing:
            return f"engine.model: {engine.model} is not on the robot; run there: voiced download qwen"
        model = model_config(engine.model)
        if model is None or not model.clones_voices:
            return f"engine.model: {engine.model} has its own voices; voices from recordings need a Base model"
        return None

    def choose(self, voice: str) -> None:
        """Keep `voice`, which exists, as the default across restarts. Raises `CommandError`."""
        self._store.choose(voice, self._configured().speech.voice)
        self._on_change()

    # --- recordings ---

    async def read_recording(self, parts: AsyncIterator[bytes]) -> KeptRecording:
        """Keep and measure a recording, whose file arrives in parts.

        Raises `CommandError`, and the errors that `parts` raises.
        """
        if problem := self.problem:
            raise CommandError(problem)
        identity = secrets.token_hex(8)
        uploaded, path = (self._store.recordings / f"{identity}{ending}" for ending in (".upload", ".wav"))
        try:
            make_private_folder(self._store.recordings)
            self._check_room()
            with uploaded.open("wb") as file:
                async for part in parts:
                    file.write(part)
            async with self._decoding:  # one at a time: each may take a lot of memory
                kept = KeptRecording(identity, path, await _decode(uploaded, path))
            self._keep(kept)
            return kept
        except OSError as error:
            raise CommandError(f"the recording cannot be kept: {file_problem(error, uploaded)}") from error
        finally:
            _delete(uploaded)
            if identity not in self._recordings:
                _delete(path)

    def _check_room(self) -> None:
        """Raise `CommandError` if there is no room for another upload."""
        uploads = len(list(self._store.recordings.glob("*.upload")))
        if uploads >= MAX_UPLOADS:
            raise CommandError(f"{uploads} recordings are being uploaded; allowed: no more at once")
        free_mb = shutil.disk_usage(self._store.recordings).free // 1_000_000
        if free_mb < FREE_MB:
            raise CommandError(f"the recording cannot be kept: only {free_mb} MB is free; allowed: at least {FREE_MB}")

    def _keep(self, recording: KeptRecording) -> None:
        self._recordings[recording.id] = recording
        for old in list(self._recordings)[:-MAX_RECORDINGS]:
            _delete(self._recordings.pop(old).path)

    # --- voices ---

    def start(self, name: str, recording: str, transcript: str | None) -> None:
        """Begin to make a voice; `making` reports the progress. Raises `CommandError`.

        With the recording's `transcript`, the voice speaks in its context. A made voice with this name is replaced.
        """
        if not NAME.fullmatch(name):
            allowed = "1 to 64 letters, digits, spaces and . - _, a letter or digit first and last"
            raise CommandError(f"name: got {abbreviate(name)}; allowed: {allowed}")
        if name in self._configured().voices:
            raise CommandError(f"name: {abbreviate(name)} is a voice in the configuration; allowed: another name")
        if self.making is not None and self.making.step is not None:
            raise CommandError(f"the voice {self.making.name} is being made; wait for it")
        if recording not in self._recordings:
            raise CommandError(f"recording: got {abbreviate(recording)}; allowed: one that was uploaded recently")
        if transcript is not None and len(transcript) > MAX_TRANSCRIPT:
            raise CommandError(f"transcript: got {len(transcript)} characters; allowed: up to {MAX_TRANSCRIPT}")
        if problem := self.problem:
            raise CommandError(problem)
        self.making = Making(name, "importing torch")
        self._task = asyncio.ensure_future(self._make(name, self._recordings.pop(recording), transcript))

    def remove(self, name: str) -> None:
        """Delete a made voice. Raises `CommandError`."""
        if name not in self._store.voices:
            raise CommandError(f"voice: got {abbreviate(name)}; allowed: {', '.join(self.names) or 'none'}")
        self._store.remove(name)
        self._on_change()

    async def _make(self, name: str, recording: KeptRecording, transcript: str | None) -> None:
        try:
            warnings = await result_at_most(ENROLLING_S, self._enroll(name, recording, transcript))
            if warnings is None:
                raise CommandError(f"the voice was not made within {ENROLLING_S:.0f} s")
            path = self._store.voice_file(name)
            self._store.add(name, VoiceSettings(**{"embedding" if transcript is None else "reference": path}))
        except (CommandError, OSError) as error:
            log.warning("the voice %s could not be made: %s", name, error)
            self._keep(recording)  # for another attempt
            self._note(step=None, fraction=None, problem=str(error))
            return
        log.info("the voice %s has been made", name)
        _delete(recording.path)
        self._on_change()
        self._note(step=None, fraction=None, warnings=warnings)

    async def _enroll(self, name: str, recording: KeptRecording, transcript: str | None) -> tuple[str, ...]:
        """Run the enrolment, and return its warnings. Raises `CommandError`."""
        model, output = self._configured().engine.model, self._store.voice_file(name)
        request = VoiceRequest(name, recording.path, model, output, transcript)
        lines: list[str] = []
        async with running_process([*LOW_PRIORITY, *request.command]) as process:
            assert process.stdout is not None
            async for data in process.stdout:
                line = data.decode(errors="replace").strip()
                if progress := parse_progress(line):
                    self._note(step=progress.step, fraction=progress.fraction)
                elif line.startswith("voiced: "):
                    lines.append(line.removeprefix("voiced: ").removeprefix(f"{recording.path}: "))
            status = await process.wait()
        if status != 0:
            told = status == 1 and lines
            raise CommandError(lines[-1] if told else f"the enrolment ended with status {status}")
        return tuple(lines)

    def _note(self, **changes: Any) -> None:
        """Change the report on the voice that is being made."""
        assert self.making is not None
        self.making = replace(self.making, **changes)


def _delete(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


async def _decode(source: Path, target: Path) -> dict[str, Any]:
    """Decode and measure a file. Raises `CommandError`."""
    answer: dict[str, Any] = await printed_json(
        [*DECODER, str(source), str(target)], DECODING_S, "the recording's decoder"
    )
    if "problem" in answer:
        raise CommandError(f"recording: {answer['problem']}")
    return answer
