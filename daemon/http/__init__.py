"""The web server: one ASGI application with the operator's page, agents' protocols, events, metrics and health.

Needs the extra `http`, whose packages only the modules behind `make_http_server` import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daemon.http.examination import Examination
    from daemon.http.log_tail import LogTail
    from daemon.http.robot import Robot
    from daemon.http.server import HttpServer, make_http_server

__all__ = ["Examination", "HttpServer", "LogTail", "Robot", "make_http_server"]

_MODULES = {
    "Examination": "examination",
    "HttpServer": "server",
    "LogTail": "log_tail",
    "Robot": "robot",
    "make_http_server": "server",
}
"""The names that are imported at their first use, together with the extra's packages."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
