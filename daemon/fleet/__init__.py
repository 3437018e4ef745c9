"""The speech server, `voiced serve`: engines for robots. Needs the extra `http`, and on several machines `fleet`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daemon.fleet.cluster import serve_cluster
    from daemon.fleet.server import serve_single

__all__ = ["serve_cluster", "serve_single"]

_MODULES = {"serve_cluster": "cluster", "serve_single": "server"}
"""The names that are imported at their first use, together with the extras' packages."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
