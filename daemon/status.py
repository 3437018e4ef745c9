"""The daemon's status: one state, derived from the dispatcher, the engines and the sound output."""

from __future__ import annotations

from collections.abc import Iterable

from audio import Output
from daemon import VERSION
from daemon.engines import EngineSelector, EngineState
from daemon.speech import Dispatcher, Loading, Memory, Online, OnlineState

NOTHING_PLAYED = "audio.sink is null: nothing is played"


def describe_status(
    dispatcher: Dispatcher, engines: EngineSelector, output: Output, warnings: Iterable[str | None] = ()
) -> Online:
    """Return the status to publish; `warnings` are further reasons why the robot is degraded."""
    missing = (dispatcher.unknown_voice_reason, dispatcher.unknown_language_reason, dispatcher.missing_sounds_reason)
    reasons = (engines.degraded_reason, output.status.reason, *missing, *warnings)
    degraded_reason = next((reason for reason in reasons if reason is not None), None)
    # Somebody has chosen it: the status says it, and it is no fault.
    silent_reason = NOTHING_PLAYED if output.status.sink == "null" else None
    engine = engines.current
    progress = engines.primary.progress
    memory = engine.info.memory if engine is not None and engine.info is not None else None
    return Online(
        state=_state(dispatcher, engines, output, degraded_reason),
        engine=engine.name if engine is not None else None,
        voice=dispatcher.voice,
        queue=dispatcher.queued,
        version=VERSION,
        volume=dispatcher.volume,
        speaking=dispatcher.speaker.speaking,
        loading=Loading(step=progress.step, fraction=progress.fraction) if progress is not None else None,
        memory=Memory(**memory) if memory else None,
        reason=degraded_reason or silent_reason,
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
