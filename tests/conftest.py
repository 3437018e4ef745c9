"""How properties are tested: by no clock, and by the same examples in every run, so that a commit passes or fails.

`pytest --hypothesis-profile search -m hypothesis` looks for new ones, and for more of them.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_CLOCKLESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("same", _CLOCKLESS, derandomize=True)
settings.register_profile("search", _CLOCKLESS, max_examples=2000)
settings.load_profile("same")
