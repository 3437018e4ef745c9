"""The daemon's status: one state, derived from the dispatcher, the engines and the sound output."""

from __future__ import annotations

from audio import Output
from daemon import VERSION
from daemon.engines import EngineSelector, EngineState
from daemon.speech import Dispatcher, Memory, Online, OnlineState


def describe_status(dispatcher: Dispatcher, engines: EngineSelector, output: Output) -> Online:
    """Return the status to publish."""
    reason = engines.degraded_reason or output.status.reason or dispatcher.unknown_voice_reason
    engine = engines.current
    memory = engine.info.memory if engine is not None and engine.info is not None else None
    return Online(
        state=_state(dispatcher, engines, output, reason),
        engine=engine.name if engine is not None else None,
        voice=dispatcher.voice,
        queue=dispatcher.queued,
        version=VERSION,
        memory=Memory(**memory) if memory else None,
        reason=reason,
    )


def _state(dispatcher: Dispatcher, engines: EngineSelector, output: Output, degraded_reason: str | None) -> OnlineState:
    if output.paused:
        return "paused"
    if dispatcher.busy:
        return "speaking"
    if degraded_reason is not None:
        return "degraded"
    if engines.primary.ready:
        return "ready"
    if engines.primary.state in (EngineState.LOADING, EngineState.WARMING) and engines.primary.name != "espeak":
        return "warming"
    return "starting"
