"""Inference engines that controllers steer."""

from __future__ import annotations

#: The most tokens that a sequence may sample or append, as a multiple of `max_tokens`. Tokens that it removes
#: later count too.
WORK_FACTOR = 10
