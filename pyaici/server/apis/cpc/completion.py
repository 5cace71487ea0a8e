"""A completion by the served model: tokens that cover the prefix, then ordinary sampling."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import math
import secrets
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aicirt.contract.errors import AiciError, counted
from pyaici.cpc import (
    Certificate,
    Cover,
    DeadPrefixError,
    Session,
    TokenTrie,
    heal_context,
    sample_enumerated,
    sample_exact,
    sample_healed,
    sample_pcas,
)
from pyaici.engines.engine import (
    Backtracked,
    Finished,
    FinishReason,
    Sampling,
    TokensAppended,
    VariablesChanged,
)
from pyaici.engines.prompts import begin_token
from pyaici.server.answers.stops import StopFinder
from pyaici.server.answers.text import answer_deltas
from pyaici.server.apis.cpc.requests import CertificateFields, CpcRequest
from pyaici.server.http.errors import bad_request, from_aici
from pyaici.server.scheduling.queues import FairTurns
from pyaici.server.service import ControllerCall, Job

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyaici.server.http.users import User
    from pyaici.server.service import Service

#: what ends a suggestion: the end of the line and, with `code_only`, the end of a code block
_LINE, _FENCE = "\n", "```"


class Completion:
    """A suggestion. Read `chunks` first, then the other attributes."""

    def __init__(self, service: Service, covers: Covers, request: CpcRequest, user: User) -> None:
        self._service, self._covers, self._request, self._user = service, covers, request, user
        self.certificate: Certificate | None = None
        self.tokens_emitted = 0
        #: notes on the prefix, for people
        self.debug: list[str] = []

    async def chunks(self) -> AsyncGenerator[str, None]:
        """Yields the suggestion token by token.

        Raises DeadPrefixError before the first piece, or ApiError.
        """
        request, model = self._request, self._service.model
        context = f"{_FENCE}{request.lang}\n{request.context}" if request.lang else request.context
        prefix = request.prefix
        if request.heal_context:
            context, prefix = heal_context(context, prefix)
        reading = self._service.reading.read(self._user, partial(model.encode, context, "context"))
        tokens = tuple(await reading) or (begin_token(model.vocabulary),)
        task = Task(request, self._user, tokens, prefix.encode())
        async with contextlib.AsyncExitStack() as held:
            async with self._covers.line(task):
                await held.enter_async_context(self._service.turn(self._user))
                cover, self.certificate = await self._covers.draw(task)
            async with contextlib.aclosing(self._suggest(task, cover)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _suggest(self, task: Task, cover: Cover) -> AsyncGenerator[str, None]:
        """Yields the cover from the prefix on, and what the model writes after it."""
        request, model = self._request, self._service.model
        shown = " ".join(repr(model.token_text(token)) for token in cover.tokens)
        assert self.certificate is not None
        self.debug = list(self.certificate.debug) or ([f"[cover] {shown}"] if shown else [])
        # the text that healing moved from the context is in the editor already
        moved = len(task.prefix) - len(request.prefix.encode())
        ended = False
        overhang = len(cover.text) - len(task.prefix)
        async for piece in self._covered(cover, moved, overhang):
            ended = ended or piece == ""
            if piece:
                yield piece
        count = request.max_new_tokens
        if "max_new_tokens" not in request.model_fields_set:
            count = min(count, self._service.settings.max_tokens)
        if ended or count == 0:
            return
        job = Job(
            self._user,
            [*task.context, *cover.tokens],
            None,
            Sampling(request.temperature, request.top_p, request.top_k, request.seed),
            count,
        )
        reader = StopFinder([_LINE, _FENCE] if request.code_only else [_LINE])
        async with contextlib.aclosing(answer_deltas(self._service, job, reader, in_turn=True)) as deltas:
            async for delta in deltas:
                self.tokens_emitted += len(delta.tokens)
                if delta.text:
                    yield delta.text

    async def _covered(self, cover: Cover, moved: int, overhang: int) -> AsyncGenerator[str, None]:
        """Yields the text of the cover by token, without its first `moved` bytes; "" if the line ends in it.

        An end of a line ends the suggestion only after the prefix.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        vocabulary = self._service.model.vocabulary
        end = cover.text.find(_LINE.encode(), len(cover.text) - overhang)
        text = cover.text if end < 0 else cover.text[:end]
        at = 0
        for token in cover.tokens:
            start, at = at, at + len(vocabulary.token_bytes(token))
            self.tokens_emitted += 1
            piece = decoder.decode(text[max(start, moved) : at])
            if piece:
                yield piece
        if end >= 0:
            yield ""

    def certificate_fields(self) -> CertificateFields | None:
        """Returns the certificate as the answer has it; None before the prefix is covered."""
        found = self.certificate
        if found is None:
            return None
        lower, upper = found.log_z_lower, found.log_z_upper
        known = math.isfinite(lower) and self._service.model.logits is not None
        return CertificateFields(
            sampler=self._request.sampler,
            model_evals=found.model_evals if self._service.model.logits is not None else None,
            trials=found.trials,
            log_z=(lower + upper) / 2 if known else None,
            log_z_lower=lower if known else None,
            log_z_upper=upper if known else None,
            tv_bound=found.tv_bound,
            approximate=found.approximate,
        )


# -- covers -------------------------------------------------------------------------------------------------

#: tokens of an attempt of the controller beyond one for each byte of the prefix
_SPARE_TOKENS = 8
#: users whose distributions are kept, and the bytes for each: some hundred histories
_SESSIONS, _SESSION_BYTES = 8, 64 << 20


@dataclass(frozen=True, slots=True)
class Task:
    """A prefix to cover, in bytes, after a context in tokens."""

    request: CpcRequest
    user: User
    context: tuple[int, ...]
    prefix: bytes


class Covers:
    """Draws covers: with the model's probabilities if the engine exposes them, else with a controller."""

    def __init__(self, service: Service) -> None:
        self._service = service
        model = service.model
        #: by owner, most recently used last; not shared, so that no user can learn what another has typed
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._has_logits = model.logits is not None
        if self._has_logits:
            self._model = _ThreadedModel(service)
            self._trie = TokenTrie(model.vocabulary)
            # one sample at a time; each uses what earlier ones have learned
            self._line = FairTurns(1, service.waiting_room)
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="cpc")

    @contextlib.asynccontextmanager
    async def line(self, task: Task) -> AsyncIterator[None]:
        """Queues a sample for the block, before it takes a turn, so that waiting samples hold no turns.

        Raises ApiError if too many wait.
        """
        if not self._has_logits or not task.prefix:
            yield
            return
        async with self._line.turn(task.user.caller):
            yield

    async def draw(self, task: Task) -> tuple[Cover, Certificate]:
        """Returns a cover and its certificate. The caller must be inside of `line` and hold a turn.

        Raises DeadPrefixError, and ApiError if the engine does not support the sampler.
        """
        if not task.prefix:
            return Cover((), b""), Certificate(0, tv_bound=0.0, log_z_lower=0.0, approximate=False)
        if self._has_logits:
            return await self._sample(task)
        if task.request.sampler != "exact":
            raise bad_request(
                f"the sampler {task.request.sampler} needs the probabilities of all tokens, which this "
                "engine does not provide: use the sampler exact",
                "sampler",
            )
        return await self._control(task)

    # -- with probabilities -------------------------------------------------------------------------

    async def _sample(self, task: Task) -> tuple[Cover, Certificate]:
        abandoned = threading.Event()

        def work() -> tuple[Cover, Certificate]:
            self._model.abandoned = abandoned
            request = task.request
            tree = self._session(task.user).tree(
                task.context, task.prefix, request.temperature, fresh=request.seed is not None
            )
            rng = np.random.default_rng(request.seed)
            match request.sampler:
                case "exact":
                    return sample_exact(tree, rng, request.max_evals)
                case "enumerate":
                    return sample_enumerated(tree, rng, budget=request.max_evals)
                case "pcas":
                    return sample_pcas(tree, rng, request.top_k, request.top_p)
                case "heal":
                    return sample_healed(tree, rng, self._tokenize)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except DeadPrefixError:
            raise
        except AiciError as error:
            raise from_aici(error, "prefix") from None
        except ValueError as error:
            raise bad_request(str(error), "prefix") from None
        finally:
            abandoned.set()  # a client that has disconnected must not delay others

    def _session(self, user: User) -> Session:
        found = self._sessions.pop(user.owner, None) or Session(self._model, self._trie, _SESSION_BYTES)
        self._sessions[user.owner] = found
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        return found

    def _tokenize(self, prefix: bytes) -> Sequence[int]:
        return list(
            self._service.model.tokenizer.encode(prefix.decode("utf-8", "replace"), add_special_tokens=False)
        )

    # -- with a controller ----------------------------------------------------------------------------

    async def _control(self, task: Task) -> tuple[Cover, Certificate]:
        """Runs the controller `prefix` until the prefix is covered.

        A text that ends within the prefix is a failed attempt: the engine has ended that sequence, so the
        next attempt uses a new one.
        """
        request, trials = task.request, 0
        seed = secrets.randbits(32) if request.seed is None else request.seed
        for restart in range(request.max_trials):
            arg = json.dumps({"prefix": task.prefix.decode(), "max_trials": request.max_trials - trials})
            job = Job(
                task.user,
                list(task.context),
                ControllerCall("prefix", arg, "prefix", "prefix"),
                Sampling(request.temperature, seed=(seed << 20) + restart),
                len(task.prefix) + _SPARE_TOKENS,
            )
            tokens, report = await self._attempt(job, task.prefix)
            trials += int(report.get("trials", 1))
            text = self._service.model.vocabulary.decode(tokens)
            if text.startswith(task.prefix):
                approximate = bool(report.get("approximate", False))
                bound = None if approximate else 0.0
                certificate = Certificate(
                    0, trials, tv_bound=bound, log_z_lower=-math.inf, approximate=approximate
                )
                return Cover(tuple(tokens), text), certificate
            if trials >= request.max_trials:
                break
        raise DeadPrefixError(f"A(i)=∅: no text began with the prefix in {counted(trials, 'trial')}")

    async def _attempt(self, job: Job, prefix: bytes) -> tuple[list[int], dict[str, Any]]:
        """Returns one sequence's tokens up to where the prefix is covered, and the controller's report."""
        vocabulary = self._service.model.vocabulary
        tokens: list[int] = []
        report: dict[str, Any] = {}
        async with self._service.run(job, in_turn=True) as stream:
            async for events in stream:
                for event in events:
                    if isinstance(event, TokensAppended):
                        tokens += event.tokens
                    elif isinstance(event, Backtracked):
                        del tokens[len(tokens) - event.count :]
                    elif isinstance(event, VariablesChanged) and "prefix" in event.values:
                        report = json.loads(event.values["prefix"])
                    elif isinstance(event, Finished) and event.error is not None:
                        if event.finish_reason is FinishReason.ERROR:
                            raise from_aici(event.error, "prefix")
                if report and vocabulary.decode(tokens).startswith(prefix):
                    break
        return tokens, report

    def close(self) -> None:
        """Ends the thread; nothing more is sampled."""
        if self._has_logits:
            self._thread.shutdown(wait=False, cancel_futures=True)


class _ThreadedModel:
    """Evaluates the model from another thread, while the engine continues with its steps."""

    def __init__(self, service: Service) -> None:
        self._service = service
        #: set when the client no longer waits for the sample
        self.abandoned = threading.Event()

    def logprobs(self, histories: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
        """Implements `pyaici.cpc.Model.logprobs`. Raises ApiError if the client no longer waits."""
        from pyaici.engines.batching.histories import log_softmax

        logits, abandoned = self._service.model.logits, self.abandoned
        assert logits is not None
        pieces = self._service.engine.post_in_pieces(
            lambda: logits(histories), lambda: not abandoned.is_set()
        )
        # not in the engine's thread, where it would delay other requests
        return log_softmax(pieces.result())
