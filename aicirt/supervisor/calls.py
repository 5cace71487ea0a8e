"""Calls of controllers on their way: from workers to the programs that answer them, and back.

A program offers to answer calls: for the requests that name its offer, or in public for all requests that may
make calls. A connection takes its calls in a standing request (`take`), like a worker reports them. Calls
whose names begin with `aici.` are answered here.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aicirt.contract.abi import LIST_CALLS, OWN_NAME, RECEIVE, SEND
from aicirt.contract.errors import AiciError, OfferError, OwnerLimitError, SpaceError
from aicirt.settings import (
    MAX_CALL_EVENT_BYTES,
    MAX_CALL_NAME,
    MAX_OFFER_BYTES,
    MAX_OFFERED,
    MAX_OFFERS,
    MAX_SOURCES,
    DaemonSettings,
)
from aicirt.supervisor.mailboxes import Mailbox, Mailboxes

if TYPE_CHECKING:
    from aicirt.supervisor.workers import WorkerProcess

#: a call: the worker, the number of the request there, and that of the call
Where = tuple["WorkerProcess", int, int]
#: names that an error lists
_MAX_NAMED = 32
#: characters of a `traceparent`, which has 55
_MAX_TRACE = 64
#: events that one answer to `take` has, and bytes that an event counts beside its contents
_MAX_EVENTS, _EVENT_BYTES = 64, 1 << 14


@dataclass(slots=True)
class Offer:
    """Calls that a connection answers."""

    token: str
    desk: Desk
    owner: str
    #: descriptions by name: `name`, `description`, `schema` (of the arguments, a JSON object)
    calls: dict[str, dict[str, Any]]
    #: whether requests with this offer may make public calls as well
    public: bool
    #: whether the connection hears of all calls of these requests, also those that others answer, and
    #: whether it hears their results
    watched: bool
    results: bool
    #: of requests with this offer, for the program that answers their calls: a W3C `traceparent`, or ""
    trace: str
    #: messages to the requests with this offer, usually one
    mailbox: Mailbox[Pending]
    #: workers that have had requests with this offer: others cannot know the token
    placed: set[WorkerProcess] = field(default_factory=set)
    #: the answer to `LIST_CALLS`, once it was needed
    listing: bytes = b""
    #: calls under way
    pending: dict[Where, Pending] = field(default_factory=dict)

    def inform(self, event: dict[str, Any], result: bytes) -> None:
        """Tells the connection of a call that a request with this offer has made, or of its `result`."""
        told = {"content": result} if self.results and "ended" in event else {}
        self.desk.report_event({**event, **told, "offer": self.token}, self.owner)


@dataclass(slots=True, eq=False)
class Pending:
    """A call under way."""

    id: str
    name: str
    #: of the request
    offer: Offer
    #: the offer that answers: the same, or a public one; None: the call waits for a message
    answering: Offer | None
    since: float
    timer: asyncio.TimerHandle
    where: Where

    def report_event(self, event: dict[str, Any], result: bytes = b"") -> None:
        """Tells the offer that answers, and that of the request if it is watched."""
        event["token"] = self.offer.token
        if self.answering is not None and self.answering is not self.offer:
            self.answering.desk.report_event({**event, "offer": self.answering.token}, self.offer.owner)
        if self.offer.watched or self.answering is self.offer:
            self.offer.inform(event, result)


class Desk:
    """The calls of one connection: its offers, and events that it has yet to take. Owners take turns."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.offers: dict[str, Offer] = {}
        #: calls that this desk is to answer, by id
        self.asked: dict[str, Pending] = {}
        #: where its calls come from, for operators: the state and the number of tools by name
        self.sources: dict[str, dict[str, Any]] = {}
        #: by owner, the next one first
        self._untaken: OrderedDict[str, deque[dict[str, Any]]] = OrderedDict()
        #: bytes of them by owner, and bytes that are left
        self._held: Counter[str] = Counter()
        self._left = MAX_CALL_EVENT_BYTES
        self._arrived = asyncio.Event()

    def set_sources(self, sources: dict[str, Any]) -> None:
        """Keeps where the calls come from: `state` and `tools` by name. Raises OfferError."""
        known: dict[str, dict[str, Any]] = {
            str(name): {"state": str(one["state"]), "tools": int(one["tools"])}
            for name, one in sources.items()
        }
        long = any(len(name) + len(one["state"]) > MAX_CALL_NAME for name, one in known.items())
        if long or len(known) > MAX_SOURCES:
            raise OfferError(
                f"there may be {MAX_SOURCES} sources of calls, with {MAX_CALL_NAME} characters each"
            )
        self._exchange.desks[self] = None
        self.sources = known

    def is_full(self, owner: str) -> bool:
        """Returns whether the connection takes no more events of an owner, who has as many as are left over.

        So a single owner has half of all room, and there is some for further ones whatever the first ones do.
        """
        return self._held[owner] >= self._left

    def report_event(self, event: dict[str, Any], owner: str) -> None:
        """Adds an event of an owner's request for `take`; drops it if the connection does not take them."""
        if not self.is_full(owner):
            self._untaken.setdefault(owner, deque()).append(event)
            self._charge(owner, _size(event))
            self._arrived.set()

    def _charge(self, owner: str, nbytes: int) -> None:
        self._left -= nbytes
        self._held[owner] += nbytes
        if not self._held[owner]:
            del self._held[owner]

    async def take(self) -> list[dict[str, Any]]:
        """Waits for events and returns them, those of a request oldest first.

        `call`: an id, with `name`, `arguments` (bytes) and `owner`. `ended`: the id of such a call that needs
        no answer any more, with `code` ("" or that of its error), `seconds`, and the bytes of the `result`,
        which is in `content` if the offer wants results; such an offer gets an `ended` without an id at last,
        when it has been withdrawn. Both have the `token` of the request's offer, and that of the `offer` of
        this connection which the event is for; `by` is that of the offer that answers, "" if nobody needs to.
        """
        while not self._untaken:
            self._arrived.clear()
            await self._arrived.wait()
        taken: list[dict[str, Any]] = []
        while self._untaken and len(taken) < _MAX_EVENTS:
            owner, events = self._untaken.popitem(last=False)
            taken.append(events.popleft())
            self._charge(owner, -_size(taken[-1]))
            if events:
                self._untaken[owner] = events
        return taken

    def close(self) -> None:
        """Withdraws all offers; calls to be answered here get an error."""
        self._exchange.desks.pop(self, None)
        for token in list(self.offers):
            self._exchange.withdraw(self, token)
        for pending in list(self.asked.values()):
            self._exchange.end(
                pending, error("gone", f"the program that answers {pending.name!r} has gone"), "gone"
            )


class Exchange:
    """All calls under way."""

    def __init__(self, settings: DaemonSettings, counters: Counter[str]) -> None:
        """`counters`: of the daemon, to which calls and failed ones are added."""
        self._settings = settings
        self._counters = counters
        self._offers: dict[str, Offer] = {}
        #: public offers by the names of their calls
        self._public: dict[str, Offer] = {}
        self._by_owner: Counter[str] = Counter()
        self._mailboxes = Mailboxes[Pending](settings.owner_message_bytes)
        #: those that have named their sources
        self.desks: dict[Desk, None] = {}

    def tools(self) -> dict[str, Any]:
        """Returns how many calls are offered to all requests, and where they come from."""
        sources = {name: one for desk in self.desks for name, one in desk.sources.items()}
        return {"calls": len(self._public), "sources": sources}

    # -- offers ------------------------------------------------------------------------------------

    def offer(
        self,
        desk: Desk,
        calls: list[dict[str, Any]],
        owner: str,
        *,
        for_all: bool,
        public: bool,
        watched: bool,
        name: str = "",
        results: bool = False,
        trace: str = "",
    ) -> str:
        """Adds an offer and returns its token, which requests name.

        `for_all`: the calls are public. `name`: under which other runs of the owner send messages to requests
        with this offer. `watched`, `results`, `trace`: see `Offer`. Raises OfferError, or SpaceError beyond a
        limit.
        """
        if len(desk.offers) >= MAX_OFFERS:
            raise SpaceError(f"this connection has {MAX_OFFERS} offers of calls, which is the limit")
        described = _describe(calls)
        if for_all and (taken := sorted(described.keys() & self._public.keys())):
            raise OfferError(f"the call {taken[0]!r} is already offered to all requests: choose another name")
        token = secrets.token_hex(16)
        mailbox = self._mailboxes.open(owner, name)
        offer = Offer(token, desk, owner, described, public, watched, results, trace[:_MAX_TRACE], mailbox)
        desk.offers[token] = self._offers[token] = offer
        if for_all:
            self._publish({**self._public, **dict.fromkeys(described, offer)})
        return token

    def _publish(self, public: dict[str, Offer]) -> None:
        """Replaces the public offers."""
        self._public = public
        for offer in self._offers.values():
            offer.listing = b""

    def withdraw(self, desk: Desk, token: str) -> None:
        """Ends an offer. Calls of its requests are cancelled, and later ones get an error."""
        offer = desk.offers.pop(token, None)
        if offer is None:
            return
        del self._offers[token]
        self._mailboxes.close(offer.mailbox)
        if any(other is offer for other in self._public.values()):
            self._publish({name: other for name, other in self._public.items() if other is not offer})
        for pending in list(offer.pending.values()):
            self.end(pending, error("gone", _WITHDRAWN), "gone")
        if offer.results:
            offer.inform({**_ended("", "withdrawn", 0.0, b""), "token": token}, b"")

    def assign_worker(self, token: str, worker: WorkerProcess) -> None:
        """Records that a request with this offer starts in this worker. Raises OfferError."""
        if (offer := self._offers.get(token)) is None:
            raise OfferError("the offer of calls that the request names does not exist (any more)")
        offer.placed.add(worker)

    # -- calls -------------------------------------------------------------------------------------

    def ask(self, worker: WorkerProcess, news: list[list[Any]]) -> None:
        """Passes on the calls that a worker has reported, and cancels those of requests that have ended."""
        for request, number, token, name, arguments in news:
            offer = self._offers.get(token)
            where = worker, request, number
            if number == 0:
                if offer is not None:
                    self._cancel(worker, request, offer)
                continue
            self._counters["calls"] += 1
            if offer is not None and where in offer.pending:
                continue  # no worker of ours asks twice
            if offer is None or worker not in offer.placed:
                self._counters["calls_failed"] += 1
                self._answer(where, error("gone", _WITHDRAWN))
            elif (known := self._ask(where, offer, name, arguments)) is not None:
                self._answer_at_once(where, offer, name, arguments, *known)

    def _ask(self, where: Where, offer: Offer, name: str, arguments: bytes) -> tuple[bytes, str] | None:
        """Passes a call on to who answers it; if nobody has to, returns its result and the error's code."""
        if name == LIST_CALLS:
            return self._listing(offer), ""
        if name == OWN_NAME:
            return _result(json.dumps(offer.mailbox.name).encode()), ""
        if name == SEND:
            return self._send_for(offer, arguments)
        if name == RECEIVE:
            return self._receive(where, offer)
        answering = offer if name in offer.calls else self._public.get(name) if offer.public else None
        if answering is None:
            known = sorted(entry["name"] for entry in self._list(offer))
            more = ["..."] if len(known) > _MAX_NAMED else []
            there = ", ".join(known[:_MAX_NAMED] + more) or "none"
            return _refusal("unknown_call", f"nobody answers the call {name!r}; there are: {there}")
        if answering.desk.is_full(offer.owner):
            return _refusal("gone", f"the program that answers {name!r} does not take its calls")
        limit = self._settings.owner_calls
        if self._by_owner[offer.owner] >= limit:
            problem = f"the owner has {limit} calls under way, which is the limit (owner_calls)"
            return _refusal("owner_limit", problem)
        pending = self._add_pending(where, offer, name, answering, self._settings.call_seconds)
        answering.desk.asked[pending.id] = pending
        self._by_owner[offer.owner] += 1
        pending.report_event(_made(pending.id, name, arguments, offer, answering.token))
        return None

    def _add_pending(
        self, where: Where, offer: Offer, name: str, answering: Offer | None, seconds: float
    ) -> Pending:
        timer = asyncio.get_running_loop().call_later(seconds, self._too_late, where, offer, seconds)
        pending = Pending(_id(where, offer), name, offer, answering, time.monotonic(), timer, where)
        offer.pending[where] = pending
        return pending

    def _answer_at_once(
        self, where: Where, offer: Offer, name: str, arguments: bytes, result: bytes, code: str
    ) -> None:
        """Answers a call that nobody needs to answer, such as one for the calls that there are."""
        self._counters["calls_failed"] += bool(code)
        if offer.watched:
            id = _id(where, offer)
            for event in (_made(id, name, arguments, offer, ""), _ended(id, code, 0.0, result)):
                offer.inform({**event, "token": offer.token}, result)
        self._answer(where, result)

    # -- messages ----------------------------------------------------------------------------------

    def deliver(self, owner: str, name: str, value: bytes) -> None:
        """Sends a value, as JSON, to the owner's run of this name.

        Raises UnknownRunError, and OwnerLimitError if it is too long, or if too many messages wait.
        """
        limit = self._settings.answer_bytes
        if len(value) > limit:
            raise OwnerLimitError(f"the message has {len(value)} bytes; the limit is {limit} (answer_bytes)")
        if (receiver := self._mailboxes.put(owner, name, value)) is not None:
            self.end(receiver, _result(value))

    def _send_for(self, offer: Offer, arguments: bytes) -> tuple[bytes, str]:
        """Sends a message for a run to another one; returns the result of this call."""
        try:
            given = json.loads(arguments)
            name, value = given["run"], json.dumps(given["value"], allow_nan=False).encode()
            if not isinstance(name, str):
                raise TypeError
        except (KeyError, TypeError, ValueError, RecursionError):
            return _refusal("arguments", "a message has the name of a run, and a value")
        try:
            self.deliver(offer.owner, name, value)
        except AiciError as problem:
            return _refusal(problem.code, problem.message)
        return _result(b"null"), ""

    def _receive(self, where: Where, offer: Offer) -> tuple[bytes, str] | None:
        """Returns the next message, or answers as soon as there is one."""
        if offer.mailbox.messages:
            return _result(self._mailboxes.take_message(offer.mailbox)), ""
        pending = self._add_pending(where, offer, RECEIVE, None, self._settings.receive_seconds)
        offer.mailbox.receivers.append(pending)
        pending.report_event(_made(pending.id, RECEIVE, b"{}", offer, ""))
        return None

    # -- answers -----------------------------------------------------------------------------------

    def _list(self, offer: Offer) -> list[dict[str, Any]]:
        """Returns the descriptions of all calls that a request with this offer may make."""
        public = self._public if offer.public else {}
        shared = {name: other.calls[name] for name, other in public.items()}
        return list({**shared, **offer.calls}.values())

    def _listing(self, offer: Offer) -> bytes:
        """Returns the answer to `LIST_CALLS`: without schemas if it were too long with them."""
        if not offer.listing:
            calls = self._list(offer)
            text = json.dumps(calls).encode()
            if len(text) > self._settings.answer_bytes:
                text = json.dumps([{"name": call["name"]} for call in calls]).encode()
            offer.listing = _result(text)
        return offer.listing

    def answer(self, desk: Desk, id: str, result: bytes, code: str = "") -> bool:
        """Passes on an answer: its value as JSON, or the message of an error with this code.

        Returns False if nobody waits for it (any more).
        """
        if (pending := desk.asked.get(id)) is None:
            return False
        limit = self._settings.answer_bytes
        if len(result) > limit:
            problem = f"the answer has {len(result)} bytes; the limit is {limit} (answer_bytes)"
            self.end(pending, error("too_long", problem), "too_long")
        elif code:
            self.end(pending, error(code, result.decode("utf-8", "replace")), code)
        else:
            self.end(pending, _result(result))
        return True

    def end(self, pending: Pending, result: bytes, code: str = "") -> None:
        """Ends a call with this result; `code`: that of its error."""
        self._take_out(pending)
        self._counters["calls_failed"] += bool(code)
        pending.report_event(_ended(pending.id, code, time.monotonic() - pending.since, result), result)
        self._answer(pending.where, result)

    def _too_late(self, where: Where, offer: Offer, seconds: float) -> None:
        if (pending := offer.pending.get(where)) is not None:
            problem = f"nobody answered the call {pending.name!r} within {seconds:g} s (call_seconds)"
            if pending.answering is None:
                problem = f"no message came within {seconds:g} s (receive_seconds)"
            self.end(pending, error("timeout", problem), "timeout")

    def _cancel(self, worker: WorkerProcess, request: int, offer: Offer) -> None:
        for where, pending in list(offer.pending.items()):
            if where[:2] == (worker, request):
                self._cancel_one(pending)

    def worker_died(self, worker: WorkerProcess) -> None:
        """Cancels the calls of a worker's requests."""
        for offer in self._offers.values():
            offer.placed.discard(worker)
            for where, pending in list(offer.pending.items()):
                if where[0] is worker:
                    self._cancel_one(pending)

    def _cancel_one(self, pending: Pending) -> None:
        """Ends a call whose request has ended."""
        self._take_out(pending)
        pending.report_event(_ended(pending.id, "cancelled", time.monotonic() - pending.since, b""))

    def _take_out(self, pending: Pending) -> None:
        pending.timer.cancel()
        del pending.offer.pending[pending.where]
        if pending.answering is None:
            pending.offer.mailbox.receivers.remove(pending)
            return
        del pending.answering.desk.asked[pending.id]
        self._by_owner[pending.offer.owner] -= 1
        if not self._by_owner[pending.offer.owner]:
            del self._by_owner[pending.offer.owner]

    @staticmethod
    def _answer(where: Where, result: bytes) -> None:
        worker, request, number = where
        worker.notify("answer", {"request": request, "number": number, "result": result})


def error(code: str, message: str) -> bytes:
    """Returns the result of a call that has failed."""
    return json.dumps({"error": {"code": code, "message": message}}).encode()


def _size(event: dict[str, Any]) -> int:
    """Returns the bytes that an event counts: those of arguments or a result in it, and some more."""
    return _EVENT_BYTES + len(event.get("arguments", b"")) + len(event.get("content", b""))


def _result(value: bytes) -> bytes:
    """Returns the result of a call that has this value, as JSON."""
    return b'{"value": %s}' % value


def _refusal(code: str, message: str) -> tuple[bytes, str]:
    """Returns the result of a call that fails at once, and the code of its error."""
    return error(code, message), code


def _id(where: Where, offer: Offer) -> str:
    worker, request, number = where
    return f"{offer.token}-{worker.index}-{worker.generation}-{request}-{number}"


def _made(id: str, name: str, arguments: bytes, offer: Offer, by: str) -> dict[str, Any]:
    made = {"call": id, "name": name, "arguments": arguments, "owner": offer.owner, "by": by}
    return made | {"trace": offer.trace} if offer.trace else made


def _ended(id: str, code: str, seconds: float, result: bytes) -> dict[str, Any]:
    return {"ended": id, "code": code, "seconds": seconds, "result": len(result)}


_WITHDRAWN = "the offer of this call has been withdrawn"


def _describe(calls: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the descriptions of offered calls by name. Raises OfferError if they are invalid."""
    if len(calls) > MAX_OFFERED:
        raise OfferError(f"an offer has {len(calls)} calls; the limit is {MAX_OFFERED}")
    found: dict[str, dict[str, Any]] = {}
    for call in calls:
        name = call["name"]
        if not (isinstance(name, str) and 0 < len(name) <= MAX_CALL_NAME) or name.startswith("aici."):
            raise OfferError(
                f"a call's name has 1 to {MAX_CALL_NAME} characters, not aici. first: {name!r:.200}"
            )
        if name in found:
            raise OfferError(f"the call {name!r} is offered twice")
        schema = call.get("schema")
        if schema is not None and not isinstance(schema, (dict, bool)):
            raise OfferError(f"the schema of the call {name!r} is not a JSON schema")
        found[name] = {"name": name, "description": str(call.get("description") or ""), "schema": schema}
    try:
        size = len(json.dumps(list(found.values()), allow_nan=False))  # all requests read the list
    except (TypeError, ValueError, RecursionError) as problem:
        raise OfferError(f"the offer of calls cannot be written as JSON: {problem}") from None
    if size > MAX_OFFER_BYTES:
        raise OfferError(f"an offer of calls has {size} bytes; the limit is {MAX_OFFER_BYTES}")
    return found
