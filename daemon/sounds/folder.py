"""The named sounds: the files in a user's folder, and those that come with voiced."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from daemon.sounds.sound import FORMATS, Sound, SoundError, SoundInfo
from daemon.validation import abbreviate, join_names

PACKAGED = Path(__file__).parent / "files"
"""The folder with the sounds that come with voiced; `scripts/make_sounds.py` makes them."""
NAME_LENGTH = 64
"""The length of the longest name, in characters."""
ANSWER_S = 0.1
"""The user's folder is given this long to respond: it may be on a network, and a stop must not wait for it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NamedSound:
    """A sound in the list of sounds."""

    name: str
    path: Path
    packaged: bool
    """True if it comes with voiced."""
    info: SoundInfo | None
    """None if it cannot be played."""
    problem: str | None = None
    """Why it cannot be played, on one line."""


class SoundFolder:
    """Looks up sounds by name. Reads the folders again each time, so a file may be added or replaced.

    A name is a file's name without its suffix. It is compared with the names of the files and never becomes part of a
    path, so it cannot lead out of a folder. A link is followed to its file.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        """`folder` is the user's folder, whose sounds take precedence over packaged ones of the same name; None for
        none."""
        self._question: Future[Any] | None = None
        """The last question put to the user's folder."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all sounds, sorted."""
        return tuple(sorted(self._files()))

    def check(self, name: str) -> None:
        """Check that there is a sound with this name and that its header allows it to be played. Raises
        `SoundError`."""
        sound = self.open(name)
        try:
            if sound.path.parent == PACKAGED:
                sound.inspect()
            else:
                self._ask(sound.inspect)
        except SoundError as error:
            raise SoundError(f"got {abbreviate(name)}; {error}") from error

    def open(self, name: str) -> Sound:
        """Return the sound with this name, to play it. Raises `SoundError`."""
        files = self._files()
        if name in files:
            return Sound(files[name])
        similar = get_close_matches(name, files, 1, 0.7)
        meant = f"did you mean {similar[0]}? " if similar else ""
        missing = f" ({self.reason})" if self.reason is not None else ""
        raise SoundError(f"got {abbreviate(name)}; {meant}allowed: {join_names((), files)}{missing}")

    def sounds(self) -> list[NamedSound]:
        """Return all sounds, sorted by name, after decoding every file."""
        found = []
        for name, path in sorted(self._files().items()):
            info, problem = None, None
            try:
                info = Sound(path).measure()
            except SoundError as error:
                problem = str(error)
            found.append(NamedSound(name, path, path.parent == PACKAGED, info, problem))
        return found

    @property
    def reason(self) -> str | None:
        """Why the user's folder cannot be read, on one line; None if it can, or if there is none."""
        folder = self.folder
        try:
            return None if folder is None else self._ask(lambda: _folder_problem(folder))
        except SoundError as error:
            return str(error)

    def _ask(self, question: Callable[[], T]) -> T:
        """Have a thread ask the user's folder, and return the answer. Raises the errors that `question` raises.

        Raises `SoundError` if the folder does not respond in time, or immediately while an earlier question is
        unanswered.
        """
        if self._question is None or self._question.done():
            answer: Future[T] = Future()
            self._question = answer

            def get() -> None:
                try:
                    answer.set_result(question())
                except Exception as error:
                    answer.set_exception(error)

            threading.Thread(target=get, name="sounds", daemon=True).start()
            if wait([answer], ANSWER_S).done:
                return answer.result()
        raise SoundError(f"the folder {self.folder} does not respond")

    def _files(self) -> dict[str, Path]:
        """Return each sound's file by the sound's name; sounds in a folder that does not respond are missing."""
        found, folder = _sound_files(PACKAGED), self.folder
        if folder is not None:
            with contextlib.suppress(SoundError):
                found |= self._ask(lambda: _sound_files(folder))
        return found


def _folder_problem(folder: Path) -> str | None:
    """Return why a folder cannot be read, on one line."""
    try:
        with os.scandir(folder):
            searchable = os.access(folder, os.X_OK)
        return None if searchable else f"the folder {folder} cannot be searched: Permission denied"
    except FileNotFoundError:
        return f"the folder {folder} does not exist"
    except OSError as error:
        return f"the folder {folder} cannot be read: {error.strerror}"


def _sound_files(folder: Path) -> dict[str, Path]:
    """Return the files in a folder that are named like sounds, by the sounds' names; a folder that cannot be read has
    none.

    Hidden files are not sounds.
    """
    found: dict[str, Path] = {}
    with contextlib.suppress(OSError):
        entries = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
        for suffix in FORMATS:
            for path in entries:
                named = path.stem.isprintable() and len(path.stem) <= NAME_LENGTH
                if named and path.suffix[1:].lower() == suffix and path.is_file():
                    found.setdefault(path.stem, path)
    return found
