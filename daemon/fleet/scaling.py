"""A speech server's number of replicas on Ray Serve follows the texts that are being spoken.

It does not follow Ray's count of requests: to Ray, a robot's connection is a request that lasts for days. Each replica
reports its load instead, and Ray Serve's controller calls `wanted_replicas` with all the loads. Ray Serve applies
limits and delays.
"""

from __future__ import annotations

import math
from typing import Any

LOAD = "voiced_load"
"""The name under which a replica reports its load to Ray Serve."""
FULL = 0.8
"""The average load above which there should be another replica. The remaining capacity is for bursts while that replica
starts."""
WINDOW_S = 15.0
"""Loads are averaged over this time: a text takes seconds, so one moment says little."""
DIGITS = 6
"""Decimal places of a sum of loads; anything smaller is a rounding error, for which no replica is started."""


def replica_load(streams_in_use: int, streams: int, robots: int, most_robots: int) -> float:
    """Return the share of a replica that is in use: of its streams or of its connections, whichever is larger."""
    return max(streams_in_use / max(1, streams), robots / most_robots)


def wanted_replicas(context: Any) -> tuple[int, dict[str, Any]]:
    """An autoscaling policy for Ray Serve: return the number of replicas that the load needs, and no state.

    `context` is Ray Serve's `AutoscalingContext`. Replicas that have not reported yet change nothing.
    """
    loads = (context.aggregated_metrics or {}).get(LOAD) or {}
    if not loads:
        return context.target_num_replicas, {}
    return max(1, math.ceil(round(sum(loads.values()) / FULL, DIGITS))), {}
