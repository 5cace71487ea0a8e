"""SGLang's grammar backend: a controller for each request, whose masks SGLang applies.

SGLang's scheduler asks `AiciBackend` for the grammar of each new request, tells the grammar each token
(`accept_token`), and asks for the next mask while the model runs (`fill_vocab_mask`), all in one thread. The
only error that it gets is the ValueError of `accept_token`, with which a grammar ends its own request.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sglang.srt.constrained.base_grammar_backend import (
    BaseGrammarBackend,
    BaseGrammarObject,
    InvalidGrammarObject,
)
from sglang.srt.constrained.reasoner_grammar_backend import ReasonerGrammarObject
from sglang.srt.parser.reasoning_parser import ReasoningParser
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_schedule, get_serving, get_spec

from pyaici.engines.connection import Connection, Prepared, tokenizer_vocabulary
from pyaici.engines.sglang import CAPABILITIES
from pyaici.engines.sglang.calls import grammar_call
from pyaici.engines.sglang.grammar import AiciGrammar, Controllers, following_drafts

if TYPE_CHECKING:
    from pyaici.engines.calls import Call

log = logging.getLogger("sglang.aici")
#: SGLang's function that follows the drafts of a request
_TRAVERSE = "sglang.srt.speculative.spec_utils.traverse_tree"
#: running requests for which there are mask rows if the server does not limit their number
_RUNNING = 512
#: rows for copies of controllers that follow drafts
_DRAFT_ROWS = 512
#: most grammars whose controllers are remembered, and most characters of each
_MAX_KNOWN, _MAX_KNOWN_TEXT = 1000, 1 << 16
_NOT_REPEATABLE = (
    "speculative decoding tries drafts on copies of a controller, which this one does not allow: it writes "
    "variables, draws random numbers, or has pre_process or post_process. Start SGLang without "
    "--speculative-algorithm for it"
)


@dataclass(frozen=True)
class _Wanted:
    """A grammar that SGLang waits for."""

    made: Future[BaseGrammarObject]
    #: the tokens of the prompt, int64 [n]
    prompt: Any
    #: whether the model reasons before the controller begins; None if SGLang does not tell reasoning apart
    reasoning: bool | None

    def give(self, make: Callable[[], BaseGrammarObject]) -> None:
        """Ends the wait, unless SGLang has given it up. An error becomes the reason to refuse the request."""
        if not self.made.set_running_or_notify_cancel():
            return
        try:
            grammar = make()
        except Exception as error:
            grammar = InvalidGrammarObject(str(error) or repr(error))
        self.made.set_result(grammar)


class AiciBackend(BaseGrammarBackend):  # type: ignore[misc,unused-ignore]
    """Makes the grammars of one scheduler. Nothing is cached here: the runtime keeps prepared controllers.

    So a failure is not remembered, and the same request can succeed when its cause has gone.
    """

    def __init__(
        self, server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: Iterable[int] | None
    ) -> None:
        """`vocab_size`: the width of the logits. Raises ValueError if the model has no end token."""
        super().__init__()
        self._width = vocab_size
        found = dict.fromkeys([tokenizer.eos_token_id, *sorted(eos_token_ids or ())])
        ends = [token for token in found if token is not None]
        if not ends:
            raise ValueError("controllers need a model with an end-of-sequence token")
        drafts = get_spec().speculative_algorithm is not None
        if drafts:
            HookRegistry.register(_TRAVERSE, following_drafts, HookType.AROUND)
            HookRegistry.apply_hooks()
            if _TRAVERSE not in HookRegistry._patched:
                raise ValueError(f"speculative decoding needs {_TRAVERSE}, which this SGLang does not have")
        running = get_schedule().max_running_requests or _RUNNING
        path = getattr(tokenizer, "name_or_path", "") or server_args.model_path
        self._connection = Connection(
            partial(tokenizer_vocabulary, tokenizer, path, vocab_size, ends),
            socket=os.environ.get("AICI_SOCKET"),
            num_rows=2 * running + 64 + _DRAFT_ROWS * drafts,
        )
        self.controllers = Controllers(self._connection, ends, drafts)
        self._compact = bool(get_serving().constrained_json_disable_any_whitespace)
        self._thinking_ends = _thinking_ends(tokenizer)
        self._calls: dict[tuple[str, str], Call] = {}
        self._prompt: Sequence[int] = ()

    def get_request_grammar_key(
        self, key: tuple[str, str], *, input_ids: Sequence[int], thinking_budget: int | None
    ) -> tuple[str, str]:
        """Keeps the prompt of the request whose grammar SGLang asks for next."""
        self._prompt = input_ids
        return key

    def get_cached_or_future_value(
        self, key: tuple[str, str], require_reasoning: bool
    ) -> tuple[BaseGrammarObject | Future[BaseGrammarObject], bool]:
        """Returns a new grammar and True if its controller is ready at once, else a future and False."""
        prompt, self._prompt = np.asarray(self._prompt, np.int64), ()
        known = (prompt >= 0) & (prompt < self._width)  # ids of images are above
        whole = not self._thinking_ends or key[0] == "full_assistant_ebnf"
        wanted = _Wanted(Future(), prompt[known], None if whole else require_reasoning)
        if (call := self._calls.get(key)) is not None:
            self._prepare(call, wanted)
        else:
            self.executor.submit(self._read_call, key, wanted)
        return (wanted.made.result(), True) if wanted.made.done() else (wanted.made, False)

    def set_cache(self, key: tuple[str, str], value: BaseGrammarObject) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Ends all controllers, and the runtime if it is private."""
        self.executor.shutdown(wait=False)
        self._connection.close()

    def _read_call(self, key: tuple[str, str], wanted: _Wanted) -> None:
        try:
            call = grammar_call(*key, compact=self._compact)
        except Exception as error:
            refusal = InvalidGrammarObject(str(error) or repr(error))
            wanted.give(lambda: refusal)
            return
        if len(key[1]) <= _MAX_KNOWN_TEXT:
            if len(self._calls) >= _MAX_KNOWN:
                self._calls.clear()
            self._calls[key] = call
        self._prepare(call, wanted)

    def _prepare(self, call: Call, wanted: _Wanted) -> None:
        preparing = self._connection.prepare(call, CAPABILITIES)
        preparing.add_done_callback(lambda done: wanted.give(partial(self._grammar, call, done, wanted)))
        known = weakref.ref(preparing)  # in a circle, the grammar would live on when SGLang forgets it
        wanted.made.add_done_callback(lambda made: made.cancelled() and (one := known()) and one.cancel())

    def _grammar(self, call: Call, preparing: Future[Prepared], wanted: _Wanted) -> BaseGrammarObject:
        prepared = preparing.result()
        if self.controllers.drafts and not prepared.placement.repeatable:
            return InvalidGrammarObject(_NOT_REPEATABLE)
        grammar: BaseGrammarObject = AiciGrammar(self.controllers, call, prepared, wanted.prompt)
        if wanted.reasoning is not None:
            grammar = ReasonerGrammarObject(grammar, self._thinking_ends)
            grammar.maybe_init_reasoning(wanted.reasoning)
        return grammar


def _thinking_ends(tokenizer: Any) -> list[int]:
    """Returns the tokens that end the model's reasoning, if SGLang has a parser for it."""
    name = get_serving().reasoning_parser
    if not name:
        return []
    detector = ReasoningParser(model_type=name, stream_reasoning=False, tokenizer=tokenizer).detector
    return list(detector.get_think_end_token_ids(tokenizer) or ())
