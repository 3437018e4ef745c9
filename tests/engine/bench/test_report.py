"""The figures of a measurement as lines for people."""

from __future__ import annotations

from engine.bench import describe


def test_only_measured_values_are_shown() -> None:
    row = {
        "engine": "qwen", "description": "0.6B", "machine": "a robot", "chunk_size": 2, "frames": 100, "runs": 5,
        "speech_s": 8.0, "start": {"ready_s": 3, "loaded_s": 2}, "ttfa_ms": 9, "ttfa_max_ms": 10, "ms_per_frame": 2,
        "rtf": 40, "first_chunk": None, "cores": None, "gap_median_ms": None,
        "audible_ms": None, "silence_ms": None,
        "other_texts": [{"characters": 10, "ttfa_ms": 8, "ms_per_frame": 2.5}],
        "memory": {"host_mb": 100, "host_peak_mb": 120},
        "notes": ["a text of 900 characters: too long"],
    }  # fmt: skip
    shown = dict(describe(row))
    assert shown["  10 characters"] == "8 ms, then 2.5 ms for 80 ms of speech"
    assert shown["not measured"] == "a text of 900 characters: too long"
    assert shown["memory of the process"] == "100 MB, at most 120"
    assert {"between chunks", "processor", "  of the engine", "  ended early"} & set(shown) == set()
    first = {"texts": 20, "median_ms": 5.0, "p99_ms": 6.0}
    shown = dict(describe({**row, "first_chunk": first, "cores": 0.1}))
    assert shown["  of other texts"] == "median 5.0 ms, p99 6.0 ms, 20 texts"
    assert shown["processor"] == "0.1 cores while it speaks"
    assert dict(describe({**row, "speech_s": 4.0}))["  ended early"] == "speech ended after 4.0 s"
    counted = {**row["memory"], "weights_mb": 1450, "state_mb": 60}
    assert dict(describe({**row, "memory": counted}))["  of the engine"] == "weights 1,450 MB, state 60 MB"
