"""What of this machine the runtime can use, what is missing, what that costs and how to get it."""

from __future__ import annotations

from aicirt.doctor.finding import Finding, State
from aicirt.doctor.machine import examine

__all__ = ["Finding", "State", "examine"]
