"""Moves of requests to another worker: describing a request in one, rebuilding it in the other.

The old worker describes the request and keeps it. The new worker rebuilds it from the description. Then the
old worker drops its own, and at that moment the move takes effect. Any operation of the client on one of the
sequences before that runs in the old worker and cancels the move.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgpack

from aicirt.contract.abi import STEP_ARG
from aicirt.contract.errors import ProtocolError, RuntimeFailure
from aicirt.settings import MOST_MOVED_BYTES
from aicirt.system.files import Descriptor, check_sealed, sealed_bytes
from aicirt.wasm import transfer
from aicirt.worker.hostapi import GuestContext
from aicirt.worker.owners import Request
from aicirt.worker.sequence import Sequence, check_arg_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aicirt.wasm.program import Program
    from aicirt.worker.client import Client
    from aicirt.worker.loop import Worker

_WORD = 0xFFFFFFFF


class Departures:
    """A client's sequences that are about to move away, by the supervisor's number of the move."""

    __slots__ = ("_moves",)

    def __init__(self) -> None:
        self._moves: dict[int, list[Sequence]] = {}

    def __bool__(self) -> bool:
        return bool(self._moves)

    def add(self, move: int, seqs: list[Sequence]) -> None:
        """Records a move that has begun."""
        self._moves[move] = seqs

    def take(self, move: int) -> list[Sequence]:
        """Removes a move and returns its sequences; an empty list if the move was cancelled."""
        return self._moves.pop(move, [])

    def stay(self, numbers: Iterable[int]) -> None:
        """Cancels the moves of these sequences."""
        wanted = set(numbers)
        for move, seqs in list(self._moves.items()):
            if any(seq.id in wanted for seq in seqs):
                del self._moves[move]


def depart(client: Client, numbers: list[int]) -> tuple[dict[str, Any], list[Descriptor], list[Sequence]]:
    """Describes a request, all of whose sequences must be in `numbers`.

    Returns the description, its files, and the sequences. Raises RuntimeFailure with the reason if the
    request cannot move now.
    """
    seqs = [client.sequences[number] for number in numbers if number in client.sequences]
    if len(seqs) != len(numbers) or not seqs:
        raise RuntimeFailure("a sequence that was to move has ended")
    request = seqs[0].request
    family = [seq for seq in client.sequences.values() if seq.request is request]
    if {seq.id for seq in family} != set(numbers) or len(family) != request.live:
        raise RuntimeFailure("forks of a request move together: not all of this one's were named")
    for seq in family:
        _check_idle(client, seq)
    program = seqs[0].instance.program
    guests, pages, bases = transfer.pack([seq.instance for seq in seqs], MOST_MOVED_BYTES)
    sources: dict[bytes, int] = {}  # forks have the same prompt
    state = {
        "guests": guests,
        "request": _describe_request(request),
        "capabilities": list(seqs[0].context.capabilities.items()),
        "sequences": [_describe(seq, sources) for seq in seqs],
        "sources": list(sources),
    }
    data = msgpack.packb(state)
    if len(data) > MOST_MOVED_BYTES:
        raise RuntimeFailure(f"more than {MOST_MOVED_BYTES} bytes of a request would have to be copied")
    file = Descriptor(sealed_bytes("aici-request", data))
    return {"module": program.id, "state_bytes": len(data)}, [file, pages, *bases], seqs


def arrive(
    worker: Worker, client: Client, program: Program, numbers: list[int], nbytes: int, files: list[Descriptor]
) -> None:
    """Rebuilds a request with these sequences, which another worker has described.

    Raises SpaceError, OwnerLimitError or other errors if there is no room, ProtocolError if the description
    is invalid. After an error, no part of the request is left.
    """
    if not 0 < nbytes <= MOST_MOVED_BYTES or len(files) < 2:
        raise ProtocolError(f"a request of {nbytes} bytes in {len(files)} files")
    file, pages, *bases = files
    check_sealed(file.fd, nbytes)
    made: list[Sequence] = []
    left: list[Any] = []
    try:
        state = msgpack.unpackb(os.pread(file.fd, nbytes, 0), strict_map_key=False)
        described, sources = state["sequences"], state["sources"]
        if not all(isinstance(source, bytes) for source in sources):  # bytes() of a number makes zeros
            raise ProtocolError("a request whose sequences have sources that are none")
        if [number for number, *_ in described] != numbers:
            raise ProtocolError("a request of other sequences than were to come")
        _check_numbers(client, numbers)
        request = _request(worker, client, state["request"])
        worker.check_room(request.owner, len(numbers))
        worker.memory.check("" if request.owner is None else request.owner.name, MOST_MOVED_BYTES)
        pairs = [[int(number), int(value)] for number, value in state["capabilities"]]
        capabilities = worker.guest_capabilities(pairs, client.vocabulary)
        left = transfer.unpack(program, state["guests"], pages, bases, client.vocabulary.file)
        if len(left) != len(described):
            raise ProtocolError("a request with more or fewer guests than sequences")
        left.reverse()
        request.live = 0
        for number, sequence_seed, places, address, *rest in described:
            context = GuestContext(
                vocabulary=client.vocabulary,
                capabilities=capabilities,
                limits=worker.limits,
                arg=b"",
                variables=request.variables,
                seed=int(sequence_seed),
                owner=request.owner,
            )
            for source, place in zip(range(len(context.sources)), places, strict=True):
                context.sources[source] = sources[place]
            check_arg_address(address, left[-1].size)
            before = left[-1].read(address, STEP_ARG.size)
            seq = Sequence(number, left.pop(), context, request, address)
            made.append(seq)
            request.live += 1
            seq.instance.write(address, before)
            _restore(seq, rest)
            request.clones += seq.by_engine
        _restore_request(request, state["request"])
    except (ValueError, TypeError, LookupError, OverflowError, msgpack.UnpackException) as error:
        _undo(made, left)
        raise ProtocolError(f"a request that is none: {error!r}") from None
    except BaseException:
        _undo(made, left)
        raise
    for seq in made:
        client.sequences[seq.id] = seq


def _undo(made: list[Sequence], left: list[Any]) -> None:
    for seq in made:
        seq.close()
    for instance in left:
        instance.close()


def _check_idle(client: Client, seq: Sequence) -> None:
    """Raises RuntimeFailure if the sequence cannot be described now."""
    if seq.mid is not None or seq.put_off:
        raise RuntimeFailure(f"sequence {seq.id} is late: it can move after its next result")
    if any(step.concerns(seq.id) for step in client.steps):
        raise RuntimeFailure(f"sequence {seq.id} is in a step under way")
    if seq.outcome is not None and (seq.outcome[1] is not None or seq.outcome[0] is None):
        raise RuntimeFailure(f"sequence {seq.id} has ended, which its client has yet to hear")
    if seq.context.vocabulary is not client.vocabulary:
        raise RuntimeFailure(f"sequence {seq.id} has another vocabulary than its client")


def _describe(seq: Sequence, sources: dict[bytes, int]) -> list[Any]:
    context = seq.context
    return [
        seq.id,
        context.seed,
        [sources.setdefault(source, len(sources)) for source in context.sources],
        seq.arg_address,
        seq.length,
        seq.step,
        seq.changed,
        seq.has_row,
        None if seq.outcome is None else seq.outcome[0],
        seq.late_steps,
        seq.empty_splices,
        seq.by_engine,
        list(seq.tokens),
        seq.group,
        context.log.state(),
        seq.flags,
    ]


def _restore(seq: Sequence, fields: list[Any]) -> None:
    """Restores the fields of `_describe` from `length` on. Raises ProtocolError if they are invalid."""
    length, step, changed, has_row, outcome, late, splices, by_engine, tokens, group, log, flags = fields
    numbers = [length, step, late, splices, *tokens, *group, 0 if outcome is None else outcome, flags]
    if not all(isinstance(number, int) and 0 <= number <= _WORD for number in numbers):
        raise ProtocolError("a sequence whose numbers are none")
    seq.length, seq.step, seq.late_steps, seq.empty_splices = length, step, late, splices
    seq.changed, seq.has_row, seq.by_engine = bool(changed), bool(has_row), bool(by_engine)
    seq.outcome = None if outcome is None else (outcome, None)
    seq.tokens, seq.group, seq.flags = list(tokens), list(group), flags
    seq.context.log.restore(log)


def _describe_request(request: Request) -> list[Any]:
    counters = [request.suspended_rounds, request.idle_rounds, request.writes_seen]
    return [counters, request.variables.state(), request.owner_name]


def _request(worker: Worker, client: Client, described: list[Any]) -> Request:
    owner = described[2]
    if not isinstance(owner, str):
        raise ProtocolError("a request of an owner without a name")
    return Request(worker.limits, worker.owners.get(owner), client.written)


def _restore_request(request: Request, described: list[Any]) -> None:
    """Restores counters and variables.

    Call it last: if it fails, closing the request's sequences releases the variables that were counted.
    """
    counters, variables, _ = described
    request.suspended_rounds, request.idle_rounds, request.writes_seen = map(int, counters)
    request.variables.restore(variables)


def _check_numbers(client: Client, numbers: list[Any]) -> None:
    if not numbers or len(set(numbers)) != len(numbers):
        raise ProtocolError("a request without sequences, or with one twice")
    for number in numbers:
        if not isinstance(number, int) or not 0 < number <= _WORD:
            raise ProtocolError(f"there can be no sequence {number!r}")
        if number in client.sequences:
            raise ProtocolError(f"sequence {number} exists already")
