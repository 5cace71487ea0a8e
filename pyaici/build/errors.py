"""The error of this package."""

from __future__ import annotations


class BuildError(Exception):
    """A controller cannot be built; the message names the cause, with the compiler's own words."""


class MissingToolchain(BuildError):
    """What compiles this language is not on this machine; the message says how to get it."""


class MissingSources(BuildError):
    """The sources of an interpreter cannot be had; the message is one line and says how to get them."""
