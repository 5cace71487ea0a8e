"""Checks of this machine: what the runtime can use, what is missing, the cost of that, and the cure."""

from __future__ import annotations

from aicirt.doctor.finding import Finding, State
from aicirt.doctor.machine import examine

__all__ = ["Finding", "State", "examine"]
