"""The package kbnf in a separate process, since it does not return for some grammars.

`python -m tests.controllers.kbnf.peer` reads a case a line and answers with a line.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any, NamedTuple

import kbnf

from tests.controllers.grammars.vocabularies import few_tokens

_SECONDS = 10


class Step(NamedTuple):
    """A mask, and the token taken from it, or -1. `finished`: the text had already ended."""

    mask: list[int]
    token: int
    finished: bool


class Peer:
    """Walks through grammars; the result is None if the package hangs, crashes or refuses the grammar."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def walk(self, grammar: str, seed: int) -> list[Step] | None:
        if self._process is None:
            command = [sys.executable, "-m", "tests.controllers.kbnf.peer"]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._process.stdin and self._process.stdout
        try:
            print(json.dumps([grammar, seed]), file=self._process.stdin, flush=True)
            answer = _line(self._process)
        except (subprocess.TimeoutExpired, ValueError, BrokenPipeError):
            self.close()
            return None
        return None if answer is None else [Step(*step) for step in answer]

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
        self._process = None


def _line(process: subprocess.Popen[str]) -> Any:
    """Reads a line from the process. Raises TimeoutExpired after the time limit of a case."""
    import select

    assert process.stdout
    ready, _, _ = select.select([process.stdout], [], [], _SECONDS)
    if not ready:
        raise subprocess.TimeoutExpired("kbnf", _SECONDS)
    return json.loads(process.stdout.readline())


def _walk(grammar: str, seed: int) -> list[Step]:
    """Walks in the configuration with correct masks, which caches nothing between masks."""
    tokens = few_tokens().tokens[:-1]
    vocabulary = kbnf.Vocabulary(
        {i: kbnf.Token(token) for i, token in enumerate(tokens)},
        {i: token.decode() for i, token in enumerate(tokens)},
    )
    config = kbnf.Config()
    options = config.engine_config
    options.cache_enabled = options.compaction_enabled = options.rejected_token_prefix_cache_enabled = False
    config.engine_config = options
    engine, rng, steps = kbnf.Engine(grammar, vocabulary, config), random.Random(seed), list[Step]()
    for _ in range(8):
        if engine.is_finished():
            return [*steps, Step([], -1, True)]
        engine.compute_allowed_token_ids()
        mask = sorted(engine.get_allowed_token_ids_from_last_computation())
        steps.append(Step(mask, rng.choice(mask) if mask else -1, False))
        if not mask:
            return steps
        engine.try_accept_new_token(steps[-1].token)
    return steps


def _main() -> None:
    for line in sys.stdin:
        grammar, seed = json.loads(line)
        answer: list[Step] | None
        try:
            answer = _walk(grammar, seed)
        except ValueError:
            answer = None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
