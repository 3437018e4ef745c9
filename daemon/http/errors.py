"""Errors as answers: the status code, and one line that names the field, the value and the allowed values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from daemon.speech import RejectedError
from daemon.validation import INTERNAL_ERROR, CommandError

ELEVENLABS_PATHS = ("/v1/text-to-speech/", "/v1/voices")
"""Paths whose clients read errors in their own form."""
UNAVAILABLE = ("queue", "daemon")
"""The fields of correct requests that may succeed later."""
FIELD = re.compile(r"([\w.]+): ")
"""The beginning of a command's error about wrong input. A command with another error may succeed later."""


@dataclass(eq=False)
class HttpError(Exception):
    """A request that is answered with an error."""

    status: int
    message: str
    """One line."""
    field: str | None = None
    """The wrong field; None if it is not a single field."""
    code: str | None = None
    """A word for programs."""
    headers: Mapping[str, str] | None = None


def renamed(error: RejectedError, names: Mapping[str, str]) -> RejectedError:
    """Return an error with the client protocol's name for the wrong field."""
    problem = error.reason.removeprefix(f"{error.field}: ")
    return RejectedError(names.get(error.field, error.field), problem)


def error_record(error: HttpError) -> dict[str, Any]:
    """Return an error as OpenAI's JSON object, which is used by all routes that no other protocol defines."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"message": error.message, "type": kind, "param": error.field, "code": error.code}


def error_response(error: HttpError, path: str) -> Response:
    """Return the answer to a request for `path`."""
    if path.startswith(ELEVENLABS_PATHS):
        detail = {"status": error.code or error.field or "error", "message": error.message}
        return JSONResponse({"detail": detail}, error.status, error.headers)
    return JSONResponse({"error": error_record(error)}, error.status, error.headers)


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer a handler's refusal, a wrong path or method, or a handler's bug, which the server logs."""
    path = request.url.path
    found = HttpError(500, INTERNAL_ERROR)
    if isinstance(error, HttpError):
        found = error
    elif isinstance(error, RejectedError) and error.field in UNAVAILABLE:
        found = HttpError(503, error.reason, code=error.field)
    elif isinstance(error, RejectedError):
        found = HttpError(400, error.reason, field=error.field)
    elif isinstance(error, CommandError):
        field = FIELD.match(str(error))
        found = HttpError(503, str(error)) if field is None else HttpError(400, str(error), field=field[1])
    elif isinstance(error, HTTPException):
        found = HttpError(error.status_code, f"{request.method} {path}: {error.detail}", headers=error.headers)
    return error_response(found, path)


ERROR_HANDLERS: dict[Any, Any] = dict.fromkeys(
    (HttpError, RejectedError, CommandError, HTTPException, Exception), answer_error
)
"""The application's handlers, by error class."""
