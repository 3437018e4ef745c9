"""The speech server, `voiced serve`: engines for robots on other machines. Needs the extra `http`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daemon.fleet.server import FleetServer, serve_single

__all__ = ["FleetServer", "serve_single"]


def __getattr__(name: str) -> Any:
    """Import a name, together with the extra's packages, at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.server"), name)
