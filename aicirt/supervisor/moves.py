"""Requests that move from one worker to another: who is asked for what, so that nothing is lost."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from aicirt.errors import AiciError, ProtocolError, RuntimeFailure

if TYPE_CHECKING:
    from aicirt.modules.store import ModuleStore
    from aicirt.supervisor.workers import WorkerProcess

_numbers = itertools.count(1)


async def move(
    store: ModuleStore, client: int, seqs: list[int], source: WorkerProcess, target: WorkerProcess
) -> None:
    """Moves a request of a client, all of whose sequences are listed, which has attached to both workers.

    The moment of the move is `commit` in the old worker, when the new one has everything. Whatever fails
    before leaves the request where it is, and raises why: that it is in the middle of something, that there
    is no room (SpaceError, OwnerLimitError), that the client wanted it meanwhile, or WorkerDiedError.
    """
    number = next(_numbers)
    which = {"client": client, "move": number}
    answer, files = await source.exchange("depart", {**which, "seqs": seqs})
    arrived = False
    try:
        module, nbytes = _read(answer)
        await store.get_async(module)
        there = {"client": client, "seqs": seqs, "module": module, "path": store.artifact_path(module).name}
        call = {**there, "state_bytes": nbytes, "files": len(files)}
        await target.call("arrive", call, fds=[file.fd for file in files])
        arrived = True
        if not await source.call("commit", which):
            raise RuntimeFailure("the request was needed where it is before it had moved")
    except Exception:  # not if the client has gone: both workers drop what it had
        with contextlib.suppress(AiciError):
            await source.call("stay", which)
        if arrived:
            with contextlib.suppress(AiciError):
                await target.call("discard", {"client": client, "seqs": seqs})
        raise
    target.load.moved_in(len(seqs))


def _read(answer: Any) -> tuple[str, int]:
    """Module and bytes; only their kinds are looked at: the new worker checks the rest."""
    if isinstance(answer, dict):
        module, nbytes = answer.get("module"), answer.get("state_bytes")
        if isinstance(module, str) and isinstance(nbytes, int):
            return module, nbytes
    raise ProtocolError("a worker has described a request in no known words")
