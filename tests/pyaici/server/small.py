"""The server's service with a tiny model in this process, for tests that a whole server would make slow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

from pyaici import HfEngine
from pyaici.server.http.middleware import Metrics
from pyaici.server.http.users import Role, User
from pyaici.server.models import ServedModel
from pyaici.server.service import Job, Service
from pyaici.server.settings import ServerSettings
from pyaici.tokens import Vocabulary
from tests.pyaici.engines.batching.support import BOS, EOS, WIDTH, make_model

USER = User("ada", Role.RUN)
VOCABULARY = Vocabulary(
    [bytes([i]) for i in range(256)] + [b"", b""],
    {BOS: "<s>", EOS: "</s>"},
    eos=(EOS,),
    bos=BOS,
    vocab_size=WIDTH,
)


class Bytes:
    """A tokenizer whose tokens are bytes."""

    chat_template = None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())


def small_engine(runtime: Any = None, **options: Any) -> HfEngine:
    """Returns an engine with random weights and 4096 tokens of context."""
    model = make_model(max_position_embeddings=4096)
    return HfEngine(model, runtime=runtime, vocabulary=VOCABULARY, **options)


def served(engine: HfEngine) -> ServedModel:
    """Returns the engine as a served model."""
    pieces = engine.logits_in_pieces
    sizes = engine.num_tokens, engine.max_context
    return ServedModel("small", engine, Bytes(), VOCABULARY, *sizes, pieces)


@contextlib.asynccontextmanager
async def small_service(engine: HfEngine | None = None, **settings: Any) -> AsyncIterator[Service]:
    """Yields a service without controllers, and ends the engine's thread at the end."""
    engine = engine or small_engine()
    service = Service(ServerSettings(**settings), served(engine), cast("Any", None), Metrics())
    try:
        yield service
    finally:
        service.reading.close()
        await asyncio.to_thread(service.engine.close)


def job(length: int, max_tokens: int = 4000) -> Job:
    """Returns a job with a prompt of `length` tokens."""
    return Job(USER, [(7 * i) % 256 for i in range(length)], max_tokens=max_tokens)
