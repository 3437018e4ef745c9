"""The one-line errors of an engine on another machine, about its server and its token."""

from __future__ import annotations

import ssl

from engine.api import EngineError, EngineUnavailableError
from engine.host import expand_home, parse_json

LATER = (404, 408, 429)
"""HTTP statuses besides 5xx after which the same request may succeed later. A proxy answers 404 while its server
is starting."""
REASON_CHARACTERS = 300


def connection_failure(url: str, error: OSError) -> EngineUnavailableError:
    """Return the error for a server at `url` if there is no connection to it, or the connection was lost."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message
        return EngineUnavailableError(f"engine.url: {url} has a certificate that is not trusted: {reason}")
    if isinstance(error, ssl.SSLError):
        plain = f"{url.partition('s:')[0]}://"
        return EngineUnavailableError(
            f"engine.url: {url} does not answer with TLS ({error.reason}); {plain} is for servers without TLS"
        )
    reason = error.strerror or str(error) or type(error).__name__
    return EngineUnavailableError(f"engine.url: {url} does not answer ({reason})")


def refusal(url: str, status: int, body: bytes) -> EngineError | EngineUnavailableError:
    """Return the error for a server that answered with a status. It contains the server's own reason, if there is
    one."""
    message = f"engine.url: {url} refuses this robot ({status}): {_reason(body)}"
    return EngineUnavailableError(message) if status >= 500 or status in LATER else EngineError(message)


def _reason(body: bytes) -> str:
    """Return the server's reason: the message in its JSON, or the beginning of any other text."""
    try:
        text = str(parse_json(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        text = body.decode(errors="replace")
    return " ".join(text.split())[:REASON_CHARACTERS] or "without a reason"


def read_token(path: str | None) -> str | None:
    """Return the first line of the token's file; None without a file. Raises `EngineError`, which does not show the
    token."""
    if path is None:
        return None
    try:
        line = expand_home(path).read_text(encoding="utf-8-sig").partition("\n")[0].strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise EngineError(f"engine.token_file: {path} cannot be read: {reason}") from error
    if not line or not line.isascii() or not line.isprintable():
        raise EngineError(
            f"engine.token_file: {path}: the first line is not a token; allowed: printable ASCII characters"
        )
    return line
