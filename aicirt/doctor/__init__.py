"""Checks of this machine: which features are missing, what that costs, and how to get them."""

from __future__ import annotations

from aicirt.doctor.finding import Finding, State
from aicirt.doctor.machine import examine

__all__ = ["Finding", "State", "examine"]
