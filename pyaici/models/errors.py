"""Errors of the default model's files."""

from __future__ import annotations

from aicirt.contract.errors import AiciError


class ModelError(AiciError):
    """A model cannot be fetched, converted or stored; the message names the cause and the remedy."""

    code = "model"
