"""Engines that compute masks, behind a common interface for comparisons."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Refused(ValueError):
    """The engine refuses the grammar. The message is the engine's."""


class Contestant(ABC):
    """An engine with a grammar and a vocabulary.

    Call `compile`, then for each text `reset`, and for each of its tokens `mask` and `accept`.
    """

    #: part of the names of figures
    name: str

    @abstractmethod
    def compile(self) -> None:
        """Prepares the grammar, from its text until masks can be computed. Reuses nothing from earlier calls.

        Raises Refused if the engine refuses the grammar.
        """

    @abstractmethod
    def reset(self) -> None:
        """Begins a new text."""

    @abstractmethod
    def mask(self) -> None:
        """Computes the mask of the next token."""

    @abstractmethod
    def accept(self, token: int) -> None:
        """Appends a token that the mask allows. Its time counts towards the next mask."""

    @abstractmethod
    def row(self) -> bytes:
        """Returns the mask, one bit per token, lowest first. Call it once, before the next mask."""

    def idle(self) -> None:
        """Ends a text and does what a service does before the next request with the grammar: here nothing."""
        return

    def close(self) -> None:
        """Frees what only this contestant needs: here nothing. Only `compile` may follow."""
        return
