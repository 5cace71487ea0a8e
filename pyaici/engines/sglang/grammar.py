"""The grammar of one request of SGLang: its controller, and copies of it that follow drafts."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from sglang.srt.constrained.base_grammar_backend import BaseGrammarObject
from sglang.srt.utils.common import is_pin_memory_available

from aicirt.contract.abi import RowKind
from aicirt.contract.errors import AiciError, ResultError, RuntimeFailure, TemplateGoneError, WorkerDiedError
from pyaici.client.masks import forbid_packed, pack_row
from pyaici.client.results import Row
from pyaici.engines.controlled_rows import ControlledRows, OverruledError
from pyaici.engines.sglang import CAPABILITIES

if TYPE_CHECKING:
    from pyaici.engines.calls import Call
    from pyaici.engines.connection import Connection, Prepared, VocabularyRuntime

log = logging.getLogger("sglang.aici")
_OPTIONS = (
    "the controller sets a temperature or leaves out tokens, which SGLang cannot apply: use another "
    "controller, or another engine"
)
#: whether the scheduler tries drafts now, which it takes back afterwards
_following = False


def following_drafts(traverse: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Runs SGLang's function that follows drafts; the tokens that grammars get meanwhile are guesses."""
    global _following
    _following = True
    try:
        return traverse(*args, **options)
    finally:
        _following = False


@dataclass(eq=False)
class Session:
    """The controllers of all requests at one runtime."""

    known: VocabularyRuntime
    connection: Connection
    #: why no controller can run here any more
    failure: AiciError | None = None
    #: rows of grammars that SGLang no longer needs; any thread may add some
    unused: deque[int] = field(default_factory=deque)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.rows: ControlledRows[int] = ControlledRows(self.known.runtime)
        if self.known.lost:
            self.fail(RuntimeFailure("the runtime of the controllers has ended: send the request again"))

    def fail(self, error: AiciError) -> None:
        """Fails all requests here. New requests get another runtime."""
        if self.failure is None:
            log.error("the runtime of the controllers has failed: %s", error)
            self.failure = error
            self.connection.lose(self.known)

    def sweep(self) -> None:
        """Ends the controllers of rows that are not needed any more."""
        while self.unused and self.failure is None:
            row = self.unused.popleft()
            try:
                self.rows.drop([row])
            except AiciError as error:
                self.fail(error)
            self.rows.errors.pop(row, None)
            if text := self.rows.logs.pop(row, ""):
                log.info("a controller wrote: %s", text.rstrip("\n"))


@dataclass(eq=False)
class Controllers:
    """The controllers of one scheduler."""

    connection: Connection
    #: tokens that end a text; the first is forced when a controller stops
    ends: list[int]
    #: whether the scheduler tries drafts before it accepts them
    drafts: bool
    sessions: dict[VocabularyRuntime, Session] = field(default_factory=dict)

    def at(self, known: VocabularyRuntime) -> Session:
        """Returns those at a runtime. Call it in the scheduler's thread."""
        if known not in self.sessions:
            self.sessions = {other: each for other, each in self.sessions.items() if not other.lost}
            self.sessions[known] = Session(known, self.connection)
        return self.sessions[known]


class _Position(NamedTuple):
    """A place in the text: a row of `Session.rows`, and whether the token before it ends the text."""

    row: int
    ended: bool = False


class AiciGrammar(BaseGrammarObject):  # type: ignore[misc,unused-ignore]
    """A controller behind SGLang's interface of grammars. It starts when the first mask is needed."""

    def __init__(self, controllers: Controllers, call: Call, prepared: Prepared, prompt: Any) -> None:
        """`prompt`: its tokens, int64 [n]."""
        super().__init__()
        self._controllers = controllers
        self._start = call, prepared, prompt
        self._session: Session | None = None
        #: the position after the last token, behind those before each draft that is tried
        self._path: list[_Position] = []

    def accept_token(self, token: int) -> None:
        """Reports a token. Raises ValueError, which ends the request, if the controller failed."""
        self.current_token = token
        if self._finished:
            return
        fresh = self._session is None
        session, place = self._started()
        ended = token in self._controllers.ends
        if _following:
            place = self._copy(session, place.row, ended)
            self._path.append(place)
        if self._failure(session, place) is None:
            try:
                if fresh or self._controllers.drafts:  # no mask was asked for here
                    session.rows.settle()
                session.rows.report_token(place.row, token)
            except OverruledError as error:
                session.rows.errors[place.row] = ResultError(str(error))
            except AiciError as error:
                session.fail(error)
        if _following:
            return
        if (failure := self._failure(session, place)) is not None:
            raise ValueError(failure.message)
        self._path[-1] = _Position(place.row, ended)

    def rollback(self, k: int) -> None:
        """Takes back the last `k` drafts."""
        if self._session is not None and k > 0:
            self._session.unused.extend(place.row for place in self._path[1:][-k:])
            self._path = self._path[: max(1, len(self._path) - k)]
            self._session.sweep()

    def is_terminated(self) -> bool:
        """Returns whether the last token has ended the text, or the request has ended."""
        return self._finished or (bool(self._path) and self._path[-1].ended)

    def copy(self) -> AiciGrammar:
        """Returns a grammar in the same state, with a controller of its own."""
        copy = AiciGrammar(self._controllers, *self._start)
        if self._path:
            session, place = self._started()
            copy._session, copy._path = session, [self._copy(session, place.row, place.ended)]
        return copy

    @property
    def finished(self) -> bool:
        """Whether the request has ended; then its controller has, too."""
        return self._finished

    @finished.setter
    def finished(self, finished: bool) -> None:
        self._finished = finished
        if finished and self._session is not None:
            self._leave()
            self._session.sweep()

    def __del__(self) -> None:
        self._leave()  # SGLang forgets requests that it aborts before they run, in any thread

    def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: Any) -> torch.Tensor:
        """Returns int32 [batch_size, ceil(vocab_size / 32)] that allows all tokens, on the CPU."""
        shape = batch_size, (vocab_size + 31) // 32
        return torch.full(shape, -1, dtype=torch.int32, pin_memory=is_pin_memory_available())

    def fill_vocab_mask(self, vocab_mask: torch.Tensor, idx: int) -> None:
        """Writes the tokens that may come next to a row of the mask; waits for the controller."""
        if not self._finished:
            pack_row(vocab_mask[idx].numpy().view(np.uint32), self._next())

    @staticmethod
    def move_vocab_mask(vocab_mask: torch.Tensor, device: Any) -> torch.Tensor:
        """Returns the mask on the device; does not wait for the copy."""
        return vocab_mask.to(device, non_blocking=True)

    @staticmethod
    def apply_vocab_mask(logits: torch.Tensor, vocab_mask: torch.Tensor) -> None:
        """Sets logits [B, V] of forbidden tokens to -inf, in place."""
        forbid_packed(logits, vocab_mask)

    def _next(self) -> Row | None:
        """Returns the constraint on the next token; None if there is none.

        A failed request gets one more token, after which `accept_token` ends it. That token is forced to be
        an ordinary one: an end token would hide the error.
        """
        session, place = self._started()
        if self._failure(session, place) is None:
            try:
                row = session.rows.row(place.row)
            except AiciError as error:
                session.fail(error)
            else:
                if row is not None and (row.temperature, row.truncation) != (None, None):
                    session.rows.errors[place.row] = ResultError(_OPTIONS)
                if self._failure(session, place) is None:
                    return row
        return Row(RowKind.TOKEN, token=session.known.text_tokens[0])

    def _started(self) -> tuple[Session, _Position]:
        """Returns the present position, and starts the controller if it has not started."""
        if self._session is None:
            self._session = self._controllers.at(self._start[1].session)
            self._session.sweep()
            self._path = [_Position(next(self._session.numbers))]
            self._begin(self._session, self._path[0].row)
        else:
            self._session.sweep()
        return self._session, self._path[-1]

    def _begin(self, session: Session, row: int) -> None:
        if session.failure is not None:
            return
        (call, prepared, prompt), ends = self._start, self._controllers.ends
        options: dict[str, Any] = {"capabilities": CAPABILITIES, "owner": call.owner, "wait": False}
        start = session.rows.start_controller
        begin = partial(start, row, prepared.controller, call.arg, prompt, ends, **options)
        try:
            try:
                begin(placement=prepared.placement)
            except (TemplateGoneError, WorkerDiedError):  # since the controller was prepared
                begin()
        except AiciError as error:
            session.rows.errors[row] = error

    def _copy(self, session: Session, row: int, ended: bool) -> _Position:
        copy = next(session.numbers)
        if session.failure is None:
            try:
                session.rows.settle()
                session.rows.copy_row(row, copy)
            except AiciError as error:
                session.rows.errors[copy] = error
        return _Position(copy, ended)

    def _failure(self, session: Session, place: _Position) -> AiciError | None:
        return session.failure or session.rows.errors.get(place.row)

    def _leave(self) -> None:
        if self._session is not None:
            self._session.unused.extend(place.row for place in self._path)
            self._path = []
