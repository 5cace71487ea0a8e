"""Distributions of tokens after token sequences, from vLLM, by requests of one token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyaici.engines.engine import TokenScore


def reports_all(vllm_config: Any) -> bool:
    """Returns whether clients of this engine can ask for the log-probabilities of all tokens."""
    model = vllm_config.model_config
    enough: bool = model.max_logprobs == -1 or model.max_logprobs >= model.get_vocab_size()
    return enough and model.logprobs_mode == "raw_logprobs"


class Distributions:
    """The log-probabilities after some sequences, while vLLM computes them."""

    def __init__(self, engine: Any, names: str, sequences: Sequence[Sequence[int]], width: int) -> None:
        """Adds the requests to a `LLMEngine`. `names`: the beginning of their names.

        `width`: the size of the vocabulary. Raises ValueError for a sequence that the model cannot take.
        """
        from vllm import SamplingParams
        from vllm.exceptions import VLLMValidationError

        self._engine = engine
        self._rows = np.full((len(sequences), width), -np.inf, np.float32)
        self._missing: dict[str, int] = {}
        parameters = SamplingParams(
            temperature=0, max_tokens=1, logprobs=-1, flat_logprobs=True, detokenize=False
        )
        try:
            for number, sequence in enumerate(sequences):
                name = f"{names}-{number}"
                engine.add_request(name, {"prompt_token_ids": list(map(int, sequence))}, parameters)
                self._missing[name] = number
        except BaseException as error:
            self.close()
            if isinstance(error, VLLMValidationError):
                raise ValueError(str(error)) from None
            raise

    @property
    def complete(self) -> bool:
        return not self._missing

    def read_output(self, output: Any) -> bool:
        """Reads a `RequestOutput`. Returns False if it belongs to another request."""
        number = self._missing.get(output.request_id)
        if number is None:
            return False
        (choice,) = output.outputs
        if choice.logprobs:
            listed = choice.logprobs
            self._rows[number, listed.token_ids] = listed.logprobs
        if output.finished:
            del self._missing[output.request_id]
        return True

    def rows(self) -> NDArray[np.float32]:
        """Returns natural log-probabilities, float32 [number of sequences, size of the vocabulary]."""
        return self._rows

    def close(self) -> None:
        """Ends requests that are not complete."""
        if self._missing:
            self._engine.abort_request(list(self._missing))
            self._missing.clear()


class PromptScores:
    """The log-probabilities of the tokens of a text, while vLLM computes them."""

    def __init__(self, engine: Any, name: str, tokens: Sequence[int], count: int) -> None:
        """Adds the request to a `LLMEngine`. `count`: most likely tokens at each place.

        Raises ValueError for a text that the model cannot take.
        """
        from vllm import SamplingParams
        from vllm.exceptions import VLLMValidationError
        from vllm.sampling_params import RequestOutputKind

        self._engine, self._name, self._tokens, self._count = engine, name, list(map(int, tokens)), count
        self._found: list[TokenScore] = []
        self.complete = False
        parameters = SamplingParams(
            temperature=0,
            max_tokens=1,
            prompt_logprobs=count,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        try:
            engine.add_request(name, {"prompt_token_ids": self._tokens}, parameters)
        except VLLMValidationError as error:
            raise ValueError(str(error)) from None

    def read_output(self, output: Any) -> bool:
        """Reads a `RequestOutput`. Returns False if it belongs to another request."""
        if output.request_id != self._name:
            return False
        if output.finished:
            places = (output.prompt_logprobs or [])[1:]
            self._found = [
                (listed[token].logprob, most_likely(listed, self._count))
                for listed, token in zip(places, self._tokens[1:], strict=True)
            ]
            self.complete = True
        return True

    def scores(self) -> list[TokenScore]:
        """Returns the score of each token but the first."""
        return self._found

    def close(self) -> None:
        """Ends the request if it is not complete."""
        if not self.complete:
            self._engine.abort_request([self._name])


def most_likely(listed: Mapping[int, Any], count: int) -> list[tuple[int, float]]:
    """Returns (token, log-probability) of the `count` most likely tokens.

    vLLM also lists the token that was sampled, or that is there.
    """
    ranked = sorted(listed.items(), key=lambda item: item[1].logprob, reverse=True)
    return [(token, entry.logprob) for token, entry in ranked[:count]]
