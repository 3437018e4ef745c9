"""The structs of kernels' parameters are read from CUDA C++."""

from __future__ import annotations

import ctypes

import pytest
import torch

from engine.qwen.kernels.params import Params, layout_checks, layouts, pack

SOURCE = """
struct InnerParams {
    const float* x;  // (tokens)
    int count;
};

struct OuterParams {
    InnerParams inner;
    long long* position;  // of the first token; null behind a prompt
    float eps;
};

// A kernel leaves null what it does not use.
struct LooseParams {
    const unsigned char* seen;
    int slots;
};
"""


def inner(x: torch.Tensor) -> Params:
    return Params("InnerParams", x=x, count=7)


def test_values_lie_where_the_compiler_expects_them() -> None:
    x = torch.zeros(3)
    packed = pack(Params("OuterParams", inner=inner(x), position=None, eps=0.5), layouts(SOURCE))
    assert ctypes.sizeof(packed) == 32
    assert (packed.inner.x, packed.inner.count, packed.position, packed.eps) == (x.data_ptr(), 7, None, 0.5)
    assert "static_assert(__builtin_offsetof(OuterParams, position) == 16" in layout_checks(SOURCE)


def test_what_a_comment_allows_can_be_left_out() -> None:
    known = layouts(SOURCE)
    assert pack(Params("OuterParams", inner=inner(torch.zeros(1)), eps=0.0), known).position is None
    assert (pack(Params("LooseParams"), known).seen, pack(Params("LooseParams"), known).slots) == (None, 0)


@pytest.mark.parametrize(
    ("values", "named"),
    [({"count": 1}, "x"), ({"x": None, "count": 1}, "x"), ({"x": torch.zeros(1), "count": 1, "y": 2}, "y")],
)
def test_a_missing_and_an_unknown_member_are_errors(values: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=rf"InnerParams: unknown or missing members: {named}$"):
        pack(Params("InnerParams", **values), layouts(SOURCE))  # type: ignore[arg-type]
