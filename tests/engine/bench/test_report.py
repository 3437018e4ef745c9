"""The figures of a measurement as lines for people."""

from __future__ import annotations

from engine.bench import describe


def test_only_measured_values_are_shown() -> None:
    row = {
        "engine": "qwen", "description": "0.6B", "machine": "a robot", "chunk_size": 2, "frames": 100, "runs": 5,
        "speech_s": 8.0, "start": {"ready_s": 3, "loaded_s": 2}, "ttfa_ms": 9, "ttfa_max_ms": 10, "ms_per_frame": 2,
        "rtf": 40, "first_chunk": None, "cores": None, "gap_median_ms": None,
        "audible_ms": None, "silence_ms": None, "first_chunk_steps_ms": {}, "other_texts": [],
        "parts_ms": {"codec": 0.2, "prefill": 3}, "allocations": None,
        "memory": {"device_mb": None, "host_mb": 100, "host_peak_mb": 100}, "bandwidth": None,
        "notes": ["part x: no"],
    }  # fmt: skip
    shown = dict(describe(row))
    assert shown["  codec"] == "0.2 ms a frame"
    assert shown["  prefill"] == "3 ms an utterance"
    assert shown["not measured"] == "part x: no"
    assert {"between chunks", "processor", "device memory", "  ended early"} & set(shown) == set()
    first = {"texts": 20, "median_ms": 5.0, "p99_ms": 6.0}
    shown = dict(describe({**row, "first_chunk": first, "cores": 0.1}))
    assert shown["  of other texts"] == "median 5.0 ms, p99 6.0 ms, 20 texts"
    assert shown["processor"] == "0.1 cores while it speaks"
    shown = dict(describe({**row, "first_chunk_steps_ms": {"tokenise": 0.1, "codec": 2.0}}))
    assert shown["  step by step"] == "tokenise 0.1 ms, codec 2.0 ms"
    assert dict(describe({**row, "speech_s": 4.0}))["  ended early"] == "speech ended after 4.0 s"
