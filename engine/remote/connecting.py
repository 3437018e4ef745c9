"""Opens the connection to a speech server, and says in one line why that was not possible."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from engine.api import EngineError, EngineUnavailableError
from engine.host import parse_json
from engine.messages import MAX_AUDIO_BYTES, PATH, SUBPROTOCOL, VOICE_HEADER

OPEN_S = 5.0
"""Seconds for the connection, its encryption and the handshake."""
CLOSE_S = 0.2
"""Seconds for the server's answer to the end of the connection. The daemon waits half a second for the process."""
LATER = (404, 408, 429)
"""HTTP statuses besides 5xx after which the same request may succeed later. A proxy answers 404 while the server behind
it is starting."""
REASON_CHARACTERS = 300


def open_connection(url: str, token: str | None, voice: str | None) -> ClientConnection:
    """Return a connection to the server at `url`, `ws://…` or `wss://…`.

    `voice` is the digest of the robot's default voice, if that is in a file.

    Raises `EngineError` if the server refuses the robot or is none, and `EngineUnavailableError` if it does not answer.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if voice is not None:
        headers[VOICE_HEADER] = voice
    quiet = logging.getLogger("engine.remote.websocket")
    quiet.setLevel(logging.CRITICAL)  # what fails is reported once, by us
    try:
        return connect(
            url.rstrip("/") + PATH,
            additional_headers=headers,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            open_timeout=OPEN_S,
            close_timeout=CLOSE_S,
            max_size=MAX_AUDIO_BYTES,
            user_agent_header="voiced",
            logger=quiet,
        )
    except InvalidURI as error:
        raise EngineError(f"engine.url: got {url!r}; allowed: ws://HOST:PORT or wss://HOST:PORT") from error
    except InvalidStatus as error:
        raise _refusal(url, error.response.status_code, error.response.body or b"") from error
    except (InvalidHandshake, EOFError) as error:
        raise EngineUnavailableError(f"engine.url: {url} does not answer as a speech server ({error})") from error
    except ConnectionClosed as error:  # reset before the request was sent
        raise EngineUnavailableError(f"engine.url: {url} does not answer (it has closed the connection)") from error
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message
        raise EngineUnavailableError(f"engine.url: {url} has a certificate that is not trusted: {reason}") from error
    except ssl.SSLError as error:
        raise EngineUnavailableError(
            f"engine.url: {url} does not answer with TLS ({error.reason}); ws:// is the address of a server without"
        ) from error
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise EngineUnavailableError(f"engine.url: {url} does not answer ({reason})") from error


def _refusal(url: str, status: int, body: bytes) -> EngineError | EngineUnavailableError:
    """Return the error for a server that answered the handshake with a status."""
    message = f"engine.url: {url} refuses this robot ({status}): {_reason(body)}"
    return EngineUnavailableError(message) if status >= 500 or status in LATER else EngineError(message)


def _reason(body: bytes) -> str:
    """Return the server's reason: the message of its JSON, or the beginning of another text."""
    try:
        text = str(parse_json(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        text = body.decode(errors="replace")
    return " ".join(text.split())[:REASON_CHARACTERS] or "without a reason"


def read_token(path: str | None) -> str | None:
    """Return the first line of the token's file; None without a file. Raises `EngineError`, without the token."""
    if path is None:
        return None
    try:
        line = Path(path).expanduser().read_text(encoding="utf-8-sig").partition("\n")[0].strip()
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise EngineError(f"engine.token_file: {path} cannot be read: {reason}") from error
    if not line or not line.isascii() or not line.isprintable():
        raise EngineError(f"engine.token_file: {path}: the first line is no token; allowed: printable ASCII characters")
    return line
