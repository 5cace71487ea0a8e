"""Applies the rows of controllers in vLLM's workers: biases, sampling options, and the allowed probability.

A grammar mask only forbids tokens. The rest of a controller's row travels with the masks (see `rows`) and is
applied while vLLM samples. A step without rows takes no part in this. If something here fails, the worker
does not set `MASS`, and the scheduler ends the requests that needed it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pyaici.client.masks import truncate
from pyaici.engines.vllm.workers import GREEDY_BELOW, LOGPROBS, MASS, ROWS, Logprobs, WorkerRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger("vllm.aici")

#: biased logits beyond this would be infinite after vLLM divides them by the lowest temperature
_LARGEST = 1e33


def install() -> None:
    """Attaches AICI to each model runner that a worker of this process creates.

    A worker process loads plugins within `init_worker`, so `init_device`, which comes next, is the first call
    that can be wrapped.
    """
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    init_device = WorkerWrapperBase.init_device
    if hasattr(init_device, "_aici"):
        return

    @functools.wraps(init_device)
    def init_device_and_attach(self: Any, *args: Any, **keywords: Any) -> Any:
        result = init_device(self, *args, **keywords)
        try:
            attach(self.worker.model_runner)
        except Exception as error:
            log.warning("controllers cannot use biases and temperatures: %r", error)
        return result

    init_device_and_attach._aici = True  # type: ignore[attr-defined]
    WorkerWrapperBase.init_device = init_device_and_attach


def attach(runner: Any) -> None:
    """Makes a model runner of vLLM apply rows and keep the output of moved requests.

    Does nothing for a runner of an unknown kind.
    """
    keep_output(runner)
    modules = {base.__module__ for base in type(runner).__mro__}
    if "vllm.v1.worker.gpu_model_runner" in modules:
        RowsOfRunnerV1(runner)
    elif "vllm.v1.worker.gpu.model_runner" in modules:
        RowsOfRunnerV2(runner)


def keep_output(runner: Any) -> None:
    """Makes a model runner of vLLM keep the output of moved requests apart from their prompt.

    The scheduler adds it (`send_output`). Does nothing for model runner V2, which keeps them apart itself.
    """
    update = getattr(runner, "_update_streaming_request", None)
    if update is None:
        return

    @functools.wraps(update)
    def update_and_keep(request_id: str, new: Any) -> Any:
        state = update(request_id, new)
        if new.prefill_token_ids is not None:
            state.output_token_ids.extend(new.prefill_token_ids[new.prompt_len :])
        return state

    runner._update_streaming_request = update_and_keep


class StepRows:
    """The rows of one step: measures logits before and after the mask, adds biases, leaves out tokens."""

    def __init__(self, rows: Mapping[str, Sequence[WorkerRow]], temperatures: Mapping[str, float]) -> None:
        """`temperatures`: the temperature of each request in this step."""
        self._rows = rows
        self._temperatures = temperatures
        #: the lines of the logits that belong to the rows of each request, once known
        self._lines: dict[str, range] = {}
        #: measured lines before the mask, at their temperatures, and their normalisation
        self._plain: torch.Tensor | None = None
        self._before: torch.Tensor | None = None
        self._mass: torch.Tensor | None = None
        self._top: tuple[torch.Tensor, torch.Tensor] | None = None
        self._sampled: torch.Tensor | None = None
        #: whether `apply` has succeeded
        self.applied = False

    def set_lines(self, lines: Mapping[str, tuple[int, int]]) -> None:
        """Sets the first line and the number of lines of each request of the batch."""
        for name, rows in self._rows.items():
            if name in lines:
                start, count = lines[name]
                self._lines[name] = range(start, start + min(count, len(rows)))

    @torch.inference_mode()
    def measure(self, logits: torch.Tensor) -> None:
        """Measures logits [lines, V] before the mask."""
        if self._measured():
            self._plain = self._scaled(logits)
            self._before = self._plain.logsumexp(dim=1)
            if count := max(row.top for name in self._measured() for row in self._rows[name]):
                values, tokens = self._plain.topk(min(count, logits.shape[1]))
                values -= self._before[:, None]
                self._top = (tokens.to("cpu", non_blocking=True), values.to("cpu", non_blocking=True))

    @torch.inference_mode()
    def apply(self, logits: torch.Tensor) -> None:
        """Measures logits [lines, V] after the mask; adds the biases and leaves out tokens, in place."""
        if self._before is not None:
            mass = (self._scaled(logits).logsumexp(dim=1) - self._before).clamp_(max=0)
            # vLLM waits for the tokens of the step, which it copies later, before anyone reads the output
            self._mass = mass.to("cpu", non_blocking=True)
        biased = [
            (line, row)
            for name, lines in self._lines.items()
            for line, row in zip(lines, self._rows[name], strict=False)
            if row.biases is not None
        ]
        if biased:
            add_biases(logits, biased)
        self._leave_out(logits)
        self.applied = True

    def _leave_out(self, logits: torch.Tensor) -> None:
        """Sets the tokens that rows leave out to -inf."""
        cut = [
            (line, self._temperatures[name], row.truncation)
            for name, lines in self._lines.items()
            for line, row in zip(lines, self._rows[name], strict=False)
            if row.truncation is not None and self._temperatures[name] >= GREEDY_BELOW
        ]
        if cut:
            lines, temperatures, options = zip(*cut, strict=True)
            index = _to_device(np.array(lines, np.int64), logits.device)
            chosen = logits.index_select(0, index)
            scaled = chosen.float() / _to_device(np.array(temperatures, np.float32), logits.device)[:, None]
            truncate(scaled, options)
            logits.index_copy_(0, index, chosen.masked_fill_(scaled == -np.inf, -np.inf))

    @torch.inference_mode()
    def read_tokens(self, sampled: torch.Tensor, names: Sequence[str]) -> None:
        """Reads the tokens of this step, [requests, positions]. `names`: the requests' ids."""
        if self._plain is None or self._before is None:
            return
        places = {name: place for place, name in enumerate(names)}
        last = sampled.shape[1] - 1
        index = [
            (places[name], min(position, last))
            for name in self._measured()
            for position in range(len(self._lines[name]))
        ]
        rows, columns = (
            _to_device(np.array(each, np.int64), sampled.device) for each in zip(*index, strict=True)
        )
        tokens = sampled[rows, columns].long().clamp_(min=0)  # -1 after a rejected draft
        logprobs = self._plain.gather(1, tokens[:, None])[:, 0] - self._before
        self._sampled = logprobs.clamp_(max=0).to("cpu", non_blocking=True)

    def measured_logprobs(self) -> dict[str, Logprobs]:
        """Returns the value of `LOGPROBS`. A device may still be writing the numbers."""
        if self._sampled is None:
            return {}
        sampled = self._sampled.numpy()
        tokens, values = np.zeros((len(sampled), 0), np.int64), np.zeros((len(sampled), 0), np.float32)
        if self._top is not None:
            tokens, values = (each.numpy() for each in self._top)
        found, start = {}, 0
        for name in self._measured():
            stop = start + len(self._lines[name])
            found[name] = Logprobs(sampled[start:stop], tokens[start:stop], values[start:stop])
            start = stop
        return found

    def measured_masses(self) -> dict[str, NDArray[np.float32]]:
        """Returns the value of `MASS`. A device may still be writing the numbers."""
        found = {}
        if self._mass is not None:
            numbers, start = self._mass.numpy(), 0
            for name in self._measured():
                stop = start + len(self._lines[name])
                found[name], start = numbers[start:stop], stop
        return found

    def _measured(self) -> list[str]:
        return [name for name in self._lines if any(row.mass for row in self._rows[name])]

    def _scaled(self, logits: torch.Tensor) -> torch.Tensor:
        """Returns the measured lines of logits at their temperatures, float32 [measured lines, V]."""
        lines: list[int] = []
        scale: list[float] = []
        for name in self._measured():
            temperature = self._temperatures[name]
            lines += self._lines[name]
            scale += [1.0 if temperature < GREEDY_BELOW else temperature] * len(self._lines[name])
        chosen = logits.index_select(0, _to_device(np.array(lines, np.int64), logits.device)).float()
        return chosen / _to_device(np.array(scale, np.float32), logits.device)[:, None]


def add_biases(logits: torch.Tensor, biased: Sequence[tuple[int, WorkerRow]]) -> None:
    """Adds biases to lines of logits [lines, V] in place, in float32. Each line is listed once.

    Raises ValueError if a row names a token that the logits do not have.
    """
    width = logits.shape[1]
    places: list[NDArray[np.int64]] = []
    tokens: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float32]] = []
    dense: list[int] = []
    tables: list[NDArray[np.float32]] = []
    for at, (_, row) in enumerate(biased):
        assert row.biases is not None
        if row.tokens is None:
            dense.append(at)
            tables.append(np.pad(row.biases[:width], (0, max(0, width - len(row.biases)))))
        else:
            if int(row.tokens.max()) >= width:
                raise ValueError(f"a row names token {int(row.tokens.max())}; there are {width} logits")
            places.append(np.full(len(row.tokens), at, np.int64))
            tokens.append(row.tokens)
            values.append(row.biases)
    device = logits.device
    lines = _to_device(np.array([line for line, _ in biased], np.int64), device)
    wide = logits.index_select(0, lines).float()
    if dense:
        which = _to_device(np.array(dense, np.int64), device)
        wide.index_add_(0, which, _to_device(np.stack(tables), device))
    if places:
        index = tuple(_to_device(np.concatenate(parts), device) for parts in (places, tokens))
        wide.index_put_(index, _to_device(np.concatenate(values), device), accumulate=True)
    wide.clamp_(max=min(_LARGEST, torch.finfo(logits.dtype).max))
    logits.index_copy_(0, lines, wide.to(logits.dtype))


def _to_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class LogitsRows:
    """Applies rows in the steps of one model runner: replaces the runner's `sample_tokens`."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._sample_tokens = runner.sample_tokens
        runner.sample_tokens = self.sample_tokens

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Samples like the runner, under the rows of `grammar_output` if there are any."""
        rows: Mapping[str, Sequence[WorkerRow]] | None = getattr(grammar_output, ROWS, None)
        if not rows:
            return self._sample_tokens(grammar_output)
        step = None
        with contextlib.ExitStack() as stack:
            try:
                step = self.prepare_step(rows, stack)
            except Exception:
                log.exception("the rows of controllers cannot be applied")
            result = self._sample_tokens(grammar_output)
        if step is not None and step.applied and result is not None:
            output = result
            for name in ("_model_runner_output", "model_runner_output"):  # asynchronous, in V1 and V2
                output = getattr(output, name, output)
            setattr(output, MASS, step.measured_masses())
            setattr(output, LOGPROBS, step.measured_logprobs())
        return result

    def prepare_step(
        self, rows: Mapping[str, Sequence[WorkerRow]], stack: contextlib.ExitStack
    ) -> StepRows | None:
        """Prepares a step; closing `stack` undoes that. Returns None if this rank samples nothing."""
        raise NotImplementedError


class RowsOfRunnerV1(LogitsRows):
    """Rows for vLLM's model runner V1. The batch of a step is what `execute_model_state` describes."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        #: generators of requests with temperature 0, by request id
        self._generators: dict[str, torch.Generator] = {}

    def prepare_step(
        self, rows: Mapping[str, Sequence[WorkerRow]], stack: contextlib.ExitStack
    ) -> StepRows | None:
        """See `LogitsRows.prepare_step`."""
        runner, state = self._runner, self._runner.execute_model_state
        if state is None or state.logits is None:
            return None
        batch = runner.input_batch
        wanted = asked_temperatures(rows, batch.req_id_to_index)
        places = batch.req_id_to_index
        cut = [places[name] for name in truncated(rows, places)]
        if wanted or cut:
            stack.enter_context(self._with_options(wanted, cut))
        own = {name: float(batch.temperature_cpu[places[name]]) for name in rows if name in places}
        step = StepRows(rows, own | wanted)
        drafts, lines, start = state.scheduler_output.scheduled_spec_decode_tokens, {}, 0
        for name in batch.req_ids:
            count = 1 + len(drafts.get(name, ()))
            lines[name] = start, count
            start += count
        step.set_lines(lines)
        step.measure(state.logits)
        sample = runner._sample

        def sample_masked(logits: torch.Tensor, *args: Any, **keywords: Any) -> Any:
            guarded(step.apply, logits)
            output = sample(logits, *args, **keywords)
            guarded(step.read_tokens, output.sampled_token_ids, batch.req_ids)
            return output

        stack.enter_context(_replaced(runner, "_sample", sample_masked))
        return step

    @contextlib.contextmanager
    def _with_options(self, wanted: Mapping[str, float], cut: list[int]) -> Iterator[None]:
        """Samples requests at other temperatures within the `with` body.

        `cut`: places of requests of which vLLM leaves out no tokens.
        """
        batch = self._runner.input_batch
        temperatures, kept = batch.temperature_cpu[: batch.num_reqs].copy(), batch.sampling_metadata
        generators = dict(kept.generators)
        for name, temperature in wanted.items():
            place = batch.req_id_to_index[name]
            temperatures[place] = temperature
            if not temperature:
                # vLLM would draw from it if the batch has random requests, and not if all are greedy
                generators.pop(place, None)
            elif place not in generators and (generator := self._generator(name)) is not None:
                generators[place] = generator
        greedy = temperatures < GREEDY_BELOW
        batch.sampling_metadata = dataclasses.replace(
            kept,
            generators=generators,
            temperature=_to_device(temperatures, torch.device(self._runner.device)),
            all_greedy=bool(greedy.all()),
            all_random=not greedy.any(),
            **_keeping_all(kept, cut, batch.vocab_size),
        )
        try:
            yield
        finally:
            batch.sampling_metadata = kept

    def _generator(self, name: str) -> torch.Generator | None:
        """Returns the generator of a request with temperature 0, for which vLLM makes none.

        Returns None if the request has no seed.
        """
        requests = self._runner.requests
        seed: int | None = requests[name].sampling_params.seed
        if seed is None:
            return None
        if name not in self._generators:
            self._generators = {other: made for other, made in self._generators.items() if other in requests}
            self._generators[name] = torch.Generator(device=self._runner.device)
            self._generators[name].manual_seed(seed)
        return self._generators[name]


class RowsOfRunnerV2(LogitsRows):
    """Rows for vLLM's model runner V2, which computes logits while it samples and keeps requests in slots."""

    def prepare_step(
        self, rows: Mapping[str, Sequence[WorkerRow]], stack: contextlib.ExitStack
    ) -> StepRows | None:
        """See `LogitsRows.prepare_step`."""
        runner = self._runner
        if runner.execute_model_state is None or not runner.is_last_pp_rank:
            return None
        slots = runner.req_states.req_id_to_index
        wanted = asked_temperatures(rows, slots)
        own = runner.sampler.sampling_states.temperature.np
        temperatures = {name: float(own[slots[name]]) for name in rows if name in slots} | wanted
        cut = [slots[name] for name in truncated(rows, slots)]
        if wanted or cut:
            asked = {slots[name]: wanted[name] for name in wanted}
            stack.enter_context(self._with_options(asked, cut))
        step = StepRows(rows, temperatures)
        worker = runner.structured_outputs_worker
        apply_mask = worker.apply_grammar_bitmask

        def mask_and_apply(logits: torch.Tensor, input_batch: Any, *args: Any, **keywords: Any) -> None:
            starts = input_batch.cu_num_logits_np.tolist()
            step.set_lines(
                {
                    name: (start, stop - start)
                    for name, start, stop in zip(input_batch.req_ids, starts, starts[1:], strict=False)
                }
            )
            measured = guarded(step.measure, logits)
            apply_mask(logits, input_batch, *args, **keywords)
            if measured:
                guarded(step.apply, logits)

        sample = runner.sample

        def sample_and_read(
            hidden_states: torch.Tensor, input_batch: Any, *args: Any, **keywords: Any
        ) -> Any:
            result = sample(hidden_states, input_batch, *args, **keywords)
            guarded(step.read_tokens, result[0].sampled_token_ids, input_batch.req_ids)
            return result

        stack.enter_context(_replaced(worker, "apply_grammar_bitmask", mask_and_apply))
        stack.enter_context(_replaced(runner, "sample", sample_and_read))
        return step

    @contextlib.contextmanager
    def _with_options(self, wanted: Mapping[int, float], cut: list[int]) -> Iterator[None]:
        """Samples slots at other temperatures within the `with` body.

        `cut`: slots of which vLLM leaves out no tokens.
        """
        sampler = self._runner.sampler
        states, needs = sampler.sampling_states, sampler.needs_logits_processing
        changes = [(states.temperature, list(wanted), list(wanted.values()))]
        changes += [
            (getattr(states, name), cut, [value] * len(cut))
            for name, value in (("top_p", 1.0), ("top_k", states.vocab_size), ("min_p", 0.0))
        ]
        kept = [(state, places, state.np[places], state.gpu) for state, places, _ in changes]
        slots = list(wanted)
        kept_needs = needs[slots]
        needs[slots] = True
        for state, places, values in changes:
            state.np[places] = values
            # a tensor of its own: kernels read vLLM's buffer after this function has restored it
            state.gpu = _to_device(state.np.copy(), state.gpu.device)
        try:
            yield
        finally:
            needs[slots] = kept_needs
            for state, places, before, on_device in kept:
                state.np[places], state.gpu = before, on_device


def asked_temperatures(rows: Mapping[str, Sequence[WorkerRow]], batch: Mapping[str, Any]) -> dict[str, float]:
    """Returns the temperatures that rows of this batch set. All positions of a request have the same."""
    found = {}
    for name, each in rows.items():
        temperatures = [row.temperature for row in each if row.temperature is not None]
        if temperatures and name in batch:
            found[name] = temperatures[0]
    return found


def truncated(rows: Mapping[str, Sequence[WorkerRow]], batch: Mapping[str, Any]) -> list[str]:
    """Returns the requests of this batch whose rows leave out tokens, in place of vLLM."""
    return [name for name in rows if name in batch and any(row.truncation is not None for row in rows[name])]


def _keeping_all(metadata: Any, places: list[int], vocab_size: int) -> dict[str, Any]:
    """Returns fields of a SamplingMetadata with which vLLM leaves out no tokens of these requests."""
    if not places:
        return {}

    def with_value(numbers: torch.Tensor | None, value: float) -> torch.Tensor | None:
        if numbers is not None:
            numbers = numbers.clone()
            numbers[_to_device(np.array(places, np.int64), numbers.device)] = value
        return numbers

    processors = copy.copy(metadata.logitsprocs)
    processors.argmax_invariant = list(map(copy.copy, processors.argmax_invariant))
    for each in processors.argmax_invariant:
        if getattr(each, "min_p_count", 0):
            each.min_p = with_value(each.min_p, 0.0)
    top_p, top_k = with_value(metadata.top_p, 1.0), with_value(metadata.top_k, vocab_size)
    return {"top_p": top_p, "top_k": top_k, "logitsprocs": processors}


def guarded(what: Callable[..., None], *arguments: Any) -> bool:
    """Calls `what` and returns whether it succeeded. An error is logged; it would end vLLM's engine."""
    try:
        what(*arguments)
    except Exception:
        log.exception("the rows of controllers cannot be applied")
        return False
    return True


@contextlib.contextmanager
def _replaced(owner: Any, name: str, method: Any) -> Iterator[None]:
    """Gives an object its own method within the `with` body."""
    setattr(owner, name, method)
    try:
        yield
    finally:
        delattr(owner, name)
