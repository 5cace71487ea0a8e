"""Distributions of the next token after token sequences, from vLLM: a request with one token for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


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

    def take(self, output: Any) -> bool:
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
