"""Our controller and llguidance with the same schema and vocabulary: their masks after each token.

Both write ``", "`` and ``": "`` and no other blanks, so that the same tokens should be allowed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits
from numpy.typing import NDArray

from aicirt.contract.errors import AiciError
from aicirt.contract.messages import Sample
from aicirt.settings import WorkerConfig
from aicirt.worker.hostapi import LoadedVocabulary
from aicirt.worker.sequence import Sequence as Guest
from lab.contestants.grammar_cases import Controllers
from lab.contestants.llguidance import llguidance_tokenizer
from lab.inputs.vocabularies import vocabulary
from lab.measurement.local_worker import LocalWorker, load_for_guests
from pyaici.tokens import Vocabulary

_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
#: raised, so that llguidance does not give up where our engine does not
_LIMITS = LLParserLimits(step_max_items=2_000_000)

Mask = NDArray[np.bool_]


class Pair:
    """A schema in both engines. Call `compile`, `reset` per text, `masks` and `accept` per token."""

    def __init__(
        self, words: Vocabulary, loaded: LoadedVocabulary, worker: LocalWorker, controller: Path
    ) -> None:
        self.tokens = [b"" if t in words.special_names else text for t, text in enumerate(words.tokens)]
        self.eos = words.eos[0]
        #: the token of each single byte
        self.bytes = {text[0]: token for token, text in enumerate(self.tokens) if len(text) == 1}
        self._speaks = np.array([bool(text) or token == self.eos for token, text in enumerate(self.tokens)])
        self._loaded, self._worker = loaded, worker
        self._program = worker.program(controller)
        self._tokenizer = llguidance_tokenizer(words, loaded)
        self._sequence: Guest | None = None

    def compile(self, schema: Any) -> dict[str, str]:
        """Compiles the schema in both engines and returns the reasons of those that refuse it."""
        refused = {"ours": self.compile_ours(schema)}
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=_STYLE)
        self._matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=_LIMITS)
        if self._matcher.is_error():
            refused["theirs"] = self._matcher.get_error()
        return {name: reason for name, reason in refused.items() if reason}

    def compile_ours(self, schema: Any) -> str:
        """Compiles the schema in our engine only, and returns the reason if it refuses."""
        argument = json.dumps({"schema": schema, "whitespace": "spaced"})
        try:
            self._template = self._worker.template(self._program, argument)
        except AiciError as error:
            return error.message
        return ""

    def tokenize(self, text: str) -> Sequence[int]:
        """Tokenizes with the model's own tokenizer."""
        found: list[int] = np.frombuffer(self._loaded.tokenize(text.encode()), np.uint32).tolist()
        return found

    def reset(self) -> None:
        """Begins a new text."""
        if self._sequence is not None:
            self._worker.free([self._sequence])
        self._sequence, self._news = self._worker.start(self._template), list[int]()
        self._matcher.reset()

    def masks(self) -> tuple[Mask, Mask]:
        """Returns our mask and theirs. Call it once after each token.

        Where one text alone may follow, their masks have the one way to split it that the tokenizer chooses.
        The others count, too: they are taken when they come.
        """
        assert self._sequence is not None
        found = self._worker.mask(self._sequence, self._news, sampled=bool(self._news)).row
        ours = self._mask(self._worker.row(found) if isinstance(found, Sample) else b"")
        theirs = self.their_mask(self._matcher)
        for token in np.flatnonzero(ours & ~theirs):
            theirs[token] = token != self.eos and self._matcher.validate_tokens([int(token)]) == 1
        return ours, theirs

    def accept(self, token: int) -> None:
        """Appends a token, which both engines must allow."""
        self._news = [token]
        self._matcher.consume_token(token)

    def their_copy(self, token: int) -> LLMatcher:
        """Returns another matcher of theirs after this token."""
        copy = self._matcher.deep_copy()
        copy.consume_token(token)
        return copy

    def their_mask(self, matcher: LLMatcher) -> Mask:
        """Returns the mask of the tokens that the matcher allows."""
        return self._mask(b"" if matcher.is_stopped() else matcher.compute_bitmask())

    def _mask(self, row: bytes) -> Mask:
        if not row:  # only the end is allowed
            mask = np.zeros(len(self.tokens), bool)
            mask[self.eos] = True
            return mask
        bits = np.unpackbits(np.frombuffer(row, np.uint8), bitorder="little")
        return bits[: len(self.tokens)].astype(bool) & self._speaks


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    """Yields both engines with a vocabulary of 32 000 tokens; builds the controller in the folder."""
    words = vocabulary("32k")
    loaded = load_for_guests(words, masks_only=True)
    # nothing here is about time
    config = WorkerConfig.with_overrides({"init_ms": 10_000, "mid_ms": 10_000})
    with LocalWorker(loaded, config=config) as worker:
        yield Pair(words, loaded, worker, Controllers(folder)["json_schema"])
