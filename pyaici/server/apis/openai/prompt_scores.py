"""Log-probabilities of the tokens of prompts, for completions that echo them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from pyaici.engines.record import TextTrail
from pyaici.server.answers.text import TextToken
from pyaici.server.apis.openai.logprobs import completion_logprobs
from pyaici.server.http.errors import bad_request, from_aici

if TYPE_CHECKING:
    from pyaici.engines.engine import TokenScore
    from pyaici.server.http.users import User
    from pyaici.server.models import ServedModel
    from pyaici.server.service import Service


#: Most log-probabilities of prompts in an answer: each takes some hundred bytes until it is sent.
MAX_SCORES = 1 << 17


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Prompts to score. `count`: most likely tokens to list at each place."""

    prompts: Sequence[list[int]]
    count: int

    def check(self, model: ServedModel) -> None:
        """Raises ApiError if the engine scores no prompts, or if there are too many tokens."""
        if model.scores is None:
            raise bad_request("this engine has no log-probabilities of prompts: leave out echo", "echo")
        total = sum(map(len, self.prompts)) * (1 + self.count)
        if total > MAX_SCORES:
            raise bad_request(
                f"echo with logprobs would list {total} log-probabilities of prompts; at most "
                f"{MAX_SCORES} are allowed",
                "logprobs",
            )

    async def compute(self, service: Service, user: User) -> list[dict[str, Any]]:
        """Returns the log-probabilities of each prompt, as completions have them. Raises ApiError.

        Takes a turn, as a request that generates does.
        """
        model = service.model
        assert model.scores is not None
        abandoned = threading.Event()
        found: list[dict[str, Any]] = []
        try:
            async with service.turn(user):
                for prompt in self.prompts:
                    if not prompt:
                        found.append(completion_logprobs(model, [], 0))
                        continue
                    future = service.engine.post_in_pieces(
                        partial(model.scores, prompt, self.count), lambda: not abandoned.is_set()
                    )
                    scores = await asyncio.wrap_future(future)
                    found.append(await service.reading.read(user, partial(_written, model, prompt, scores)))
        except AiciError as error:
            raise from_aici(error, "prompt") from None
        except ValueError as error:
            raise bad_request(str(error), "prompt") from None
        finally:
            abandoned.set()  # a client that has disconnected must not delay others
        return found


def _written(model: ServedModel, prompt: Sequence[int], scores: Sequence[TokenScore]) -> dict[str, Any]:
    tokens = [TextToken(prompt[0], 0)]
    trail = TextTrail(model.vocabulary.tokens)
    start = len(trail.append(prompt[:1]))
    for token, (logprob, top) in zip(prompt[1:], scores, strict=True):
        tokens.append(TextToken(token, start, logprob, top))
        start += len(trail.append([token]))
    wire = completion_logprobs(model, tokens, 0)
    # nothing precedes the first token
    wire["token_logprobs"][0] = wire["top_logprobs"][0] = None
    return wire
