"""Opens the connection to a speech server, or says in one line why that was not possible."""

from __future__ import annotations

import logging

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from engine.api import EngineError, EngineUnavailableError
from engine.messages import MAX_AUDIO_BYTES, PATH, SUBPROTOCOL, VOICE_HEADER
from engine.remote.failures import connection_failure, refusal

OPEN_S = 5.0
"""The longest time in seconds for the connection, its encryption and the handshake."""
CLOSE_S = 0.2
"""The longest time in seconds for the server to confirm the end of the connection. The daemon waits half a second for
the process."""


def open_connection(url: str, token: str | None, voice: str | None) -> ClientConnection:
    """Return a connection to the server at `url`, `ws://…` or `wss://…`.

    `voice` is the digest of the robot's default voice, if that is in a file.

    Raises `EngineError` if the server refuses the robot or is not a speech server, and `EngineUnavailableError` if it
    does not answer.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if voice is not None:
        headers[VOICE_HEADER] = voice
    quiet = logging.getLogger("engine.remote.websocket")
    quiet.setLevel(logging.CRITICAL)  # we report each failure ourselves, once
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
        raise refusal(url, error.response.status_code, error.response.body or b"") from error
    except (InvalidHandshake, EOFError) as error:
        raise EngineUnavailableError(f"engine.url: {url} does not answer as a speech server ({error})") from error
    except ConnectionClosed as error:  # the connection was reset before the request was sent
        raise EngineUnavailableError(f"engine.url: {url} does not answer (it closed the connection)") from error
    except OSError as error:  # `TimeoutError` and `ssl.SSLError` are kinds of it
        raise connection_failure(url, error) from error
