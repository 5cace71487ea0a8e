"""The controllers of a model runner's requests, on the logits-processor path.

No error is raised that would end the engine: a failure ends only its request, with a line in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aicirt.contract.abi import RowKind
from aicirt.contract.errors import AiciError, SupervisorDiedError
from pyaici.client.results import Row
from pyaici.client.runtime import Runtime
from pyaici.engines.lines import Lines, OverruledError
from pyaici.engines.vllm.frontend.arguments import ControllerCall
from pyaici.engines.vllm.scheduling.connection import engine_vocabulary

if TYPE_CHECKING:
    from pyaici.tokens import Vocabulary


#: a child of vLLM's logger, so that vLLM's logging settings apply
logger = logging.getLogger("vllm.aici")
#: seconds before an unreachable aicirt is tried again: every try delays the whole batch
RETRY_SECONDS = 5.0
#: most rows with biases for all tokens that are reserved per worker of the runtime; a request needs two
MAX_DENSE = 32


@dataclass(eq=False, slots=True)
class Constrained:
    """A request with a controller."""

    call: ControllerCall
    #: tokens that end the request; the first is forced when the controller ends it
    ends: list[int]
    seed: int
    #: number of output tokens that the controller has received
    received: int = 0

    @classmethod
    def of(cls, call: ControllerCall, params: Any) -> Constrained:
        """Creates the state of a request with these parameters. `params`: vLLM's SamplingParams."""
        eos = [] if params.eos_token_id is None else [params.eos_token_id]
        ends = eos + sorted(set(params.stop_token_ids or ()) - set(eos))
        # the seed must not change after a preemption, when only the request's parameters and tokens are left
        return cls(call, ends, params.seed or 0)


class Constraints:
    """The controllers of all requests.

    Connects to a runtime when it is first needed: at $AICI_SOCKET, or a private one.
    """

    def __init__(self, vllm_config: Any, refusal: str | None) -> None:
        """`refusal`: why this engine's requests cannot be constrained; None if they can."""
        self._vllm_config = vllm_config
        self._refusal = refusal
        self._runtime: Runtime | None = None
        self._lines: Lines[Constrained] | None = None
        self._vocabulary: Vocabulary | None = None
        #: when connecting to a runtime last failed, and why
        self._failure: tuple[float, AiciError] | None = None
        #: requests without a controller that must end
        self._ended: set[Constrained] = set()

    def start(self, request: Constrained, prompt: Sequence[int] | None, outputs: Sequence[int] = ()) -> None:
        """Starts the request's controller, and reports the existing output tokens to it."""
        self.drop([request])
        request.received = 0
        try:
            if self._refusal is not None:
                raise AiciError(self._refusal)
            if prompt is None:
                raise AiciError(
                    "a controller needs the tokens of the prompt, but the prompt consists of embeddings"
                )
            if not request.ends:
                raise AiciError("no token ends this request: set stop_token_ids")
            try:
                self._instantiate(request, prompt)
            except SupervisorDiedError as error:
                self._give_up(error)
                self._instantiate(request, prompt)
        except Exception as error:
            self.fail(request, error)
        else:
            self.hear(request, outputs)

    def hear(self, request: Constrained, tokens: Sequence[int]) -> None:
        """Records new tokens of a request."""
        request.received += len(tokens)
        if self._lines is None or request in self._ended:
            return
        try:
            for token in tokens:
                self._lines.hear(request, token)
        except OverruledError as error:
            self.fail(request, error)

    def fail(self, request: Constrained, error: Exception) -> None:
        """Ends the request with an error."""
        if self._lines is not None:
            self._lines.drop([request])
        self._ended.add(request)
        _log(request, error)

    def post(self) -> None:
        """Begins a step of the controllers with pending reports, without waiting."""
        if self._lines is not None:
            try:
                self._lines.post()
            except Exception as error:
                self._give_up(error)

    def rows(self) -> dict[Constrained, Row]:
        """Returns the constraint on each request's next token; waits for the slowest controller."""
        rows: dict[Constrained, Row] = {}
        if self._lines is not None:
            try:
                rows = self._lines.rows()
            except Exception as error:
                self._give_up(error)
        if self._lines is not None:
            self._report(self._lines)
        for request in self._ended:
            rows[request] = Row(RowKind.TOKEN, token=request.ends[0] if request.ends else 0)
        return rows

    def drop(self, requests: Iterable[Constrained]) -> None:
        """Forgets requests that have ended or are preempted, and frees their controllers."""
        requests = list(requests)
        for request in requests:
            self._ended.discard(request)
        if self._lines is not None:
            self._lines.drop(requests)

    def close(self) -> None:
        """Frees all controllers and closes the runtime."""
        self._ended.clear()
        self._disconnect()

    # -- the runtime ----------------------------------------------------------------------------

    def _instantiate(self, request: Constrained, prompt: Sequence[int]) -> None:
        """Starts a controller. Raises AiciError."""
        lines = self._connect()
        call, ends, seed = request.call, request.ends, request.seed
        lines.start(request, call.controller, call.arg, prompt, ends, seed=seed, wait=False, owner=call.owner)

    def _connect(self) -> Lines[Constrained]:
        """Returns the lines of a connected runtime. Raises AiciError if no runtime is available."""
        if self._lines is not None:
            return self._lines
        if self._failure is not None and time.monotonic() - self._failure[0] < RETRY_SECONDS:
            raise self._failure[1]
        try:
            self._vocabulary = self._vocabulary or engine_vocabulary(self._vllm_config)
            count = self._vllm_config.scheduler_config.max_num_seqs
            self._runtime = Runtime(num_rows=max(256, 2 * count), num_dense=max(4, min(2 * count, MAX_DENSE)))
            self._runtime.register(self._vocabulary)
        except AiciError as error:
            self._disconnect()
            self._failure = time.monotonic(), error
            raise
        self._lines = Lines(self._runtime)
        return self._lines

    def _give_up(self, error: Exception) -> None:
        """Gives up a failed runtime: its requests end, and the next request connects to a new one."""
        lines = self._lines
        if lines is not None:
            self._report(lines)
            self._ended.update(lines.stopping)
            for request in lines.live:
                self.fail(request, error)
        self._disconnect()

    def _disconnect(self) -> None:
        self._lines = None
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close()

    def _report(self, lines: Lines[Constrained]) -> None:
        for request, error in lines.errors.items():
            _log(request, error)
        for request, text in lines.logs.items():
            logger.debug("the controller %r of a request printed: %s", request.call.controller, text)
        lines.errors.clear()
        lines.logs.clear()


def _log(request: Constrained, error: Exception) -> None:
    """Logs the failure of a request. On this path vLLM cannot carry a message to the client."""
    unexpected = not isinstance(error, (AiciError, OverruledError))
    name, why = request.call.controller, str(error)
    logger.error("the controller %r of a request has failed: %s", name, why, exc_info=unexpected)
