"""What can go wrong with a model's files."""

from __future__ import annotations

from aicirt.contract.errors import AiciError


class ModelError(AiciError):
    """A model cannot be fetched, converted or stored; the message names the cause and the cure."""

    code = "model"
