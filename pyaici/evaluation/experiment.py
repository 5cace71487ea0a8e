"""Runs every row of a data set with every seed, with a controller or without one."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyaici.engines.engine import (
    Backtracked,
    Engine,
    Event,
    Forked,
    GenerationResult,
    Origin,
    Prompt,
    Request,
    TokensAppended,
)

if TYPE_CHECKING:
    from pyaici.client.arguments import Argument
    from pyaici.engines.rest_events import ServerEngine
    from pyaici.evaluation.metrics import Metric


@dataclass(frozen=True, slots=True)
class Example:
    """A row of the data: a prompt, and what the metrics compare the answer with."""

    #: the row's own `id`, or the number of its line
    id: str
    #: a text, or the messages of a chat
    prompt: Prompt
    #: the whole row
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to answer: a controller with its argument, or none."""

    name: str
    #: id, tag or name of the controller; None = no controller
    controller: str | None = None
    #: returns the controller's argument for a row
    argument: Callable[[Mapping[str, Any]], Argument] = lambda data: b""


@dataclass(slots=True)
class Outcome:
    """The answer to a row with one seed. All but the last two fields are the same in every run."""

    variant: str
    id: str
    seed: int
    #: the seed of the request, which differs from row to row
    request_seed: int
    #: of the first sequence
    text: str = ""
    finish_reason: str = ""
    #: the first error of a sequence
    error: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    #: by the names of the metrics
    metrics: dict[str, float] = field(default_factory=dict)
    #: tokens of all sequences
    sampled: int = 0
    forced: int = 0
    backtracked: int = 0
    sequences: int = 1
    #: forward passes that computed tokens of the row, without those that only read its prompt
    passes: int = 0
    #: from the first pass to the end; with a batch, of the steps that the row took part in
    seconds: float = 0.0
    #: added by its controllers and masks to the steps that it took part in
    control_seconds: float = 0.0

    def result(self) -> dict[str, Any]:
        """Returns what does not depend on the machine's speed, as JSON has it."""
        return {name: value for name, value in asdict(self).items() if name not in TIMES}

    def times(self) -> dict[str, Any]:
        """Returns the rest, with what identifies the outcome."""
        kept = ("variant", "id", "seed", *TIMES)
        return {name: value for name, value in asdict(self).items() if name in kept}


#: fields that differ from run to run
TIMES = ("seconds", "control_seconds")


def read_examples(path: str | Path, limit: int | None = None) -> list[Example]:
    """Reads rows from a file of JSON lines, at most `limit`: objects with a `prompt` or with `messages`.

    Raises OSError, and ValueError for a row that is wrong, or if there is none.
    """
    found: list[Example] = []
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if len(found) == limit:
                break
            if line.strip():
                try:
                    found.append(_example(line, number))
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: {error}") from None
    if not found:
        raise ValueError(f"{path} has no rows: give an object with a prompt in each line")
    if len({example.id for example in found}) < len(found):
        raise ValueError(f"{path}: several rows have the same id")
    return found


def _example(line: str, number: int) -> Example:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}") from None
    if not isinstance(data, dict) or ("prompt" in data) == ("messages" in data):
        raise ValueError("a row is an object with either a prompt or messages")
    prompt: Any = data.get("prompt", data.get("messages"))
    chat = isinstance(prompt, list) and prompt and all(isinstance(message, dict) for message in prompt)
    if not (isinstance(prompt, str) if "prompt" in data else chat):
        raise ValueError("prompt must be a text, and messages a list of objects with role and content")
    return Example(str(data.get("id", number)), prompt, data)


def request_seed(seed: int, example: str) -> int:
    """Returns the seed of a row's request, 0 to 2^32 - 1: rows with one seed must not share their luck."""
    digest = hashlib.blake2b(f"{seed}/{example}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")


#: the default options of a request
_PLAIN = Request("")


def evaluate(
    engine: Engine | ServerEngine,
    examples: Iterable[Example],
    variant: Variant,
    metrics: Sequence[Metric],
    *,
    seeds: Iterable[int] = (1,),
    request: Request = _PLAIN,
    batch: int = 1,
) -> Iterator[Outcome]:
    """Yields the outcome of each row with each seed, rows first.

    `request`: the options of every request; its prompt, controller and seed are replaced. `batch`: how many
    requests run at a time; the next ones begin when all have ended. Logits depend a little on what else a
    pass computes. So with 1, an outcome depends on nothing but its own row and seed; with more, it also
    depends on the rows beside it, and the outcomes of a whole run are repeatable.

    Sets `engine.steady` where the engine has it. Raises the errors of `Engine.add`, and ValueError if a
    metric fails.
    """
    if hasattr(engine, "steady"):
        engine.steady = True
    jobs = ((example, seed) for seed in seeds for example in examples)
    while group := list(itertools.islice(jobs, max(1, batch))):
        running: dict[int, tuple[Example, Outcome]] = {}
        for example, seed in group:
            outcome = Outcome(variant.name, example.id, seed, request_seed(seed, example.id))
            number = engine.add(
                replace(
                    request,
                    prompt=example.prompt,
                    controller=variant.controller,
                    arg=variant.argument(example.data),
                    sampling=replace(request.sampling, seed=outcome.request_seed),
                )
            )
            running[number] = example, outcome
        _run_engine(engine, {number: outcome for number, (_, outcome) in running.items()})
        for number, (example, outcome) in running.items():
            _finish(outcome, engine.results(number))
            answer = outcome.result()
            outcome.metrics = {metric.name: metric(example.data, answer) for metric in metrics}
            yield outcome


def _run_engine(engine: Engine | ServerEngine, outcomes: Mapping[int, Outcome]) -> None:
    """Steps until the engine has no work left; counts what happens to each request."""
    while engine.busy:
        events = engine.step()
        control = engine.stats.last_control_seconds or 0.0
        moved = {event.request for event in events if _count(outcomes[event.request], event)}
        for number in moved:
            outcomes[number].passes += 1
            outcomes[number].control_seconds += control


def _count(outcome: Outcome, event: Event) -> bool:
    """Counts an event; returns whether a pass has computed tokens for it."""
    if isinstance(event, TokensAppended) and event.origin is not Origin.PROMPT:
        if event.origin is Origin.SAMPLED:
            outcome.sampled += len(event.tokens)
        else:
            outcome.forced += len(event.tokens)
        return True
    if isinstance(event, Backtracked):
        outcome.backtracked += event.count
        return True
    if isinstance(event, Forked):
        outcome.sequences += len(event.children)
    return False


def _finish(outcome: Outcome, results: Sequence[GenerationResult]) -> None:
    first = results[0]
    outcome.text, outcome.finish_reason = first.text, first.finish_reason.value
    outcome.error = next((str(result.error) for result in results if result.error is not None), None)
    outcome.variables = {
        name: value.decode("utf-8", "replace") for name, value in sorted(first.variables.items())
    }
    outcome.seconds = max(result.seconds for result in results)
