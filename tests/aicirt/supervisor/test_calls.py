"""The exchange of calls, with workers that only record what they are told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from aicirt.contract.abi import LIST_CALLS
from aicirt.contract.errors import OfferError, SpaceError
from aicirt.settings import DaemonSettings
from aicirt.supervisor import calls
from aicirt.supervisor.calls import Desk, Exchange
from aicirt.supervisor.workers import WorkerProcess


class RecordingWorker:
    """Records the answers that a worker gets."""

    index, generation = 0, 1

    def __init__(self) -> None:
        self.answers: dict[tuple[int, int], Any] = {}

    def notify(self, name: str, args: dict[str, Any]) -> None:
        assert name == "answer"
        where = args["request"], args["number"]
        assert where not in self.answers, "a call is answered once"
        self.answers[where] = json.loads(args["result"])

    def code(self, request: int, number: int) -> str:
        """Returns the code of a call's error."""
        return str(self.answers[request, number]["error"]["code"])


class Scene:
    """An exchange with one worker, and what its requests ask for."""

    def __init__(self, **settings: Any) -> None:
        self.counters: Counter[str] = Counter()
        self.exchange = Exchange(DaemonSettings(**settings), self.counters)
        self.worker = RecordingWorker()
        self.process = cast("WorkerProcess", self.worker)

    def offer(self, desk: Desk, *names: str, owner: str = "ann", **options: Any) -> str:
        """Offers calls, for requests in the worker."""
        chosen = {"for_all": False, "public": True, "watched": False} | options
        token = self.exchange.offer(desk, [{"name": name} for name in names], owner, **chosen)
        self.exchange.assign_worker(token, self.process)
        return token

    def ask(self, token: str, name: str, request: int = 1, number: int = 1, arguments: bytes = b"{}") -> None:
        """A request makes a call."""
        self.exchange.ask(self.process, [[request, number, token, name, arguments]])


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a test in an event loop."""

    def run() -> None:
        asyncio.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_loop
async def test_a_call_goes_to_the_offer_and_back() -> None:
    scene = Scene()
    desk = Desk(scene.exchange)
    token = scene.offer(desk, "add", "sub")
    scene.ask(token, "add", arguments=b'{"a": 1}')
    (event,) = await desk.take()
    assert event == {
        "call": event["call"],
        "name": "add",
        "arguments": b'{"a": 1}',
        "owner": "ann",
        "by": token,
        "token": token,
        "offer": token,
    }
    assert scene.exchange.answer(desk, event["call"], b"3")
    assert not scene.exchange.answer(desk, event["call"], b"4"), "answered already"
    assert scene.worker.answers == {(1, 1): {"value": 3}}
    (ended,) = await desk.take()
    assert (ended["ended"], ended["code"], ended["result"]) == (event["call"], "", len('{"value": 3}'))


@in_loop
async def test_nobody_answers_for_others() -> None:
    scene = Scene()
    desk, other = Desk(scene.exchange), Desk(scene.exchange)
    token = scene.offer(desk, "add")
    scene.ask(token, "add")
    (event,) = await desk.take()
    assert not scene.exchange.answer(other, event["call"], b"3")
    scene.exchange.withdraw(other, token)
    assert scene.exchange.answer(desk, event["call"], b"3"), "another connection withdraws nothing"


@in_loop
async def test_public_calls_are_answered_by_others_and_told() -> None:
    scene = Scene()
    tools, server = Desk(scene.exchange), Desk(scene.exchange)
    public = scene.offer(tools, "calc.add", owner="", for_all=True)
    token = scene.offer(server, "own", watched=True)
    scene.ask(token, "calc.add")
    (asked,), (told,) = await tools.take(), await server.take()
    assert (asked["by"], asked["offer"], asked["token"]) == (public, public, token)
    assert (told["by"], told["offer"], told["token"]) == (public, token, token)
    assert not scene.exchange.answer(server, told["call"], b"1"), "who watches does not answer"
    assert scene.exchange.answer(tools, asked["call"], b"2")
    assert [event["code"] for event in (*await tools.take(), *await server.take())] == ["", ""]
    closed = scene.offer(server, "own", public=False)
    scene.ask(closed, "calc.add", request=2)
    assert scene.worker.code(2, 1) == "unknown_call"
    scene.ask(token, LIST_CALLS, request=3)
    assert [call["name"] for call in scene.worker.answers[3, 1]["value"]] == ["calc.add", "own"]


@in_loop
async def test_who_watches_hears_of_every_call_and_of_results_if_wanted() -> None:
    scene = Scene(answer_bytes=20)
    tools, server = Desk(scene.exchange), Desk(scene.exchange)
    scene.offer(tools, "tool", owner="", for_all=True)
    token = scene.offer(server, watched=True, results=True)
    for number, name in enumerate(("tool", "nothing", LIST_CALLS), start=1):
        scene.ask(token, name, number=number)
    (asked,) = await tools.take()
    assert scene.exchange.answer(tools, asked["call"], b"3")
    assert "content" not in (await tools.take())[0], "it has given the answer itself"
    events = await server.take()
    made = {event["call"]: event["name"] for event in events if "call" in event}
    assert sorted(made.values()) == [LIST_CALLS, "nothing", "tool"]
    ended = {made[event["ended"]]: event for event in events if "ended" in event}
    assert {name: event["code"] for name, event in ended.items()} == {
        "tool": "",
        "nothing": "unknown_call",
        LIST_CALLS: "",
    }
    for number, name in enumerate(("tool", "nothing", LIST_CALLS), start=1):
        assert json.loads(ended[name]["content"]) == scene.worker.answers[1, number]
        assert ended[name]["result"] == len(ended[name]["content"])
    scene.exchange.withdraw(server, token)
    (last,) = await server.take()
    assert (last["ended"], last["code"]) == ("", "withdrawn")


@in_loop
async def test_health_names_the_sources_of_public_calls() -> None:
    scene = Scene()
    tools = Desk(scene.exchange)
    assert scene.exchange.tools() == {"calls": 0, "sources": {}}
    scene.offer(tools, "calc.add", "calc.sub", owner="", for_all=True)
    calc = {"state": "running", "tools": 2}
    tools.set_sources({"calc": calc, "bad": {"state": "failed", "tools": 0, "more": "dropped"}})
    bad = {"state": "failed", "tools": 0}
    assert scene.exchange.tools() == {"calls": 2, "sources": {"calc": calc, "bad": bad}}
    with pytest.raises(OfferError, match="256 sources"):
        tools.set_sources(dict.fromkeys(map(str, range(257)), bad))
    with pytest.raises(OfferError, match="128 characters"):
        tools.set_sources({"x" * 128: bad})
    tools.close()
    assert scene.exchange.tools() == {"calls": 0, "sources": {}}


@in_loop
async def test_a_worker_only_uses_offers_of_requests_that_it_has_had() -> None:
    """A guest that has broken out of its sandbox may know the tokens of its own worker, but no others."""
    scene = Scene()
    desk = Desk(scene.exchange)
    chosen = {"for_all": False, "public": True, "watched": False}
    token = scene.exchange.offer(desk, [{"name": "add"}], "ann", **chosen)
    scene.ask(token, "add")
    scene.ask("f" * 32, "add", number=2)
    assert (scene.worker.code(1, 1), scene.worker.code(1, 2)) == ("gone", "gone")
    with pytest.raises(OfferError):
        scene.exchange.assign_worker("f" * 32, scene.process)


@in_loop
async def test_everything_that_ends_ends_its_calls() -> None:
    scene = Scene()
    desk, tools = Desk(scene.exchange), Desk(scene.exchange)
    token = scene.offer(desk, "add")
    scene.offer(tools, "tool", owner="", for_all=True)
    scene.ask(token, "add", request=1)
    scene.ask(token, "tool", request=2)
    tools.close()
    assert scene.worker.code(2, 1) == "gone"
    scene.exchange.ask(scene.process, [[1, 0, token, "", b""]])  # the request has ended
    assert (1, 1) not in scene.worker.answers
    scene.ask(token, "add", request=3)
    scene.exchange.worker_died(scene.process)
    codes = [event["code"] for event in await desk.take() if "ended" in event]
    assert codes == ["cancelled", "cancelled"]
    scene.exchange.assign_worker(token, scene.process)
    scene.ask(token, "add", request=4)
    desk.close()
    assert scene.worker.code(4, 1) == "gone"


@in_loop
async def test_late_and_long_answers_become_errors() -> None:
    scene = Scene(call_seconds=0.01, answer_bytes=10)
    desk = Desk(scene.exchange)
    token = scene.offer(desk, "add")
    scene.ask(token, "add")
    (event,) = await desk.take()
    assert (await desk.take())[0]["code"] == "timeout"
    assert not scene.exchange.answer(desk, event["call"], b"1")
    assert scene.worker.code(1, 1) == "timeout"
    scene.ask(token, "add", number=2)
    (event,) = await desk.take()
    scene.exchange.answer(desk, event["call"], b"1" * 11)
    assert scene.worker.code(1, 2) == "too_long"


@in_loop
async def test_an_owner_has_so_many_calls_at_a_time() -> None:
    scene = Scene(owner_calls=2)
    desk = Desk(scene.exchange)
    ann, bob = scene.offer(desk, "add"), scene.offer(desk, "add", owner="bob")
    for number in range(3):
        scene.ask(ann, "add", number=number + 1)
    scene.ask(bob, "add", request=2)
    assert scene.worker.answers.keys() == {(1, 3)}
    assert scene.worker.code(1, 3) == "owner_limit"
    first = (await desk.take())[0]
    scene.exchange.answer(desk, first["call"], b"1")
    scene.ask(ann, "add", number=4)
    assert (1, 4) not in scene.worker.answers, "there is room again"


@pytest.mark.parametrize(
    "offered",
    [
        [{"name": ""}],
        [{"name": "x" * 129}],
        [{"name": "aici.calls"}],
        [{"name": 1}],
        [{"name": "a"}, {"name": "a"}],
        [{"name": "a", "schema": "no schema"}],
        [{"name": "a", "schema": {"x": b"bytes"}}],
        [{"name": "a", "description": "x" * (1 << 20)}],
        [{"name": f"a{i}"} for i in range(257)],
    ],
)
def test_refused_offers(offered: list[dict[str, Any]]) -> None:
    scene = Scene()
    with pytest.raises(OfferError):
        scene.exchange.offer(Desk(scene.exchange), offered, "ann", for_all=False, public=True, watched=False)


def test_public_names_are_unique_and_offers_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_OFFERS", 2)
    scene = Scene()
    desk = Desk(scene.exchange)
    token = scene.offer(desk, "tool", for_all=True)
    with pytest.raises(OfferError, match="already offered"):
        scene.offer(desk, "tool", for_all=True)
    scene.offer(desk, "tool")
    with pytest.raises(SpaceError):
        scene.offer(desk, "more")
    scene.exchange.withdraw(desk, token)
    scene.offer(desk, "tool", for_all=True)


@in_loop
async def test_a_program_that_takes_no_events_gets_no_more_calls() -> None:
    scene = Scene(owner_calls=1 << 20)
    desk = Desk(scene.exchange)
    token = scene.offer(desk, "add")
    most = -(-calls.MAX_CALL_EVENT_BYTES // 2 // (calls._EVENT_BYTES + 2))
    for number in range(1, most + 2):
        scene.ask(token, "add", number=number)
    assert list(scene.worker.answers) == [(1, most + 1)] and scene.worker.code(1, most + 1) == "gone"
    await desk.take()
    scene.ask(token, "add", number=most + 2)
    assert len(scene.worker.answers) == 1, "there is room again"
    desk.close()


@in_loop
async def test_an_owner_with_many_events_does_not_displace_those_of_others() -> None:
    scene = Scene(owner_calls=1 << 20)
    desk = Desk(scene.exchange)
    floods = [scene.offer(desk, owner=f"flood{number}", watched=True) for number in range(3)]
    for number in range(1, 8192):
        scene.ask(floods[number % 3], "nothing", number=number)
    token = scene.offer(desk, "add", owner="ann")
    scene.ask(token, "add", number=8192)
    events = await desk.take()
    assert [event["owner"] for event in events if event["offer"] == token] == ["ann"], "it has the next turn"
    assert desk._left > 0
    desk.close()


@in_loop
async def test_bytes_that_a_connection_does_not_take_are_bounded() -> None:
    """Counts arguments of calls, and results for an offer that wants them."""
    scene = Scene(owner_calls=1 << 20)
    tools, server = Desk(scene.exchange), Desk(scene.exchange)
    scene.offer(tools, "add", owner="", for_all=True)
    token = scene.offer(server, watched=True, results=True)
    size = scene.exchange._settings.answer_bytes - 2
    most = calls.MAX_CALL_EVENT_BYTES // 2 // size + 2
    for number in range(1, most):
        scene.ask(token, "add", number=number)
        asked = [event["call"] for event in await tools.take() if "call" in event]
        assert scene.exchange.answer(tools, asked[0], b'"%s"' % (b"x" * size))
    assert server.is_full("ann") and server._held["ann"] < calls.MAX_CALL_EVENT_BYTES // 2 + 2 * size
    while server._untaken:
        await server.take()
    assert server._left == calls.MAX_CALL_EVENT_BYTES and not server.is_full("ann")
    for number in range(most, 2 * most):
        scene.ask(token, "add", number=number, arguments=b"x" * size)
    assert tools.is_full("ann") and scene.worker.code(1, 2 * most - 1) == "gone"


@in_loop
async def test_lists_of_calls_are_bounded_and_nobody_asks_twice() -> None:
    scene = Scene(answer_bytes=4000)
    desk = Desk(scene.exchange)
    token = scene.offer(desk, *(f"call{number}" for number in range(40)))
    scene.ask(token, LIST_CALLS)
    assert scene.worker.answers[1, 1]["value"][0]["schema"] is None
    scene.ask(token, "other", number=2)
    assert scene.worker.answers[1, 2]["error"]["message"].endswith("call37, ...")
    tools = Desk(scene.exchange)
    scene.offer(tools, *(f"tool{number}" for number in range(40)), for_all=True)
    scene.ask(token, LIST_CALLS, number=3)
    assert scene.worker.answers[1, 3]["value"][79] == {"name": "call39"}, "too long with descriptions"
    tools.close()
    scene.ask(token, LIST_CALLS, number=4)
    assert scene.worker.answers[1, 4] == scene.worker.answers[1, 1]
    scene.ask(token, "call1", number=5)
    scene.ask(token, "call1", number=5)
    assert len(desk.asked) == 1, "a worker that asks twice is broken"
