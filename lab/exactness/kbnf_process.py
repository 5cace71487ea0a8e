"""Serves the package kbnf to another process: reads questions, one JSON value a line, and answers each.

The first question is the vocabulary. A text starts a grammar, a number appends a token, null asks for a mask.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import kbnf


class _Server:
    """Holds one grammar at a time, configured for correct masks: caches nothing between masks."""

    def __init__(self, tokens: list[str], eos: int) -> None:
        texts = {i: token for i, token in enumerate(tokens) if i != eos}
        self._vocabulary = kbnf.Vocabulary({i: kbnf.Token(t.encode()) for i, t in texts.items()}, texts)
        self._eos = eos

    def answer(self, question: Any) -> Any:
        if isinstance(question, str):
            return self._begin(question)
        if question is not None:
            self._engine.try_accept_new_token(question)
            return True
        if self._engine.is_finished():
            return [self._eos]
        self._engine.compute_allowed_token_ids()
        return sorted(self._engine.get_allowed_token_ids_from_last_computation())

    def _begin(self, grammar: str) -> bool | None:
        config = kbnf.Config()
        options = config.engine_config
        options.cache_enabled = options.compaction_enabled = options.rejected_token_prefix_cache_enabled = (
            False
        )
        config.engine_config = options
        try:
            self._engine = kbnf.Engine(grammar, self._vocabulary, config)
        except ValueError:
            return None
        return True


def _main() -> None:
    server: _Server | None = None
    for line in sys.stdin:
        question = json.loads(line)
        if server is None:
            server, answer = _Server(*question), True
        else:
            answer = server.answer(question)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
