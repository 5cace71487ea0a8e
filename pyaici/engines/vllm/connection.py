"""The runtime of one engine process: made when a request first needs it, in threads of its own."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import (
    AiciError,
    RuntimeFailure,
    SupervisorDiedError,
    UnknownModuleError,
    VocabularyError,
)
from pyaici.bundled import upload_bundled
from pyaici.client.daemon import Daemon
from pyaici.client.runtime import Runtime
from pyaici.engines.owner_threads import OwnerThreads
from pyaici.engines.prompts import begin_token
from pyaici.tokens import load_vocabulary

if TYPE_CHECKING:
    from pyaici.client.capabilities import Capabilities
    from pyaici.engines.vllm.arguments import ControllerCall
    from pyaici.tokens import Vocabulary


def engine_vocabulary(vllm_config: Any) -> Vocabulary:
    """Returns the model's vocabulary, as wide as its logits.

    Raises VocabularyError if the bytes of its tokens cannot be known.
    """
    from vllm.tokenizers import cached_tokenizer_from_config

    model = vllm_config.model_config
    tokenizer = cached_tokenizer_from_config(model)
    if tokenizer is None:
        raise VocabularyError("controllers need a tokenizer: start vLLM without skip_tokenizer_init")
    eos = model.try_get_generation_config().get("eos_token_id")
    width = model.get_vocab_size()
    try:
        return load_vocabulary(tokenizer, vocab_size=width, eos=eos)
    except VocabularyError:
        # a tokenizer of vLLM's own: its files say it too
        path = Path(model.tokenizer)
        if not path.exists():
            raise
        return load_vocabulary(path, vocab_size=width, eos=eos)


log = logging.getLogger("vllm.aici")


@dataclass(eq=False)
class Session:
    """A runtime that has the model's vocabulary."""

    runtime: Runtime
    #: the runtime's own. vLLM must not kill it with its processes: it tidies up when they have ended
    daemon: Daemon | None = None
    #: ids of bundled controllers that have been uploaded to it, by name
    uploaded: dict[str, str] = field(default_factory=dict)
    #: bundled controllers that have read this argument lately
    ready: dict[tuple[ControllerCall, Capabilities], Prepared] = field(default_factory=dict)
    #: tokens of text, in the order of their ids: some of them may be forced where it does not matter which
    text_tokens: list[int] = field(default_factory=list)
    #: what is put where a controller takes everything back
    begin_token: int = 0
    #: end-of-sequence tokens
    ends: frozenset[int] = frozenset()
    #: it has failed; requests that come later need another
    lost: bool = False


@dataclass(frozen=True)
class Prepared:
    """A controller that has read its argument."""

    session: Session
    #: id or tag of its module
    module: str
    capabilities: Capabilities


class Connection:
    """Makes controllers ready while the engine goes on; `socket` as in `Runtime`.

    Preparing runs in threads; what is prepared is used from the engine's thread alone.
    """

    #: of one owner: enough for one controller that compiles for long beside others
    _THREADS = 4
    _MOST_READY = 1000

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
        self._making = threading.Lock()
        self._session: Session | None = None
        #: that have failed, and may still be in use by the engine's thread
        self._failed: list[Session] = []

    def prepare(self, call: ControllerCall, capabilities: Capabilities) -> Future[Prepared]:
        """Has the controller read its argument. The future fails with an AiciError if it cannot."""
        session = self._session
        known = None if session is None or session.lost else session.ready.get((call, capabilities))
        if known is not None and known.session.runtime.is_connected():
            done: Future[Prepared] = Future()
            done.set_result(known)
            return done
        return self._threads.submit(call.owner or "", partial(self._prepare, call, capabilities))

    def lose(self, session: Session) -> None:
        """The runtime has failed: the next request gets another one. To be called in the engine's thread."""
        if session.lost:
            return
        session.lost = True
        with contextlib.suppress(AiciError, OSError):
            session.runtime.close()
        if session.daemon is not None:
            session.daemon.close()

    def close(self) -> None:
        """Ends what is left, and the runtime if it is a private one."""
        self._threads.close()
        with self._making:
            sessions, self._session = [*self._failed, self._session], None
        for session in sessions:
            if session is not None:
                self.lose(session)

    def _prepare(self, call: ControllerCall, capabilities: Capabilities) -> Prepared:
        session = self._live()
        try:
            prepared = Prepared(session, self._find(session, call, capabilities), capabilities)
            if call.controller in session.uploaded:  # tags may come to mean something else
                if len(session.ready) >= self._MOST_READY:
                    session.ready.clear()
                session.ready[call, capabilities] = prepared
            return prepared
        except SupervisorDiedError:
            # the engine's thread closes it when it finds out; nobody may use it from now on
            with self._making:
                if self._session is session:
                    self._session = None
                    self._failed.append(session)
            session = self._live()
            return Prepared(session, self._find(session, call, capabilities), capabilities)

    def _live(self) -> Session:
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
                    raise RuntimeFailure("the model's vocabulary has no tokens of text")
                self._session = Session(
                    runtime,
                    daemon,
                    text_tokens=tokens[:64],
                    begin_token=begin_token(self._vocabulary),
                    ends=frozenset(self._vocabulary.eos),
                )
            return self._session

    def _find(self, session: Session, call: ControllerCall, capabilities: Capabilities) -> str:
        """The module that the name means, ready for the argument: of this id or tag, or a bundled one."""
        runtime, name = session.runtime, call.controller
        module = session.uploaded.get(name, name)
        try:
            runtime.prepare(module, call.arg, capabilities=capabilities, owner=call.owner)
            return module
        except UnknownModuleError:
            session.uploaded[name] = module = upload_bundled(runtime, name)
        runtime.prepare(module, call.arg, capabilities=capabilities, owner=call.owner)
        return module
