"""A worker of vLLM without kernels: keeps a cache of tokens in vLLM's blocks, and samples from a tiny model.

It reads `SchedulerOutput` and `GrammarOutput` and returns `ModelRunnerOutput` as vLLM's model runners do.
Instead of keys and values, each slot of the cache has the token that was read there and its position. Logits
are computed from what the blocks of a request hold, never from what the worker remembers of it. If the two
differ, the scheduler has given a request blocks, or a number of computed tokens, that do not fit: the worker
raises.

With asynchronous scheduling it returns outputs that are read later, and knows the drafts itself, as a GPU
does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import (
    EMPTY_MODEL_RUNNER_OUTPUT,
    AsyncModelRunnerOutput,
    DraftTokenIds,
    LogprobsLists,
    LogprobsTensors,
    ModelRunnerOutput,
)
from vllm.v1.structured_output.utils import apply_grammar_bitmask
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from lab.vllm.simulated.model import TinyModel
from pyaici.engines.batching.sampler import Choice, NumpySampler
from pyaici.engines.sampling import Sampling, Tally
from pyaici.engines.vllm.workers.runners import LogitsRows, StepRows, asked_temperatures, guarded, truncated

if TYPE_CHECKING:
    from contextlib import ExitStack

    from numpy.typing import NDArray

#: what a slot has that nobody has written since its block was freed, and a draft that is not known
_NOTHING, _UNKNOWN = -2, -1


@dataclass(eq=False)
class Seen:
    """A request as the worker knows it."""

    params: Any
    prompt_length: int
    #: the prompt and the output so far
    tokens: list[int]
    #: the numbers of its blocks
    blocks: list[int]
    generator: random.Random
    adapter: int = 0
    #: tokens that the next pass checks
    drafts: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Fed:
    """The part of a request in a pass."""

    seen: Seen
    #: position of the first token that is read, and the tokens
    start: int
    tokens: list[int]
    drafts: list[int]

    @property
    def samples(self) -> bool:
        """Whether the pass reaches the last known token."""
        return self.start + len(self.tokens) - len(self.drafts) >= len(self.seen.tokens)


@dataclass
class Pass:
    """A pass between `execute_model` and `sample_tokens`."""

    output: Any
    fed: dict[str, Fed]
    #: float32 [lines, V]: for each request that samples, a line after its last token and after each draft
    logits: torch.Tensor
    #: the first line of each request that samples
    lines: dict[str, int]
    prompt_logprobs: dict[str, LogprobsTensors]


class TokenCache:
    """Tokens and their positions by slot, in blocks as vLLM numbers them."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._size = block_size
        self._tokens = np.full(num_blocks * block_size, _NOTHING, np.int64)
        self._positions = np.full(num_blocks * block_size, _NOTHING, np.int64)

    def clear(self, blocks: Sequence[int]) -> None:
        """Forgets what blocks hold."""
        self._tokens.reshape(-1, self._size)[list(blocks)] = _NOTHING

    def write(self, blocks: Sequence[int], start: int, tokens: Sequence[int]) -> None:
        """Writes tokens at the positions from `start` on."""
        slots = self._slots(blocks, start, start + len(tokens))
        self._tokens[slots] = tokens
        self._positions[slots] = np.arange(start, start + len(tokens))

    def read(self, blocks: Sequence[int], count: int, name: str, believed: Sequence[int]) -> list[int]:
        """Returns the first `count` tokens. Raises AssertionError if they are not those that are believed."""
        slots = self._slots(blocks, 0, count)
        found = self._tokens[slots]
        wrong = np.flatnonzero((found != believed[:count]) | (self._positions[slots] != np.arange(count)))
        if len(wrong):
            at = int(wrong[0])
            raise AssertionError(
                f"request {name}: of {count} tokens, the one at position {at} is {believed[at]}, but slot "
                f"{int(slots[at])} has token {int(found[at])} of position {int(self._positions[slots[at]])}"
            )
        return list(found.tolist())

    def _slots(self, blocks: Sequence[int], start: int, stop: int) -> NDArray[np.int64]:
        positions = np.arange(start, stop)
        return np.asarray(blocks, np.int64)[positions // self._size] * self._size + positions % self._size


class SimulatedRunner:
    """The model runner: what `LogitsRows` needs of one."""

    def __init__(self, config: Any) -> None:
        self._model = TinyModel()
        self._sampler = NumpySampler()
        self._asynchronous = config.scheduler_config.async_scheduling
        self._num_drafts = config.num_speculative_tokens
        self.cache: TokenCache | None = None
        self.requests: dict[str, Seen] = {}
        #: the pass whose tokens are not sampled yet
        self.state: Pass | None = None
        #: the rows of controllers in this pass
        self.rows: StepRows | None = None
        #: of all tokens that have been sampled: the same in all ranks
        self.digest = 0
        self.temperatures: dict[str, float] = {}
        #: requests of which the rows leave out tokens, in place of this runner
        self.cut: list[str] = []
        SimulatedRows(self)

    def execute_model(self, output: Any) -> ModelRunnerOutput | None:
        """Reads the tokens of a pass, a SchedulerOutput, and computes logits."""
        self._update(output)
        if not output.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        fed = {name: self._feed(name, count, output) for name, count in output.num_scheduled_tokens.items()}
        lines, rows = {}, []
        for one in fed.values():
            assert self.cache is not None
            self.cache.write(one.seen.blocks, one.start, one.tokens)
        for name, one in fed.items():
            if one.samples:
                lines[name] = len(rows)
                known = len(one.seen.tokens)
                for count in range(known, known + len(one.drafts) + 1):
                    rows.append(self._logits(name, one, count))
        logits = torch.from_numpy(np.stack(rows) if rows else np.empty((0, 1), np.float32))
        prompts = {name: scores for name, one in fed.items() if (scores := self._prompt_logprobs(name, one))}
        self.state = Pass(output, fed, logits, lines, prompts)
        return None

    def sample_tokens(self, grammar: Any) -> Any:
        """Samples under the masks of a GrammarOutput. Returns what `execute_model` returns in vLLM."""
        state, self.state = self.state, None
        assert state is not None
        if self.rows is not None:
            guarded(self.rows.measure, state.logits)
        if grammar is not None:
            batch = _Batch(list(state.lines))
            apply_grammar_bitmask(state.output, grammar, batch, state.logits)
        if self.rows is not None:
            guarded(self.rows.apply, state.logits)
        sampled: dict[str, list[int]] = {name: [] for name in state.fed}
        for name, first in state.lines.items():
            sampled[name] = self._sample(name, state.fed[name], state.logits.numpy()[first:])
        if self.rows is not None:
            width = max(map(len, sampled.values()))
            table = [sampled[name] + [-1] * (width - len(sampled[name])) for name in state.lines]
            guarded(self.rows.read_tokens, torch.tensor(table), list(state.lines))
        self.digest = hash((self.digest, *map(tuple, sampled.values())))
        result = ModelRunnerOutput(
            req_ids=list(state.fed),
            req_id_to_index={name: place for place, name in enumerate(state.fed)},
            sampled_token_ids=list(sampled.values()),
            logprobs=self._logprobs(state, sampled),
            prompt_logprobs_dict=dict(state.prompt_logprobs),
        )
        for name, tokens in sampled.items():
            seen = self.requests[name]
            seen.tokens += tokens
            seen.drafts = self._propose(seen.tokens) if tokens else []
        return Later(result) if self._asynchronous else result

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        """Returns the drafts for the next pass."""
        names = [name for name, seen in self.requests.items() if seen.drafts]
        return DraftTokenIds(names, [self.requests[name].drafts for name in names])

    # -- requests -------------------------------------------------------------------------------

    def _update(self, output: Any) -> None:
        """Follows the scheduler: ended, new, moved and resumed requests."""
        for name in output.finished_req_ids:
            self.requests.pop(name, None)
        if output.new_block_ids_to_zero and self.cache is not None:
            self.cache.clear([block for block in output.new_block_ids_to_zero if isinstance(block, int)])
        for new in output.scheduled_new_reqs:
            known = self.requests.get(new.req_id)  # one that has moved keeps its generator
            self.requests[new.req_id] = Seen(
                new.sampling_params,
                len(new.prompt_token_ids),
                list(new.prefill_token_ids or new.prompt_token_ids),
                list(new.block_ids[0]),
                _generator(new) if known is None else known.generator,
                new.lora_request.lora_int_id if new.lora_request else 0,
            )
        cached = output.scheduled_cached_reqs
        for place, name in enumerate(cached.req_ids):
            seen, blocks = self.requests[name], cached.new_block_ids[place]
            if name in cached.resumed_req_ids:
                seen.blocks, seen.drafts = list(blocks[0]), []
                if name in cached.all_token_ids:
                    seen.tokens = list(cached.all_token_ids[name])
            elif blocks is not None:
                seen.blocks += blocks[0]

    def _feed(self, name: str, count: int, output: Any) -> Fed:
        """Returns the tokens of a pass for a request."""
        seen, cached = self.requests[name], output.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        computed |= zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        start, planned = computed[name], output.scheduled_spec_decode_tokens.get(name, [])
        drafts = list(planned)
        if self._asynchronous and self._num_drafts:
            # the scheduler counts with drafts that all fit, and does not know them
            start = min(start, len(seen.tokens) - 1)
            mine = seen.drafts[: len(planned)]
            drafts = [*mine, *[_UNKNOWN] * (len(planned) - len(mine))]
            drafts = [
                draft if plan in (_UNKNOWN, draft) else _UNKNOWN
                for draft, plan in zip(drafts, planned, strict=True)
            ]
        tokens = [*seen.tokens, *drafts][start : start + count]
        assert len(tokens) == count, (
            f"request {name}: {count} tokens from position {start} are to be read; it has {len(seen.tokens)} "
            f"and {len(drafts)} drafts"
        )
        return Fed(seen, start, tokens, drafts)

    def _logits(self, name: str, one: Fed, count: int) -> NDArray[np.float32]:
        """Returns the logits after the first `count` tokens of a request and its drafts."""
        assert self.cache is not None
        believed = [*one.seen.tokens, *one.drafts]
        tokens = self.cache.read(one.seen.blocks, count, name, believed)
        return self._model.logits(tokens, one.seen.adapter)

    # -- sampling -------------------------------------------------------------------------------

    def _sample(self, name: str, one: Fed, logits: NDArray[np.float32]) -> list[int]:
        """Returns the accepted drafts of a request and the token after them. `logits`: from its line on."""
        seen, accepted = one.seen, list[int]()
        for line in range(len(one.drafts) + 1):
            token = self._choose(name, seen, [*seen.tokens, *accepted], logits[line])
            accepted.append(token)
            if line == len(one.drafts) or token != one.drafts[line]:
                break
        return accepted

    def _choose(self, name: str, seen: Seen, tokens: list[int], logits: NDArray[np.float32]) -> int:
        params = seen.params
        answer = tokens[seen.prompt_length :]
        sampling = Sampling(
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            repetition_penalty=params.repetition_penalty,
            logit_bias=tuple((params.logit_bias or {}).items()),
            min_tokens=params.min_tokens,
            bad_words=tuple(map(tuple, params.bad_words_token_ids or ())),
        )
        changes = None
        if sampling.changes_logits:
            tally = Tally(tokens[: seen.prompt_length], answer)
            changes = sampling.changes(tally, answer, params.all_stop_token_ids)
        line = logits[None].copy()
        if params.allowed_token_ids:
            allowed = np.zeros(len(logits), bool)
            allowed[params.allowed_token_ids] = True
            line[0, ~allowed] = -np.inf
        cut = name in self.cut
        choice = Choice(
            self.temperatures.get(name, params.temperature),
            1.0 if cut else params.top_p,
            0 if cut else max(0, params.top_k),
            seen.generator,
            min_p=0.0 if cut else params.min_p,
            changes=changes,
        )
        self._sampler.mask(line, [choice], line.shape[1])
        (chosen,) = self._sampler.choose(line, None, [choice])
        return max(0, chosen.token)  # vLLM samples some token if none is allowed

    def _propose(self, tokens: list[int]) -> list[int]:
        """Returns drafts: what followed the last token where it was before, as vLLM's n-grams do."""
        if not self._num_drafts:
            return []
        for start in range(len(tokens) - 2, -1, -1):
            if tokens[start] == tokens[-1]:
                return tokens[start + 1 : start + 1 + self._num_drafts]
        return []

    def _logprobs(self, state: Pass, sampled: dict[str, list[int]]) -> LogprobsLists | None:
        """Returns the log-probabilities that clients ask for, of the masked logits."""
        counts = [self.requests[name].params.num_logprobs for name in state.lines]
        wanted = [count for count in counts if count is not None]
        if not wanted:
            return None
        width = state.logits.shape[1] if -1 in wanted else max(wanted)
        ids, values, ranks, starts = [], [], [], [0]
        for name, tokens in sampled.items():
            for place, token in enumerate(tokens):
                line = state.logits[state.lines[name] + place].log_softmax(0)
                found = _most_likely(line, token, width)
                ids.append(found[0])
                values.append(found[1])
                ranks.append(found[2])
            starts.append(len(ids))
        return LogprobsLists(np.stack(ids), np.stack(values), np.array(ranks, np.int32), starts)

    def _prompt_logprobs(self, name: str, one: Fed) -> LogprobsTensors | None:
        """Returns the log-probabilities of a prompt's tokens when it has been read, if they are asked for."""
        seen = one.seen
        count = seen.params.prompt_logprobs
        if count is None or not one.samples or len(seen.tokens) > seen.prompt_length:
            return None
        found = [
            _most_likely(
                torch.from_numpy(self._logits(name, one, end)).log_softmax(0), seen.tokens[end], count
            )
            for end in range(1, seen.prompt_length)
        ]
        ids, values, ranks = zip(*found, strict=True)
        return LogprobsTensors(
            torch.from_numpy(np.stack(ids)), torch.from_numpy(np.stack(values)), torch.tensor(ranks)
        )


class SimulatedRows(LogitsRows):
    """The rows of controllers, applied by the simulated runner."""

    def prepare_step(self, rows: Any, stack: ExitStack) -> StepRows | None:
        """See `LogitsRows.prepare_step`."""
        runner: SimulatedRunner = self._runner
        state = runner.state
        if state is None:
            return None
        wanted = asked_temperatures(rows, state.lines)
        own = {name: float(runner.requests[name].params.temperature) for name in state.lines}
        runner.temperatures, runner.cut = wanted, truncated(rows, state.lines)
        step = runner.rows = StepRows(rows, own | wanted)
        step.set_lines(
            {name: (first, 1 + len(state.fed[name].drafts)) for name, first in state.lines.items()}
        )

        def done() -> None:
            runner.rows, runner.temperatures, runner.cut = None, {}, []

        stack.callback(done)
        return step


@dataclass
class _Batch:
    """The part of vLLM's batch that `apply_grammar_bitmask` reads."""

    req_ids: list[str]


class Later(AsyncModelRunnerOutput):
    """The output of an asynchronous pass."""

    def __init__(self, output: ModelRunnerOutput) -> None:
        self.model_runner_output = output

    def get_output(self) -> ModelRunnerOutput:
        return self.model_runner_output

    def get_kv_connector_output(self) -> None:
        """There is no connector."""


class SimulatedWorker(WorkerBase):
    """The worker that `SimulatedPlatform` chooses."""

    def init_device(self) -> None:
        self.device = torch.device("cpu")
        self.model_runner = SimulatedRunner(self.vllm_config)

    def load_model(self, **keywords: Any) -> None:
        """There are no weights."""

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """Returns one layer of full attention: slots of 8 bytes."""
        size = self.cache_config.block_size
        return {"layer": FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float32)}

    def get_supported_kv_cache_layouts(self) -> list[str]:
        return ["NHD"]

    def set_kv_cache_layout(self, *arguments: Any) -> None:
        """A slot has the same place in every layout."""

    def determine_available_memory(self) -> int:
        """Returns bytes for half a million tokens."""
        return 1 << 22

    def initialize_from_config(self, config: Any) -> None:
        self.model_runner.cache = TokenCache(config.num_blocks, self.cache_config.block_size)

    def compile_or_warm_up_model(self) -> CompilationTimes:
        return CompilationTimes(0.0, 0.0)

    def execute_model(self, scheduler_output: Any) -> Any:
        return self.model_runner.execute_model(scheduler_output)

    def sample_tokens(self, grammar_output: Any) -> Any:
        return self.model_runner.sample_tokens(grammar_output)

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        return self.model_runner.take_draft_token_ids()

    def digest(self) -> int:
        """Returns `SimulatedRunner.digest`."""
        return self.model_runner.digest

    def execute_dummy_batch(self) -> None:
        """Other ranks need nothing of this one."""

    def add_lora(self, lora_request: Any) -> bool:
        return True

    def remove_lora(self, lora_id: int) -> bool:
        return True


def _generator(new: Any) -> random.Random:
    """Returns the generator of a request: without a seed, one by its prompt, so that runs can be repeated."""
    seed = new.sampling_params.seed
    return random.Random(repr(new.prompt_token_ids) if seed is None else seed)


def _most_likely(
    line: torch.Tensor, token: int, count: int
) -> tuple[NDArray[np.int32], NDArray[np.float32], int]:
    """Returns ids and log-probabilities, a token and the `count` most likely ones, and the token's rank."""
    values, ids = line.topk(len(line) if count == -1 else count)
    own = line[token]
    all_ids = np.concatenate([[token], ids.numpy()]).astype(np.int32)
    all_values = np.concatenate([[own.item()], values.numpy()]).astype(np.float32)
    return all_ids, all_values, int((line >= own).sum())
