"""Groups of vLLM's requests for controllers that fork: one runs, the others wait for a fork.

For a request with `n`, vLLM creates `n` requests named INDEX_PARENT, whose outputs are the choices. With
`aici_fork` only the first of them runs. The others wait until the controller forks, and then begin as copies.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError, ResultError
from pyaici.engines.vllm.scheduling.request_state import (
    ControllerGrammar,
    add_tokens,
    branch,
    give_grammar,
    hold,
)

if TYPE_CHECKING:
    from pyaici.engines.vllm.scheduling.controlled import Controlled

#: The most steps that a fork waits for requests that vLLM has not added yet. vLLM creates all of them at
#: once, so they do not take long.
_PATIENCE = 5
#: stop reason of sequences that no fork has needed
UNUSED = "unused"


@dataclass(slots=True)
class Birth:
    """A forked child that has not begun yet."""

    child: Controlled
    parent: Controlled
    #: vLLM's request of the parent, or of its nearest ancestor with one, and the parent's tokens at the fork
    request: Any
    tokens: list[int]
    #: index of the child's own request, and the request once vLLM has added it
    index: int
    own: Any = None
    steps: int = 0


@dataclass(eq=False, slots=True)
class Group:
    """All sequences of one request's controller and its forks."""

    #: ids of running requests
    live: set[str] = field(default_factory=set)
    #: vLLM's requests that wait for a fork, in the order of their indices
    spares: deque[Any] = field(default_factory=deque)
    #: index of the newest request that vLLM has added, or that a child waits for
    newest: int = 0
    births: list[Birth] = field(default_factory=list)


class Groups:
    """The groups of one scheduler."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._groups: dict[str, Group] = {}
        #: groups that have children without a request
        self._expecting: list[Group] = []
        #: requests of children that have begun, with the first tokens to send to clients
        self._born: list[tuple[Any, list[int]]] = []
        #: requests that no fork can need, because their group has ended
        self._unused: list[Any] = []
        #: children that will have no request: their group has ended, or has too many forks
        self._orphans: list[Controlled] = []
        #: spare requests that are still in vLLM's queue
        self._new: list[Any] = []

    def join(self, request: Any) -> bool:
        """Returns whether a request begins a new group. Otherwise it joins one and waits for a fork."""
        index, parent = _split(request.request_id)
        group = self._groups.get(parent)
        if index and group is not None:
            if expecting := [birth for birth in group.births if birth.index == index]:
                expecting[0].own = request
            else:
                group.spares.append(request)
            group.newest = max(group.newest, index)
            hold(request, Future())
            self._new.append(request)
            return False
        self._groups[parent] = Group(live={request.request_id})
        return True

    def set_aside(self) -> None:
        """Removes spare requests from vLLM's queue, because vLLM checks all waiting requests in each step."""
        for request in self._new:
            self._scheduler.waiting.remove_request(request)
            self._scheduler.deferred_waiting.discard(request)
        self._new.clear()

    def leave_group(self, request: Any) -> None:
        """Removes an ended request from its group. The end of the last live request ends the group."""
        if not self._groups:
            return
        parent = _split(request.request_id)[1]
        group = self._groups.get(parent)
        if group is None:
            return
        group.live.discard(request.request_id)
        if request in group.spares:
            group.spares.remove(request)
        for birth in group.births:
            if birth.own is request:
                birth.own = None
        if not group.live:
            self._unused += [*group.spares, *(birth.own for birth in group.births if birth.own is not None)]
            self._orphans += [birth.child for birth in group.births]
            group.births.clear()
            del self._groups[parent]

    def expect(self, parent: Controlled, child: Controlled) -> None:
        """Queues a child for a request that begins with the parent's current tokens.

        A copy that forks in its first step may wait for a request itself. It begins before its child.
        """
        for group in self._expecting:
            if waiting := [birth for birth in group.births if birth.child is parent]:
                request, tokens = waiting[0].request, waiting[0].tokens
                break
        else:
            request = self._scheduler.requests[parent.request_id]
            group, tokens = self._groups[_split(parent.request_id)[1]], list(request._all_token_ids)
        if group.spares:
            own = group.spares.popleft()
            birth = Birth(child, parent, request, tokens, index_of(own.request_id), own)
        else:
            group.newest += 1
            birth = Birth(child, parent, request, tokens, group.newest)
        group.births.append(birth)
        if group not in self._expecting:
            self._expecting.append(group)
        if parent.events is not None:  # now, because the parent goes on while its child waits
            parent.events.add("copied" if child.by_engine else "forked", [birth.index])

    def place_children(
        self, begun: Callable[[Controlled, Any], None], fail: Callable[[set[str], AiciError], None]
    ) -> None:
        """Gives requests to waiting children, and calls `begun` for each.

        Calls `fail` for all requests of a group that has too many forks.
        """
        for group in self._expecting:
            while group.births and group.births[0].own is not None:
                self._begin(group, group.births.pop(0), begun)
            for birth in group.births:
                birth.steps += 1
            if any(birth.steps > _PATIENCE for birth in group.births):
                self._orphans += [birth.child for birth in group.births]
                group.births.clear()
                error = f"the controller forks, but all {len(group.live)} sequences of the request are in use"
                fail(group.live, ResultError(f"{error}: ask for more with n"))
        self._expecting = [group for group in self._expecting if group.births]

    def _begin(self, group: Group, birth: Birth, begun: Callable[[Controlled, Any], None]) -> None:
        child, request = birth.child, birth.own
        child.request_id = request.request_id
        group.live.add(request.request_id)
        branch(request, birth.request, birth.tokens)
        give_grammar(request, ControllerGrammar(child))
        self._scheduler._enqueue_waiting_request(request)
        if child.held is None:
            self._born.append((request, birth.tokens[child.prompt_length :]))
        begun(child, request)

    def add_begun(self, outputs: Any, end: Callable[[Any], None], drop: Callable[[Controlled], None]) -> None:
        """Adds outputs with the first tokens of new sequences. Calls `end` for each unused request.

        Calls `drop` for each child that will have no request.
        """
        born, self._born = self._born, []
        for request, tokens in born:
            if tokens and not request.is_finished():
                add_tokens(outputs, request, tokens)
        unused, self._unused = self._unused, []
        for request in unused:
            if not request.is_finished():
                end(request)
        orphans, self._orphans = self._orphans, []
        for child in orphans:
            drop(child)


def index_of(request_id: str) -> int:
    """Returns the index of the choice within its request."""
    return _split(request_id)[0]


def _split(request_id: str) -> tuple[int, str]:
    match = re.fullmatch(r"([0-9]+)_(.*)", request_id, re.DOTALL)
    return (0, request_id) if match is None else (int(match[1]), match[2])
