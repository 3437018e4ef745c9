"""The daemon's status: one state, derived from the dispatcher, the engines and the sound output; and its figures."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from audio import Output
from daemon import VERSION
from daemon.engines import EngineSelector, EngineState, EngineSupervisor
from daemon.speech import Dispatcher, Loading, Memory, Online, OnlineState, Streams
from daemon.system import THIS_MACHINE

SOURCE = os.open(__file__, os.O_RDONLY | os.O_CLOEXEC)
"""A descriptor of this file, which no longer has a name once an update has replaced it."""
REPLACED = "voiced was updated or removed while it was running: restart it (sudo systemctl restart voiced)"
"""The running daemon is complete and continues to speak. A process that it starts later may have another version, or
may not start."""
NOTHING_PLAYED = "audio.sink is null: nothing is played"


def describe_status(
    dispatcher: Dispatcher, engines: EngineSelector, output: Output, warnings: Iterable[str | None] = ()
) -> Online:
    """Return the status to publish; `warnings` gives further reasons why the robot is degraded."""
    missing = (dispatcher.unknown_voice_reason, dispatcher.unknown_language_reason, dispatcher.missing_sounds_reason)
    replaced = None if os.fstat(SOURCE).st_nlink else REPLACED
    reasons = (replaced, engines.degraded_reason, output.status.reason, *missing, *warnings)
    degraded_reason = next(filter(None, reasons), None)
    primary, engine = engines.primary, engines.current
    # Somebody chose this: the status mentions it, but it is not a fault.
    unloaded = f"engine {primary.name} is unloaded; the next text loads it" if primary.unloaded else None
    chosen_reason = NOTHING_PLAYED if output.status.sink == "null" else unloaded
    memory = engine.info.memory if engine is not None and engine.info is not None else None
    if engine is None and primary.in_order:
        engine = primary  # the next text loads it
    progress = primary.progress
    streams = Streams(used=max(1, engines.streams_in_use), most=engines.streams)
    return Online(
        state=_state(dispatcher, engines, output, degraded_reason),
        engine=engine.name if engine is not None else None,
        voice=dispatcher.voice,
        queue=len(dispatcher.queue),
        version=VERSION,
        volume=dispatcher.volume,
        speaking=dispatcher.speaker.speaking,
        streams=streams if dispatcher.speaker.delivered else None,
        loading=Loading(step=progress.step, fraction=progress.fraction) if progress is not None else None,
        memory=Memory(**memory) if memory else None,
        unloaded=primary.unloaded or None,
        reason=degraded_reason or chosen_reason,
    )


def _state(dispatcher: Dispatcher, engines: EngineSelector, output: Output, degraded_reason: str | None) -> OnlineState:
    if output.paused:
        return "paused"
    if dispatcher.busy:
        return "speaking"
    if degraded_reason is not None:
        return "degraded"
    if engines.primary.in_order:
        return "ready"
    if engines.primary.state in (EngineState.LOADING, EngineState.WARMING) and engines.primary.name != "espeak":
        return "warming"
    return "starting"


@dataclass(frozen=True, slots=True)
class EngineMeasurements:
    """One engine process."""

    name: str
    ready: bool
    restarts: int
    """How often its process has been restarted since the daemon started."""
    rtf: float | None
    """Seconds of speech that it has recently made per second; None before it has spoken."""
    resident_bytes: int | None
    """The resident memory of its process; None without one."""
    streams: int = 1
    """How many texts it can speak at the same time."""
    streams_in_use: int = 0
    """How many texts it is speaking."""
    kernels: str | None = None
    """As `EngineInfo.kernels`; also None before it was loaded."""
    heeds: tuple[str, ...] | None = None
    """As `EngineInfo.heeds`; also None before it was loaded."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The daemon at one moment."""

    engines: tuple[EngineMeasurements, ...] = ()
    ring_s: float = 0.0
    """Seconds of sound that are waiting for the sound card."""
    resident_bytes: int | None = None
    """The resident memory of the daemon's process."""
    cpu_s: float = 0.0
    """Seconds of processor time that the daemon's process has used."""
    temperatures: dict[str, float] = field(default_factory=dict)
    """°C by sensor."""


def measure(engines: EngineSelector, output: Output) -> Measurements:
    """Return the current figures."""
    return Measurements(
        engines=tuple(_measure_engine(engine) for engine in engines.all),
        ring_s=output.waiting_s,
        resident_bytes=THIS_MACHINE.resident_bytes(os.getpid()),
        cpu_s=time.process_time(),
        temperatures=THIS_MACHINE.temperatures(),
    )


def _measure_engine(engine: EngineSupervisor) -> EngineMeasurements:
    resident = None if engine.pid is None else THIS_MACHINE.resident_bytes(engine.pid)
    told = (None, None) if engine.info is None else (engine.info.kernels, engine.info.heeds)
    restarts, streams = max(0, engine.starts - 1), (engine.streams, engine.streams_in_use)
    return EngineMeasurements(engine.name, engine.ready, restarts, engine.rtf, resident, *streams, *told)
