"""Inference engines that controllers steer."""

from __future__ import annotations

#: How many times `max_tokens` a sequence may have sampled or appended, what it takes back included.
WORK_FACTOR = 10
