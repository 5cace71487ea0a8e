"""The engine: controllers with every verb on vLLM, as `HfEngine` has them on Transformers.

vLLM's own engine runs the requests, and the seat in its scheduler their controllers; here its outputs become
events and results.
"""

from __future__ import annotations

import itertools
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyaici.engines.counts import Counts
from pyaici.engines.engine import Engine
from pyaici.engines.prompts import first_tokens
from pyaici.engines.request import GenerationResult, Request
from pyaici.engines.vllm.arguments import OVERLAPPED
from pyaici.engines.vllm.families import Families
from pyaici.engines.vllm.vocabulary import engine_vocabulary

if TYPE_CHECKING:
    from pyaici.engines.events import Event


class VllmEngine(Engine):
    """Generates text with vLLM under the control of controllers. Use from one thread.

    Controllers run beside vLLM's engine, in the runtime that `AICI_SOCKET` named when that was made, or else
    a private one; `Request.module` is a bundled controller's name, or the id or tag of a module there.
    """

    def __init__(self, llm: Any, *, path: str = OVERLAPPED, max_sequences: int = 16) -> None:
        """`llm`: a vllm.LLM, or a vllm.v1.engine.llm_engine.LLMEngine, that nobody else uses meanwhile.

        `path`: where controllers take part; in a logits processor (`LOGITS`) they cannot take tokens back,
        fork or suspend, and forced tokens count as sampled.
        `max_sequences`: how many sequences one controller may have at once, its forks included. vLLM keeps
        a request ready for each.
        """
        self._engine = getattr(llm, "llm_engine", llm)
        config = self._engine.vllm_config
        self._tokenizer = None if config.model_config.skip_tokenizer_init else self._engine.get_tokenizer()
        #: ids that prompts may have, and the most tokens of a prompt and its answer together
        self.num_tokens = config.model_config.get_vocab_size()
        self.max_context = config.model_config.max_model_len
        self._path = path
        self._max_sequences = max_sequences
        self.vocabulary = engine_vocabulary(config)
        self._families = Families(self.vocabulary)
        self._numbers = itertools.count()
        #: vLLM's names of what we have asked of it
        self._names = f"aici-{secrets.token_hex(4)}"

    def add(self, request: Request, placed: Any = None) -> int:
        """Takes a request and returns its number; it begins with the next step.

        Raises ValueError for a prompt that the model cannot take, for what vLLM refuses, and for beam search,
        which vLLM's engine does not have; nothing of the request is left then. What a controller fails with,
        at its argument too, is the error of its result.
        """
        from vllm import SamplingParams
        from vllm.exceptions import VLLMValidationError
        from vllm.sampling_params import RequestOutputKind

        if request.beams > 1:
            raise ValueError("the engine on vLLM has no beam search: beams must be 1")
        tokens = first_tokens(
            self._tokenizer,
            request.prompt,
            self.vocabulary,
            num_tokens=self.num_tokens,
            max_context=self.max_context,
        )
        extra: dict[str, Any] | None = None
        if request.module is not None:
            arg = request.arg.decode() if isinstance(request.arg, bytes) else request.arg
            extra = {"aici_controller": request.module, "aici_arg": arg, "aici_path": self._path}
            if request.owner is not None:
                extra["aici_owner"] = request.owner
        number = next(self._numbers)
        sampling, choices = request.sampling, 1
        if forks := extra is not None and self._path == OVERLAPPED:
            extra = {**(extra or {}), "aici_events": True, "aici_fork": True}
            choices = self._max_sequences
            if sampling.temperature == 0:
                # vLLM refuses n > 1 where the texts would be the same; this is the most likely token, too
                sampling = replace(sampling, temperature=1.0, top_k=1)
        names = [f"{self._names}-{number}-{copy}" for copy in range(request.n)]
        try:
            for copy, name in enumerate(names):
                parameters = SamplingParams(
                    n=choices,
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    top_k=sampling.top_k,
                    # vLLM adds the index of the choice
                    seed=None if sampling.seed is None else sampling.seed + copy * self._max_sequences,
                    max_tokens=request.max_tokens,
                    logprobs=request.top_logprobs if request.logprobs else None,
                    extra_args=extra,
                    detokenize=False,
                    output_kind=RequestOutputKind.DELTA,
                )
                self._engine.add_request(name, {"prompt_token_ids": tokens}, parameters)
        except BaseException as error:
            self._engine.abort_request(names)  # what it has taken of the request before
            if isinstance(error, VLLMValidationError):
                raise ValueError(str(error)) from None
            raise
        for name in names:
            self._families.start(name, number, request, tokens, events=forks)
        return number

    def cancel(self, request_id: int) -> None:
        """Ends what is left of a request."""
        names = self._families.names(request_id)
        if names:
            self._engine.abort_request(names)
            self._families.cancel(request_id)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return self._families.busy

    @property
    def stats(self) -> Counts:
        """Counts since the engine was made."""
        return self._families.counts

    def step(self) -> list[Event]:
        """One step of vLLM's engine. Returns what happened, oldest first."""
        outputs = self._engine.step()
        # without any it has waited for a controller
        self._families.counts.steps += bool(outputs)
        for output in outputs:
            self._families.take(output)
        return self._families.drain()

    def results(self, request_id: int) -> list[GenerationResult]:
        """The results of a request that has ended; they can be fetched once.

        Raises ValueError before its end.
        """
        return self._families.results(request_id)

    def drain(self) -> list[Event]:
        """Events that no step has returned: of requests that were added, cancelled or closed since."""
        return self._families.drain()

    def close(self) -> None:
        """Ends all requests; vLLM's engine stays the caller's."""
        for request_id in self._families.unfinished:
            self.cancel(request_id)
