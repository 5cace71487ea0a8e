"""Engines that find masks, each behind the same few methods, to be measured beside each other."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Refused(ValueError):
    """The engine does not take the grammar; the message is its own."""


class Contestant(ABC):
    """One engine with one grammar and one vocabulary.

    `compile`, then for each text `reset`, and for each token of it `mask` and `accept`.
    """

    #: as figures are named
    name: str

    @abstractmethod
    def compile(self) -> None:
        """From the text of the grammar to where masks can be asked for; nothing that was made before is used.

        Raises Refused.
        """

    @abstractmethod
    def reset(self) -> None:
        """A new text begins."""

    @abstractmethod
    def mask(self) -> None:
        """Finds the tokens that may come."""

    @abstractmethod
    def accept(self, token: int) -> None:
        """The token that comes, which the mask allows. What this takes counts with the next mask."""

    @abstractmethod
    def row(self) -> bytes:
        """The mask, a bit for each token, the lowest first. To be asked for once, before the next one."""
