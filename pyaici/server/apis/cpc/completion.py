"""A completion by the served model: a cover of the prefix, then ordinary sampling."""

from __future__ import annotations

import codecs
import contextlib
import math
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING

from pyaici.cpc import Certificate, Cover, heal_context
from pyaici.engines.engine import Sampling
from pyaici.engines.prompts import begin_token
from pyaici.server.answers.stops import StopFinder
from pyaici.server.answers.text import answer_deltas
from pyaici.server.apis.cpc.covers import Covers, Task
from pyaici.server.apis.cpc.requests import CertificateFields
from pyaici.server.service import Job

if TYPE_CHECKING:
    from pyaici.server.apis.cpc.requests import CpcRequest
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
