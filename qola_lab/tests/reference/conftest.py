"""Configure Hypothesis: deterministic cases, and no database of examples."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("same", database=None, deadline=None, derandomize=True)
settings.load_profile("same")
