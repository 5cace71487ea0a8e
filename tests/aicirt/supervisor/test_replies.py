"""A broken-out worker may answer anything. The supervisor ends it, and nothing that it says gets further."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicirt.contract.errors import AiciError, ProtocolError, TrapError, WorkerDiedError
from aicirt.contract.messages import Reply
from aicirt.ipc.frames import FrameSocket, frame
from aicirt.settings import MAX_FOUND_BYTES, MAX_PROFILES, WorkerConfig
from aicirt.supervisor.replies import check_error, check_value
from aicirt.supervisor.workers import WorkerProcess
from aicirt.system.processes import Child
from lab.system.waiting import PATIENCE

PING: dict[str, Any] = {
    "sequences": 3,
    "clients": {1: 2, 2: 1},
    "busy": 0.5,
    "work_s": 10.0,
    "asked": 7,
    "counters": {"late": 1, "time_limit": 2},
    "steps": 100,
    "snapshot_bytes": 1 << 20,
    "templates_given_up": 0,
    "built": 0,
    "sandbox": {"landlock": 6, "seccomp": True, "namespaces": ["net"], "oom_score_adj": 900},
    "memory": {"bytes": 1, "limit": 2, "owner_bytes": 3, "owner_limit": 4, "ended": 0},
    "found": 0,
}
#: two pages
SNAPSHOT = [1 << 16, b"", 1 << 16, [0, 4096, 8192, 4096], [[0, 10]]]
DESCRIPTION = {"snapshot": SNAPSHOT, "nbytes": 8192, "address": 16, "log": b"said"}
FOUND = [1, b"states"]
ANSWERS: dict[str, Any] = {
    "ping": PING,
    "found": [FOUND],
    "build": {"cpu_s": 0.1, "built": DESCRIPTION},
    "warm": {**DESCRIPTION, "more": True},
    "adopt": 5,
    "attach": None,
}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


def refused(call: str, value: Any, files: Any = 0) -> bool:
    try:
        check_value(call, value, files)
    except ProtocolError:
        return True
    return False


@pytest.mark.parametrize("call", ANSWERS)
def test_answers_of_a_worker_are_accepted(call: str) -> None:
    assert not refused(call, ANSWERS[call])
    assert refused(call, ANSWERS[call], 1) == (call not in ("build", "warm"))


@pytest.mark.parametrize("number", ["pid", "owner", "error", "rss_kib"])
def test_answer_to_a_ping_has_no_further_fields(number: str) -> None:
    assert refused("ping", PING | {number: 1})


@pytest.mark.parametrize("field", PING)
def test_every_field_of_the_answer_to_a_ping_is_checked(field: str) -> None:
    assert refused("ping", {name: value for name, value in PING.items() if name != field})
    numbers = (-1, 1 << 63, -0.5, float("nan"), float("inf"))
    for wrong in (None, *numbers, "x", [], {"a b": 1}, {"a": -1}, {1: "x"}):
        assert refused("ping", PING | {field: wrong}), wrong


@given(st.sampled_from(sorted(ANSWERS)), anything)
def test_no_other_answer_is_accepted(call: str, value: Any) -> None:
    assert refused(call, value) or value in (ANSWERS[call], [], None) or type(value) is int


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("found", [FOUND] * (MAX_PROFILES + 1)),
        ("found", [[1, bytes(MAX_FOUND_BYTES + 1)]]),
        ("found", [[1, b""]]),
        ("build", {"cpu_s": 0.1}),
        ("build", {"cpu_s": float("nan"), "built": DESCRIPTION}),
        ("build", {"cpu_s": 0.1, "built": DESCRIPTION, "error": TrapError("x").to_wire()}),
        ("build", {"cpu_s": 0.1, "built": DESCRIPTION | {"nbytes": 4096}}),
        ("build", {"cpu_s": 0.1, "built": DESCRIPTION | {"snapshot": [*SNAPSHOT[:4], [[0, 1], [0, 1]]]}}),
        ("build", {"cpu_s": 0.1, "error": ["trap"]}),
        ("build", {"cpu_s": 0.1, "error": WorkerDiedError("x").to_wire()}),
        ("adopt", True),
        ("attach", 0),
    ],
)
def test_answers_beyond_limits_are_refused(call: str, value: Any) -> None:
    assert refused(call, value)


@pytest.mark.parametrize("files", [2, -1, True, 1.0, None, "1"])
def test_other_numbers_of_files_are_refused(files: Any) -> None:
    assert refused("build", ANSWERS["build"], files)


def test_errors_that_no_worker_can_have_are_refused() -> None:
    assert isinstance(check_error("adopt", TrapError("x").to_wire()), TrapError)
    for call, wire in (
        ("ping", TrapError("x").to_wire()),
        ("adopt", ["worker_died", "x", {}]),
        ("adopt", ["supervisor_died", "x", {}]),
        ("adopt", "x"),
    ):
        with pytest.raises(ProtocolError):
            check_error(call, wire)


# -- a process whose control socket the test has -----------------------------------------------------------


def play(test: Callable[[WorkerProcess, FrameSocket, Callable[[], Awaitable[int]]], Awaitable[None]]) -> None:
    """Runs `test` with a worker, its end of the socket, and a function that returns its status at the end."""

    async def main() -> None:
        theirs: list[FrameSocket] = []
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def start(_: str, __: Sequence[str], files: Sequence[int], ___: int) -> Child:
            theirs.append(FrameSocket(socket.fromfd(files[2], socket.AF_UNIX, socket.SOCK_STREAM)))
            return Child(subprocess.Popen(["sleep", "1000"]).pid, end.set_result)

        worker = WorkerProcess(0, 1, WorkerConfig(), start, lambda _: None, lambda _, __: None)
        try:
            await worker._starting
            async with asyncio.timeout(PATIENCE):
                await test(worker, theirs[0], lambda: asyncio.shield(end))
        finally:
            worker.end()
            theirs[0].close()

    asyncio.run(main())


def answer(*what: Any) -> bytes:
    return frame(Reply(*what))


@pytest.mark.parametrize(
    "sent",
    [
        answer(1, TrapError("no").to_wire(), None),
        answer(1, WorkerDiedError("no").to_wire(), None),
        answer(1, None, PING | {"pid": 1}),
        answer(1, None, "nonsense"),
        answer(1, None, PING, 1),
        answer(2, None, PING),
        answer("x", None, PING),
        answer([], None, PING),
        answer(1, None, PING) * 2,
        answer(1, None, PING)[:-1] + b"\xc1",
        (1 << 24).to_bytes(4, "little"),
        b"\xff" * 100,
    ],
)
def test_a_message_that_no_worker_sends_ends_the_process(sent: bytes) -> None:
    async def test(worker: WorkerProcess, theirs: FrameSocket, status: Callable[[], Awaitable[int]]) -> None:
        ping = asyncio.ensure_future(worker.call("ping", {}))
        await asyncio.sleep(0)
        theirs.socket.sendall(sent)
        assert await status() == -signal.SIGKILL
        if sent != answer(1, None, PING) * 2:
            with pytest.raises(WorkerDiedError):
                await ping

    play(test)


def test_descriptors_without_messages_end_the_process() -> None:
    async def test(_: WorkerProcess, theirs: FrameSocket, status: Callable[[], Awaitable[int]]) -> None:
        theirs.socket.sendall((1000).to_bytes(4, "little"))
        for _number in range(3):
            socket.send_fds(theirs.socket, [b"x"], [0] * 16)
        assert await status() == -signal.SIGKILL

    play(test)


def test_others_have_their_turn_between_two_answers() -> None:
    async def test(worker: WorkerProcess, theirs: FrameSocket, _: Callable[[], Awaitable[int]]) -> None:
        first, second = (asyncio.ensure_future(worker.call("adopt", {})) for _ in range(2))
        at_first: list[bool] = []
        first.add_done_callback(lambda _: at_first.append(bool(worker._unanswered)))
        await asyncio.sleep(0)
        theirs.socket.sendall(answer(1, None, 5) + answer(2, None, 6))
        assert await asyncio.gather(first, second) == [5, 6] and not worker._unanswered

    play(test)


def test_an_error_reaches_the_caller_and_the_process_goes_on() -> None:
    async def test(worker: WorkerProcess, theirs: FrameSocket, _: Callable[[], Awaitable[int]]) -> None:
        for number in (1, 2):
            call = asyncio.ensure_future(worker.call("adopt", {}))
            await asyncio.sleep(0)
            theirs.socket.sendall(answer(number, TrapError("x").to_wire(), None))
            with pytest.raises(AiciError, match="x"):
                await call
        assert worker.alive

    play(test)
