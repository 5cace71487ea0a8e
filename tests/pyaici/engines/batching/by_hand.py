"""A client that generates under a controller by hand, without an engine: every verb."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput
from pyaici.client.masks import apply_row
from pyaici.client.results import MidResult
from pyaici.client.runtime import Runtime

#: returns the logits after some tokens, float32 [N]; those of ids that are no tokens are -inf
Logits = Callable[[list[int]], NDArray[np.float32]]


@dataclass
class _Branch:
    """A sequence, and what to tell its controller next."""

    tokens: list[int]
    report: StepInput
    #: for rows with a temperature of their own; the engine seeds forks in another way, so they have none
    generator: random.Random | None
    holds_end: bool = False
    ended: bool = False


def generate_by_hand(
    logits: Logits,
    runtime: Runtime,
    module: str,
    arg: str,
    prompt: list[int],
    *,
    max_tokens: int,
    ends: tuple[int, ...],
    seed: int,
) -> list[list[int]]:
    """Generates greedily under a controller. Returns the new tokens of all forks, sorted.

    Only the first sequence may have rows with a temperature.
    """
    first = runtime.instantiate(module, arg, prompt, seed=seed)
    live = {first: _Branch(list(prompt), StepInput(first), random.Random(seed))}
    done: list[list[int]] = []
    while live:
        step = runtime.begin_step([branch.report for branch in live.values()])
        active = {control: branch for control, branch in live.items() if not branch.ended}
        live = dict(active)
        for control, answer in step.wait_pre().items():
            if control not in active:
                continue
            branch = active[control]
            if answer.verb == Verb.FORK:
                for child in answer.children:
                    live[child] = replace(branch, tokens=branch.tokens.copy(), generator=None)
                    active[child] = live[child]
                continue
            assert answer.error is None, answer.error
            del active[control]
            branch.report = StepInput(control)
            if answer.verb == Verb.STOP:
                done.append(live.pop(control).tokens)
        lines = {control: logits(branch.tokens) for control, branch in active.items()}
        answers = step.wait().mid
        for control, branch in active.items():
            assert answers[control].error is None, answers[control].error
            if answers[control].verb == Verb.STOP:
                done.append(live.pop(control).tokens)
                continue
            branch.report = _carry_out(control, branch, answers[control], lines[control], max_tokens, prompt)
            new = branch.report.tokens
            end = bool(new) and new[-1] in ends and not branch.holds_end
            if end or len(branch.tokens) >= len(prompt) + max_tokens:
                branch.ended, branch.report = True, branch.report._replace(final=True)
                done.append(branch.tokens)
    return sorted(tokens[len(prompt) :] for tokens in done)


def _carry_out(
    control: int,
    branch: _Branch,
    answer: MidResult,
    logits: NDArray[np.float32],
    max_tokens: int,
    prompt: list[int],
) -> StepInput:
    """Carries out a splice or samples the best token. Returns the report for the next step."""
    branch.holds_end = answer.hold_end
    if answer.verb == Verb.SPLICE:
        del branch.tokens[len(branch.tokens) - answer.backtrack :]
        new = list(answer.ff_tokens)[: len(prompt) + max_tokens - len(branch.tokens)]
        branch.tokens += new
        return StepInput(control, tokens=new, backtrack=answer.backtrack)
    if answer.verb != Verb.SAMPLE:
        assert answer.verb == Verb.LATE
        return StepInput(control)
    row = answer.row
    assert row is not None
    masked = logits.copy()
    apply_row(masked, row)
    token, temperature = int(masked.argmax()), 1.0
    if row.temperature:
        assert branch.generator is not None
        temperature = row.temperature
        cumulated = np.exp((masked - masked.max()) / temperature).cumsum(dtype=np.float64)
        token = int(np.searchsorted(cumulated, branch.generator.random() * cumulated[-1], "right"))
    logprobs: Any = logits.astype(np.float64) / temperature
    logprobs -= np.log(np.exp(logprobs - logprobs.max()).sum()) + logprobs.max()
    best = np.argsort(-logprobs, kind="stable")[: row.top_logprobs].tolist()
    branch.tokens.append(token)
    return StepInput(
        control,
        tokens=[token],
        sampled=True,
        logprob=float(logprobs[token]),
        allowed_mass=min(1.0, float(np.exp(logprobs[masked > -np.inf]).sum())),
        top_logprobs=[(other, float(logprobs[other])) for other in best] if best else None,
    )
