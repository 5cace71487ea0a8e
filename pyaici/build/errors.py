"""The errors of this package."""

from __future__ import annotations


class BuildError(Exception):
    """A controller cannot be built; the message names the cause and contains the compiler's output."""


class MissingToolchain(BuildError):
    """The compiler for this language is not installed; the message says how to get it."""


class MissingSources(BuildError):
    """The sources of an interpreter are missing; the message is one line and says how to get them."""
