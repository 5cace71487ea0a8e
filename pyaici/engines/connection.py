"""The connection of an engine process to a runtime; prepares controllers in threads of its own."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aicirt.contract.errors import (
    AiciError,
    ClosedError,
    RuntimeFailure,
    SupervisorDiedError,
    VocabularyError,
)
from pyaici.bundled import DESCRIPTIONS
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.engines.calls import OPERATOR
from pyaici.engines.prompts import begin_token
from pyaici.engines.turns import with_turns
from pyaici.tokens import load_vocabulary

if TYPE_CHECKING:
    from pyaici.client.arguments import Capabilities
    from pyaici.client.calls import CallEvent, Offer
    from pyaici.client.control import Placement
    from pyaici.engines.calls import Call
    from pyaici.tokens import Vocabulary


def tokenizer_vocabulary(
    tokenizer: object, path: str | Path, width: int, eos: int | Iterable[int] | None
) -> Vocabulary:
    """Returns the vocabulary of an engine's tokenizer, as wide as the logits, with what its template writes.

    `path`: the tokenizer's. Raises VocabularyError if the bytes of its tokens cannot be determined.
    """
    try:
        vocabulary = load_vocabulary(tokenizer, vocab_size=width, eos=eos)
    except VocabularyError:
        # engines may use tokenizer classes of their own; the tokenizer's files have the vocabulary too
        path = Path(path)
        if not path.exists():
            raise
        vocabulary = load_vocabulary(path, vocab_size=width, eos=eos)
    return with_turns(vocabulary, tokenizer)


Result = TypeVar("Result")


@dataclass(eq=False)
class VocabularyRuntime:
    """A runtime that has the model's vocabulary."""

    runtime: Runtime
    #: a private daemon, if there is one. An engine must not kill it together with its processes
    daemon: Daemon | None = None
    #: calls of bundled controllers that have recently been prepared
    ready: set[tuple[Call, Capabilities]] = field(default_factory=set)
    #: text tokens in the order of their ids, to force where any token will do
    text_tokens: list[int] = field(default_factory=list)
    #: the token that a sequence gets when a controller removes all others
    begin_token: int = 0
    #: `Vocabulary.num_known`
    num_known: int = 0
    #: end-of-sequence tokens
    ends: frozenset[int] = frozenset()
    #: the runtime has failed; later requests need another session
    lost: bool = False


@dataclass(frozen=True)
class Prepared:
    """A controller that is prepared for its argument."""

    session: VocabularyRuntime
    #: its name, as in `Runtime.find`
    controller: str
    capabilities: Capabilities
    #: where its sequence can start, chosen for one request
    placement: Placement
    #: token of the offer that says who answers its calls, and the offer itself if it is the request's own
    calls: str = ""
    offer: Offer | None = None


class Connection:
    """Prepares controllers while the engine continues. `socket`: as in `Runtime`.

    Threads prepare the controllers; only the engine's thread uses them.
    """

    #: threads of one owner: enough for a controller that compiles slowly and others beside it
    _THREADS = 4
    _MAX_READY = 1000
    #: The longest that the engine's thread waits for aicirt to place a controller that is ready. Usually that
    #: takes less than a millisecond, and the request can then be scheduled in the current step
    _PLACE_SECONDS = 0.003

    def __init__(
        self,
        vocabulary: Callable[[], Vocabulary],
        *,
        socket: str | None = None,
        num_rows: int = 256,
        make_runtime: Callable[..., Runtime] = Runtime,
    ) -> None:
        self._load_vocabulary = vocabulary
        self._vocabulary: Vocabulary | None = None
        self._socket = socket
        self._num_rows = num_rows
        self._make_runtime = make_runtime
        self._threads = OwnerThreads(self._THREADS)
        #: for controllers that are ready, which must not wait for others to compile
        self._quick_threads = OwnerThreads(self._THREADS)
        self._making = threading.Lock()
        self._session: VocabularyRuntime | None = None
        #: failed sessions that the engine's thread may still use
        self._failed: list[VocabularyRuntime] = []

    def prepare(
        self, call: Call, capabilities: Capabilities, gone: Placement | None = None
    ) -> Future[Prepared]:
        """Prepares the controller for its argument in a thread. On failure the future has an AiciError.

        The thread also chooses where the sequence starts: the engine must not wait for aicirt. `gone`: see
        `Runtime.place`.
        """
        session = self._session
        ready = session is not None and not session.lost and (call, capabilities) in session.ready
        threads = self._quick_threads if ready else self._threads
        future = threads.submit(call.owner, partial(self._prepare, call, capabilities, gone))
        if ready:
            wait([future], timeout=self._PLACE_SECONDS)
        return future

    def lose(self, session: VocabularyRuntime) -> None:
        """Closes a session whose runtime has failed; the next request gets another one.

        Call it in the engine's thread.
        """
        if session.lost:
            return
        session.lost = True
        with contextlib.suppress(AiciError, OSError):
            session.runtime.close()
        if session.daemon is not None:
            session.daemon.close()

    def ring(self) -> None:
        """Ends the present `Runtime.sleep` of the engine's thread, or the next one. For any thread."""
        for session in (*self._failed, self._session):
            if session is not None:
                session.runtime.ring()

    def close(self) -> None:
        """Ends the threads and all sessions, and the runtime if it is private."""
        self._threads.close()
        self._quick_threads.close()
        with self._making:
            sessions, self._session = [*self._failed, self._session], None
        for session in sessions:
            if session is not None:
                self.lose(session)

    def _prepare(self, call: Call, capabilities: Capabilities, gone: Placement | None) -> Prepared:
        session = self._live()
        try:
            prepared = self._prepared(session, call, capabilities, gone)
            if call.controller in DESCRIPTIONS:  # a tag may point to another module later
                if len(session.ready) >= self._MAX_READY:
                    session.ready.clear()
                session.ready.add((call, capabilities))
            return prepared
        except (SupervisorDiedError, ClosedError):  # closed: by `lose`, in the engine's thread
            # no new request may use it; the engine's thread closes it when it finds out
            with self._making:
                if self._session is session:
                    self._session = None
                    self._failed.append(session)
            return self._prepared(self._live(), call, capabilities)

    def _live(self) -> VocabularyRuntime:
        with self._making:
            if self._session is None or self._session.lost:
                if self._vocabulary is None:
                    self._vocabulary = self._load_vocabulary()
                with contextlib.ExitStack() as stack:
                    daemon = None if self._socket else stack.enter_context(Daemon(detached=True))
                    socket = self._socket if daemon is None else daemon.socket_path
                    runtime = stack.enter_context(self._make_runtime(socket, num_rows=self._num_rows))
                    runtime.register(self._vocabulary)
                    stack.pop_all()
                special = self._vocabulary.special
                tokens = [t for t, text in enumerate(self._vocabulary.tokens) if text and t not in special]
                if not tokens:
                    raise RuntimeFailure("no token of the model's vocabulary has bytes")
                self._session = VocabularyRuntime(
                    runtime,
                    daemon,
                    text_tokens=tokens[:64],
                    begin_token=begin_token(self._vocabulary),
                    num_known=self._vocabulary.num_known,
                    ends=frozenset(self._vocabulary.eos),
                )
            return self._session

    @staticmethod
    def _prepared(
        session: VocabularyRuntime, call: Call, capabilities: Capabilities, gone: Placement | None = None
    ) -> Prepared:
        runtime, offer, calls = session.runtime, None, call.calls
        if calls == OPERATOR or call.name:
            offer = runtime.answerer.offer(
                [], _ignore, owner=call.owner, name=call.name, public=calls == OPERATOR
            )
            calls = offer.token
        try:
            placement = runtime.place(
                call.controller, call.arg, capabilities=capabilities, owner=call.owner, gone=gone, calls=calls
            )
        except BaseException:
            if offer is not None:
                offer.close()
            raise
        return Prepared(session, call.controller, capabilities, placement, calls, offer)


def _ignore(_: Offer, __: CallEvent) -> None:
    """Handles no events: others answer."""


class OwnerThreads:
    """Runs the blocking calls of each owner in order, a limited number of them at a time.

    Each owner has threads of its own, so that none waits for another's calls.
    """

    def __init__(self, each: int) -> None:
        """`each`: most threads of one owner. Threads end when the owner has no calls left."""
        self._each = each
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._running: Counter[str] = Counter()

    def submit(self, owner: str, call: Callable[[], Result]) -> Future[Result]:
        """Queues `call` for one of the owner's threads. Cancelling the future before it starts skips it."""
        future: Future[Result] = Future()
        with self._lock:
            self._waiting.setdefault(owner, deque()).append((future, call))
            begin = self._running[owner] < self._each
            self._running[owner] += begin
        if begin:
            threading.Thread(target=self._run_calls, args=(owner,), name="aici", daemon=True).start()
        return future

    def close(self) -> None:
        """Cancels the calls that have not begun."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for queue in waiting.values():
            for future, _ in queue:
                future.cancel()

    def _run_calls(self, owner: str) -> None:
        while (found := self._next(owner)) is not None:
            future, call = found
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)

    def _next(self, owner: str) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Returns the owner's next call, or None if there is none; the calling thread must then end."""
        with self._lock:
            if queue := self._waiting.get(owner):
                return queue.popleft()
            self._waiting.pop(owner, None)
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
            return None
