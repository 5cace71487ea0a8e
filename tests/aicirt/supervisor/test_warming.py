"""The order in which templates are warmed, and the handling of failed and late answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from aicirt.contract.errors import AiciError, TrapError, WorkerDiedError
from aicirt.settings import WARM_STAGES, WorkerSettings
from aicirt.supervisor.templates import Built, Templates
from aicirt.supervisor.warming import Warming
from aicirt.supervisor.workers import WorkerProcess
from lab.system.waiting import PATIENCE


def template(
    name: bytes,
    exports: tuple[str, ...] = ("aici_warm",),
    nbytes: int = 1000,
    owner: str = "ann",
    *,
    may_learn: bool = True,
) -> Built:
    info = cast(Any, SimpleNamespace(id="m" * 64, exports=list(exports)))
    call = {"arg_bytes": 0, "built": {"name": name}}
    files = cast(Any, [SimpleNamespace(fd=0), SimpleNamespace(fd=1)])
    return Built(name, info, cast(Any, None), call, files, nbytes, owner, may_learn)


class Fake:
    """Stands for templates without a limit, and for a builder that gives the test's answers."""

    def __init__(self, answer: Callable[[bytes, int], dict[str, Any]]) -> None:
        self.kept: dict[bytes, Built] = {}
        self.alive = True
        self.order: list[tuple[bytes, int]] = []
        self.most: list[int] = []
        self.on_built: Callable[[Built], None] | None = None
        self._answer = answer
        settings = WorkerSettings(warm_budget_ms=3000, warm_bytes=10_000)
        self.warming = Warming(cast(Templates, self), settings, lambda _: cast(WorkerProcess, self))

    def add(self, built: Built) -> None:
        self.kept[built.digest] = built
        assert self.on_built is not None
        self.on_built(built)

    def current(self, digest: bytes) -> Built | None:
        return self.kept.get(digest)

    def adopted(self, _: WorkerProcess, number: int) -> Built | None:
        return list(self.kept.values())[number - 1]

    def replace(self, old: Built, new: Built) -> bool:
        if self.kept.get(old.digest) is not old or new.nbytes > 50_000:
            return False
        self.kept[old.digest] = new
        return True

    async def ensure_vocabulary(self, *_: object) -> None:
        pass

    async def exchange(self, name: str, call: dict[str, Any], fds: list[int]) -> tuple[Any, list[Any]]:
        assert name == "warm" and fds == [0, 1]
        digest = next(d for d, built in self.kept.items() if built.call["built"] is call["built"])
        shares = [0.0, *WARM_STAGES]
        budgets = [(after - before) * 3000 for before, after in zip(shares, WARM_STAGES, strict=False)]
        stage = min(range(3), key=lambda i: abs(budgets[i] - call["budget_ms"]))
        self.order.append((digest, stage))
        self.most.append(call["most_bytes"])
        await asyncio.sleep(0)
        return self._answer(digest, stage), [SimpleNamespace(fd=1)]

    async def settled(self) -> None:
        while self.warming._task is not None and not self.warming._task.done():
            await asyncio.sleep(0.01)


def run(fake: Fake, *built: Built) -> None:
    async def main() -> None:
        for each in built:
            fake.add(each)
        async with asyncio.timeout(PATIENCE):
            await fake.settled()

    asyncio.run(main())


def test_all_templates_finish_a_stage_before_the_next_stage() -> None:
    fake = Fake(lambda _, stage: {"nbytes": 2000 + stage, "more": True})
    run(fake, template(b"a"), template(b"b"), template(b"c", exports=()))
    assert fake.order == [(b"a", 0), (b"b", 0), (b"a", 1), (b"b", 1), (b"a", 2), (b"b", 2)]
    assert [built.warmth for built in fake.kept.values()] == [3, 3, 0]
    assert fake.most == [10_000] * 2 + [9_000] * 2 + [8_999] * 2, "growth is counted from the first snapshot"


def test_owner_with_many_templates_delays_others_by_at_most_one_stage() -> None:
    fake = Fake(lambda *_: {"nbytes": 2000, "more": True})
    many = [template(b"many %d" % number, owner="many") for number in range(50)]
    run(fake, *many, template(b"one", owner="one"))
    assert [fake.order.index((b"one", stage)) for stage in range(3)] == [1, 3, 5]


def test_finished_template_is_not_warmed_again() -> None:
    fake = Fake(lambda name, _: {"nbytes": 2000, "more": name == b"b"})
    run(fake, template(b"a"), template(b"b"))
    assert fake.order == [(b"a", 0), (b"b", 0), (b"b", 1), (b"b", 2)]


def test_failures_are_counted_by_kind() -> None:
    def answer(name: bytes, stage: int) -> dict[str, Any]:
        problems: dict[tuple[bytes, int], AiciError] = {
            (b"a", 1): TrapError("no"),
            (b"b", 0): WorkerDiedError("gone"),
        }
        if problem := problems.get((name, stage)):
            raise problem
        return {"nbytes": 60_000 if name == b"c" else 2000, "more": True}

    fake = Fake(answer)
    run(fake, *(template(name) for name in (b"a", b"b", b"c")))
    assert fake.order == [(b"a", 0), (b"b", 0), (b"c", 0), (b"a", 1)]
    assert fake.warming.failures == {"trap": 1, "worker_died": 1, "space": 1}
    assert [fake.kept[name].warmth for name in (b"a", b"b", b"c")] == [1, 0, 0]


def test_template_removed_while_warming_stays_removed() -> None:
    def answer(name: bytes, stage: int) -> dict[str, Any]:
        if name == b"b":
            del fake.kept[b"b"]
        return {"nbytes": 2000, "more": True}

    fake = Fake(answer)
    run(fake, template(b"a"), template(b"b"))
    assert b"b" not in fake.kept and fake.order.count((b"b", 0)) == 1
    assert not fake.warming.failures


def test_template_that_is_built_again_is_warmed_again() -> None:
    def answer(name: bytes, stage: int) -> dict[str, Any]:
        if stage == 1 and len(fake.order) == 2:
            fake.add(replace(template(b"a"), nbytes=3000))
        return {"nbytes": 2000, "more": True}

    fake = Fake(answer)
    run(fake, template(b"a"))
    assert fake.kept[b"a"].warmth == 3
    assert [stage for _, stage in fake.order] == [0, 1, 0, 1, 2]


def test_what_is_found_in_a_worker_of_several_owners_is_dropped() -> None:
    """A guest that has broken out there could change the templates of other owners."""

    async def main() -> None:
        fake = Fake(lambda _, __: {"nbytes": 2000, "more": False})
        fake.kept[b"a"] = template(b"a")
        worker = cast(WorkerProcess, SimpleNamespace(owners={"ann", "bob"}))
        fake.warming.learn(worker, [(1, b"states")])
        await fake.settled()
        assert not fake.order
        worker.owners.remove("bob")
        fake.warming.learn(worker, [(1, b"states")])
        async with asyncio.timeout(PATIENCE):
            await fake.settled()
        assert len(fake.order) == 1 and fake.kept[b"a"].learned == 1

    asyncio.run(main())


def test_templates_that_may_not_learn_get_no_report() -> None:
    async def main() -> None:
        fake = Fake(lambda _, __: {"nbytes": 2000, "more": False})
        worker = cast(WorkerProcess, SimpleNamespace(owners={"ann"}))
        fake.kept[b"a"] = template(b"a", may_learn=False)
        fake.kept[b"b"] = template(b"b")
        fake.warming.learn(worker, [(1, b"a prompt"), (2, b"states")])
        async with asyncio.timeout(PATIENCE):
            await fake.settled()
        assert [digest for digest, _ in fake.order] == [b"b"]

    asyncio.run(main())


def test_warming_waits_for_a_living_builder() -> None:
    async def main() -> None:
        fake = Fake(lambda _, __: {"nbytes": 2000, "more": False})
        fake.alive = False
        fake.add(template(b"a"))
        await asyncio.sleep(0.2)
        assert not fake.order
        fake.alive = True
        async with asyncio.timeout(PATIENCE):
            await fake.settled()
        assert fake.order == [(b"a", 0)]
        fake.alive = False
        fake.add(template(b"b"))
        fake.warming.stop()
        async with asyncio.timeout(PATIENCE):
            await fake.settled()

    asyncio.run(main())
