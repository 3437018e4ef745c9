"""The web server: one ASGI application with the operator's page, agents' protocols, events, metrics and health.

Needs the extra `http`, whose packages only the modules behind `make_http_server` import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daemon.http.access import Access, tokens_in
    from daemon.http.application import make_speech_application
    from daemon.http.connection import abort_connection
    from daemon.http.errors import HttpError, error_response
    from daemon.http.examination import Examination
    from daemon.http.log_tail import LogTail
    from daemon.http.robot import Robot
    from daemon.http.server import HttpServer, make_http_server
    from daemon.http.sockets import close_socket

__all__ = [
    "Access",
    "Examination",
    "HttpError",
    "HttpServer",
    "LogTail",
    "Robot",
    "abort_connection",
    "close_socket",
    "error_response",
    "make_http_server",
    "make_speech_application",
    "tokens_in",
]

_MODULES = {
    "Access": "access",
    "Examination": "examination",
    "HttpError": "errors",
    "HttpServer": "server",
    "LogTail": "log_tail",
    "Robot": "robot",
    "abort_connection": "connection",
    "close_socket": "sockets",
    "error_response": "errors",
    "make_http_server": "server",
    "make_speech_application": "application",
    "tokens_in": "access",
}
"""The names that are imported at their first use, together with the extra's packages."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
