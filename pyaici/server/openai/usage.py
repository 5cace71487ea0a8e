"""What requests of OpenAI's API have used."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyaici.server.speech import Said


class Usage:
    """Counts the tokens of all answers of a request."""

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt = prompt_tokens
        self._completion = 0
        #: the client has got something: an error cannot become a status any more
        self.begun = False

    def count(self, said: Said) -> None:
        """One of the answers goes on."""
        self._completion += said.grown
        self.begun = True

    def wire(self) -> dict[str, int]:
        """As OpenAI's API has it."""
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": self._completion,
            "total_tokens": self._prompt + self._completion,
        }
