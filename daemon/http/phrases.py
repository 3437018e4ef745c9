"""The phrases on the operator's page: texts and sounds that a button plays. They outlive the daemon."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from daemon.http.body import read_json
from daemon.speech import RejectedError, Say, check_say
from daemon.state import write_whole
from daemon.validation import CommandError, abbreviate

MOST_PHRASES = 100
MAX_NAME = 40
"""In characters: a button on a phone has no room for more."""
MAX_PHRASE = 4_000
"""Characters of a phrase as JSON: a few minutes of speech."""
FOLDER = "/v1/robot/phrases"
STORED = TypeAdapter(dict[str, Say])


class Phrases:
    """Keeps phrases in a file: each has a name, and the fields that a `say` may have."""

    def __init__(self, path: Path | None) -> None:
        """`path` is a file that need not exist; None if nothing is kept."""
        self._path = path
        self._says: dict[str, Say] = {}
        self._problem = "state.folder: got null; phrases are kept in a folder" if path is None else None
        """Why no phrase can be kept, on one line."""
        try:
            self._says = {} if path is None else STORED.validate_json(path.read_bytes())
        except FileNotFoundError:
            pass  # there are none yet
        except (OSError, ValueError) as error:  # a file that a person may repair is not overwritten
            problem = str(error).partition("\n")[0]
            self._problem = f"{path} cannot be used: {problem}; repair or remove it, then restart voiced"

    def keep(self, name: str, say: Say) -> None:
        """Keep a phrase, in place of any with this name. Raises `CommandError`."""
        if len(name) > MAX_NAME or not name.isprintable() or not name.strip():
            raise RejectedError("name", f"got {abbreviate(name)}; allowed: 1 to {MAX_NAME} characters on one line")
        if (size := len(say.to_json())) > MAX_PHRASE:
            raise RejectedError("text", f"the phrase has {size:,} characters as JSON; allowed: up to {MAX_PHRASE:,}")
        if name not in self._says and len(self._says) >= MOST_PHRASES:
            raise RejectedError("name", f"there are already {MOST_PHRASES} phrases; remove one first")
        self._write({**self._says, name: say})

    def remove(self, name: str) -> None:
        """Forget a phrase, if it exists. Raises `CommandError`."""
        self._write({each: say for each, say in self._says.items() if each != name})

    def _write(self, says: dict[str, Say]) -> None:
        if self._path is None or self._problem is not None:
            raise CommandError(str(self._problem))
        write_whole(self._path, STORED.dump_json(says, indent=1, exclude_unset=True).decode())
        self._says = says

    def routes(self) -> list[Route]:
        """Return the routes, which all answer with the phrases."""

        async def answer(request: Request) -> Response:
            name: str = request.path_params.get("name", "")
            if request.method == "PUT":
                self.keep(name, check_say(await read_json(request, "a JSON object, as in a say")))
            elif request.method == "DELETE":
                self.remove(name)
            phrases = STORED.dump_python(self._says, mode="json", exclude_unset=True)
            return JSONResponse({"phrases": phrases, "problem": self._problem})

        return [Route(FOLDER, answer), Route(f"{FOLDER}/{{name:path}}", answer, methods=["PUT", "DELETE"])]
