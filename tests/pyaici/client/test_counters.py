"""Every limit: reaching it increases the counters that docs/reliability.md names."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from wasmtime import wat2wasm

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, OwnerLimitError
from aicirt.contract.messages import StepInput
from aicirt.settings import DaemonSettings, Limits, RequestLimits, WorkerSettings
from lab.system.waiting import wait_until
from pyaici.client.calls import CallEvent, Offer
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from tests.simulation import World

from .conftest import GUESTS, VOCABULARY, poll, post_prepare, real

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "reliability.md"
ALL = {
    item.name
    for group in (Limits, RequestLimits, WorkerSettings, DaemonSettings)
    for item in dataclasses.fields(group)
}


def documented() -> dict[str, list[str]]:
    """Returns the counters of each limit. The list is empty for a limit documented as not counted."""
    section = DOCUMENT.read_text().partition("## Limits and their counters")[2].partition("\n## ")[0]
    found: dict[str, list[str]] = {}
    for limits, counters in re.findall(r"^\| (`.*?) \| (.*?) \|$", section, re.MULTILINE):
        names = [] if counters.startswith("not counted: ") else re.findall(r"`(\w+)`", counters)
        for limit in re.findall(r"`(\w+)`", limits):
            assert limit not in found, limit
            found[limit] = names
    return found


COUNTED = {limit: counters for limit, counters in documented().items() if counters}


class Case:
    """A daemon with a tight limit, its clients, and a guest."""

    def __init__(self, stack: ExitStack, daemon: Daemon, guest: Path, warm: Path) -> None:
        self._stack = stack
        self._daemon = daemon
        self.guest = guest
        self.warm = warm
        self.observer = self.join("observer")
        self.runtime = self.join("o")
        self.runtime.register(VOCABULARY)

    def join(self, owner: str = "o") -> Runtime:
        return self._stack.enter_context(Runtime(self._daemon.socket_path, owner=owner))

    def counters(self) -> Counter[str]:
        health = self.observer.health()
        found = Counter(health["counters"])
        for process in (*health["workers"], *health["builders"]):
            found.update(process.get("counters", {}))
        found["warm_failures"] = sum(health["warm_failures"].values())
        return found

    def upload(self) -> str:
        return self.runtime.upload(self.guest).id

    def play(self, *args: str, prompt: tuple[int, ...] = (1, 2, 3), steps: int = 8) -> None:
        """Steps one request per argument together, for `steps` steps or until all have ended."""
        runtime, reports, module = self.runtime, {}, self.upload()
        with suppress(AiciError):
            for arg in args:
                seq = runtime.instantiate(module, arg, prompt)
                reports[seq] = StepInput(seq)
        for _ in range(steps):
            if not reports:
                return
            step = runtime.begin_step(list(reports.values()))
            reports = {seq: StepInput(seq) for seq in reports}
            ended = set()
            for seq, verdict in step.wait_pre().items():
                reports |= {child: StepInput(child) for child in verdict.children}
                ended |= {seq} if verdict.verb in (Verb.ERROR, Verb.STOP) else set()
            for seq, mid in step.wait().mid.items():
                if mid.verb == Verb.SAMPLE:
                    reports[seq] = StepInput(seq, [1], 0, True)
                elif mid.verb == Verb.SPLICE:
                    reports[seq] = StepInput(seq, mid.ff_tokens, mid.backtrack)
                elif mid.verb != Verb.LATE:
                    ended.add(seq)
            reports = {seq: report for seq, report in reports.items() if seq not in ended}
        runtime.free(reports)


def call(arg: str, *, answers: bool = True) -> Callable[[Case], None]:
    """Returns a case of a guest that makes calls."""

    def handle(offer: Offer, event: CallEvent) -> None:
        if event.code is None and answers:
            offer.answer(event.id, json.loads(event.arguments))

    def act(case: Case) -> None:
        offer = case.runtime.answerer.offer([{"name": "echo"}], handle)
        with suppress(AiciError):
            case.runtime.instantiate(case.upload(), arg, (1, 2, 3), calls=offer.token)

    return act


def send_much(case: Case) -> None:
    answerer = case.runtime.answerer
    answerer.offer([], lambda *_: None, name="run")
    with pytest.raises(OwnerLimitError):
        answerer.send("run", "x" * 1000)


def step_beside_another_owner(case: Case) -> None:
    case.observer.register(VOCABULARY)
    other = case.observer.instantiate(case.upload(), "ok")
    case.play("ok", "ok", "ok")
    case.observer.free([other])


Action = Callable[[Case], None]
#: limits of daemons that several cases share, by name
GROUPS: dict[str, dict[str, float]] = {
    "guests": {
        "memory_bytes": 8 << 20,
        "shared_bytes": 1000,
        "mutable_globals": 3,
        "exports": 30,
        "export_bytes": 400,
        "functions": 300,
        "items": 300,
        "tables": 2,
        "module_bytes": 500_000,
        "init_ms": 150,
        "mid_ms": 5,
        "max_late_steps": 2,
        "max_forks": 3,
        "max_suspended_steps": 3,
        "max_idle_steps": 4,
        "max_ff_tokens": 10,
        "max_calls": 4,
        "max_call_bytes": 1000,
        "max_queued_call_bytes": 1500,
        "max_waits": 2,
        "calls_under_way": 1,
        "answer_bytes": 500,
        "max_variables": 50,
        "max_variable_name": 64,
        "max_tokenize_bytes": 100,
        "max_prompt_tokens": 10,
        "log_bytes": 1000,
    },
    "few forks": {"max_total_forks": 2},
    "large variables": {"max_variable_bytes": 4000},
    "owners": {
        "owner_sequences": 2,
        "owner_variable_bytes": 3000,
        "owner_log_bytes": 1000,
        "owner_upload_bytes": 200_000,
        "max_templates": 2,
        "max_programs": 1,
    },
    # actions of one group do not reach each other's limits
    "all owners": {
        "init_ms": 150,
        "max_sequences": 2,
        "warm_ms": 20,
        "max_compilations": 1,
        "max_builds": 1,
        "max_vocabularies": 1,
        "owner_tags": 1,
    },
    "each owner": {
        "init_ms": 150,
        "owner_critical_ms": 0.001,
        "owner_snapshot_bytes": 5000,
        "owner_compilations": 1,
        "owner_builds": 1,
        "owner_vocabularies": 1,
    },
    "queues": {
        "init_ms": 150,
        "snapshot_bytes": 5000,
        "owner_queue": 0,
        "max_compilations": 1,
        "owner_build_queue": 0,
        "owner_builds": 1,
        "vocabulary_bytes": 11_000,
    },
    "bytes of queues": {
        "init_ms": 150,
        "owner_queue_bytes": 1,
        "owner_builds": 1,
        "owner_vocabulary_bytes": 11_000,
        "owner_compile_s": 0.3,
    },
    "patient": {"max_outbox": 1, "step_deadline_ms": 60_000, "mid_ms": 60_000},
    "times of calls": {"call_seconds": 0.01, "receive_seconds": 0.01},
    "sizes of calls": {"owner_calls": 3, "owner_message_bytes": 1000, "max_result_bytes": 1000},
}


def play(*args: str, prompt: tuple[int, ...] = (1, 2, 3), steps: int = 8) -> Action:
    return lambda case: case.play(*args, prompt=prompt, steps=steps)


def refuse(wat: str) -> Action:
    """Uploads a module with `wat` in its body, which must be refused."""
    module = f"""(module {wat} (memory (export "memory") 1) (func (export "aici_abi_v1"))
      (func (export "aici_arg") (result i32) (i32.const 16))
      (func (export "aici_mid_process") (result i32) (i32.const 42)))"""

    def action(case: Case) -> None:
        with pytest.raises(AiciError):
            case.runtime.upload(bytes(wat2wasm(module)))

    return action


def prepare(*args: str) -> Action:
    def action(case: Case) -> None:
        for arg in args:
            case.runtime.prepare(case.upload(), arg)

    return action


def variant(case: Case, size: int) -> bytes:
    """Returns a different module with the same behaviour: a custom section is added."""
    length = bytes([size + 3 & 0x7F | 0x80, size + 3 >> 7])
    return case.guest.read_bytes() + b"\0" + length + b"\x02hi" + bytes(size)


def two_programs(case: Case) -> None:
    for wasm in (case.guest.read_bytes(), case.guest.read_bytes() + b"\0\x03\x02hi"):
        case.runtime.prepare(case.runtime.upload(wasm).id, "ok")


def upload_much(case: Case) -> None:
    with suppress(AiciError):
        for number in range(200):
            case.runtime.upload(variant(case, 1000 + number))


def compile_two(case: Case) -> None:
    """Uploads a module while another one is being compiled."""
    first = case.runtime._control.post("upload", wasm=variant(case, 200), owner=None)
    wait_until(lambda: case.observer.health()["compilations"]["running"], 0.005)
    with suppress(AiciError):
        case.runtime.upload(variant(case, 300))
    assert poll(case.runtime, first) is None


def build_two(case: Case) -> None:
    """Requests a template while another one is being built."""
    runtime, module = case.runtime, case.upload()
    first = post_prepare(runtime, module, "init_loop")
    wait_until(lambda: case.observer.health()["builds"]["running"], 0.005)
    with suppress(AiciError):
        runtime.prepare(module, "ok 9")  # a template that no case before has built
    assert poll(runtime, first)


def compile_many(case: Case) -> None:
    with pytest.raises(AiciError):
        for number in range(200):
            case.runtime.upload(variant(case, 300 + number))


def another_vocabulary(case: Case) -> None:
    other = Vocabulary(tokens=[b"a", b"b", b""], special_names={2: "</s>"}, eos=(2,))
    with pytest.raises(AiciError):
        case.runtime.register(other)


def leave_results_unread(case: Case) -> None:
    case.play("ok")
    client, steps = case.join(), []
    client.register(VOCABULARY)
    seq = client.instantiate(case.upload(), "log_flood")
    with suppress(AiciError):
        for number in range(600):
            steps.append(client.begin_step([StepInput(seq, [1] if number else [])]))
            time.sleep(0.005)


def stop_the_worker(case: Case) -> None:
    case.play("ok")
    (worker,) = case.observer.health()["workers"]
    time.sleep(2.5)  # it has answered since its start, so the shorter time limit for answers applies
    os.kill(worker["pid"], signal.SIGSTOP)


def tag_twice(case: Case) -> None:
    module = case.runtime.upload(case.guest).id
    for tag in ("one", "one", "two"):
        with suppress(AiciError):
            case.runtime.tag(module, tag)


def warm_endlessly(case: Case) -> None:
    case.runtime.instantiate(case.runtime.upload(case.warm).id, "l1")


#: limit: its daemon (a name in GROUPS, or limits), and the action that reaches the limit
CASES: dict[str, tuple[str | dict[str, float], Action]] = {
    "memory_bytes": ("guests", play("memory_bomb")),
    "shared_bytes": ("guests", play("vocabulary")),
    "mutable_globals": ("guests", refuse("(global (mut i32) (i32.const 0))" * 4)),
    "exports": ("guests", refuse("".join(f'(export "f{n}" (func 0))' for n in range(31)))),
    "export_bytes": ("guests", refuse(f'(export "{"x" * 400}" (func 0))')),
    "functions": ("guests", refuse("(func)" * 301)),
    "items": ("guests", refuse("(global i32 (i32.const 0))" * 301)),
    "tables": ("guests", refuse("(table 1 funcref)" * 3)),
    "module_bytes": ("guests", refuse(f'(data "{"x" * 600_000}")')),
    "init_ms": ("guests", play("init_loop")),
    "pre_ms": ("guests", play("pre_loop")),
    "post_ms": ("guests", play("post_loop")),
    "critical_saved_ms": ("guests", play("pre_loop")),
    "mid_ms": ("guests", play("mid_slow 100")),
    "max_late_steps": ("guests", play("mid_loop")),
    "max_forks": ("guests", play("fork 4")),
    "max_total_forks": ("few forks", play("fork 4")),
    "max_suspended_steps": ("guests", play("suspend", steps=12)),
    "max_idle_steps": ("guests", play("suspend_write", steps=12)),
    "max_ff_tokens": ("guests", play("splice_long")),
    "max_waits": ("guests", play("waits 3")),
    "max_calls": ("guests", call("calls 5")),
    "max_call_bytes": ("guests", call("call_bytes 1001")),
    "max_queued_call_bytes": ("guests", call("call_thrice 800")),
    "answer_bytes": ("guests", call("call_bytes 600")),
    "call_seconds": ("times of calls", call("calls 1", answers=False)),
    "owner_calls": ("sizes of calls", call("calls 4", answers=False)),
    "receive_seconds": ("times of calls", call("receive")),
    "owner_message_bytes": ("sizes of calls", send_much),
    "max_result_bytes": ("sizes of calls", call("call_thrice 600")),
    "max_variables": ("guests", play("variable_flood")),
    "max_variable_name": ("guests", play("long_name")),
    "max_tokenize_bytes": ("guests", play("mid_tokenize 1")),
    "max_prompt_tokens": ("guests", play("ok", prompt=(1,) * 11)),
    "log_bytes": ("guests", play("log_flood", steps=3)),
    "max_variable_bytes": ("large variables", play("keep 3999", "keep 4000")),
    "owner_sequences": ("owners", play("ok", "ok", "ok")),
    "owner_variable_bytes": ("owners", play("keep 4000")),
    "owner_log_bytes": ("owners", play("say 2000")),
    "max_templates": ("owners", prepare("ok 1", "ok 2", "ok 3")),
    "max_programs": ("owners", two_programs),
    "owner_upload_bytes": ("owners", upload_much),
    "max_sequences": ("all owners", play("ok", "ok", "ok")),
    "warm_ms": ("all owners", warm_endlessly),
    "max_compilations": ("all owners", compile_two),
    "max_builds": ("all owners", build_two),
    "max_vocabularies": ("all owners", another_vocabulary),
    "owner_tags": ("all owners", tag_twice),
    "owner_critical_ms": ("each owner", step_beside_another_owner),
    "owner_snapshot_bytes": ("each owner", prepare("ok 1", "ok 2", "ok 3")),
    "owner_compilations": ("each owner", compile_two),
    "owner_builds": ("each owner", build_two),
    "owner_vocabularies": ("each owner", another_vocabulary),
    "snapshot_bytes": ("queues", prepare("ok 1", "ok 2", "ok 3")),
    "owner_queue": ("queues", compile_two),
    "owner_build_queue": ("queues", build_two),
    "vocabulary_bytes": ("queues", another_vocabulary),
    "owner_queue_bytes": ("bytes of queues", build_two),
    "owner_vocabulary_bytes": ("bytes of queues", another_vocabulary),
    "owner_compile_s": ("bytes of queues", compile_many),
    "step_grace_ms": ("patient", play("ok", "mid_slow 300", steps=3)),
    "max_outbox": ("patient", leave_results_unread),
    "step_deadline_ms": ({"step_deadline_ms": 20, "mid_ms": 5000}, play("mid_slow 300")),
    "owner_memory_bytes": ({"owner_memory_bytes": 1000}, play("ok")),
    "worker_memory_bytes": ({"worker_memory_bytes": 1000, "owner_memory_bytes": 1 << 30}, play("ok")),
    "silence_seconds": ({"silence_seconds": 1}, stop_the_worker),
    "worker_idle_s": ({"worker_idle_s": 0.1}, play("ok")),
}


@pytest.fixture(scope="module")
def warm_wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUESTS / "warm.c", tmp_path_factory.mktemp("counters") / "warm.wasm").path


@contextmanager
def started(limit: str, guest: Path, warm: Path, store: Path) -> Iterator[Case]:
    """Yields the case of a limit."""
    group, _ = CASES[limit]
    options = ["--isolate-owners"] if limit == "worker_idle_s" else []
    limits = GROUPS[group] if isinstance(group, str) else group
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(workers=1, limits=limits, store=store, options=options))  # type: ignore[arg-type]
        yield Case(stack, daemon, guest, warm)


#: limits whose cases need real processes: a silent one, or threads that answer calls
REAL = {
    "silence_seconds",
    "max_calls",
    "max_call_bytes",
    "max_queued_call_bytes",
    "answer_bytes",
    "call_seconds",
    "owner_calls",
    "receive_seconds",
    "owner_message_bytes",
    "max_result_bytes",
}


@pytest.mark.parametrize("limit", [limit for limit in CASES if limit not in REAL])
def test_reaching_a_limit_is_counted(
    limit: str, world: World, guest_wasm: Path, warm_wasm: Path, tmp_path: Path
) -> None:
    with started(limit, guest_wasm, warm_wasm, tmp_path) as case:
        reach(limit, case)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Daemon]]:
    """Starts real daemons, one for each group."""
    with ExitStack() as stack:

        @functools.cache
        def of_group(group: str) -> Daemon:
            store = tmp_path_factory.mktemp("group")
            return stack.enter_context(Daemon(workers=1, limits=GROUPS[group], store=store))  # type: ignore[arg-type]

        yield of_group


@real
@pytest.mark.parametrize("limit", sorted(REAL))
def test_reaching_a_limit_of_real_processes_is_counted(
    limit: str,
    world: None,
    guest_wasm: Path,
    warm_wasm: Path,
    tmp_path: Path,
    daemons: Callable[[str], Daemon],
) -> None:
    group, _ = CASES[limit]
    if isinstance(group, str):
        with ExitStack() as stack:
            reach(limit, Case(stack, daemons(group), guest_wasm, warm_wasm))
        return
    with started(limit, guest_wasm, warm_wasm, tmp_path) as case:
        reach(limit, case)


def reach(limit: str, case: Case) -> None:
    """Reaches the limit, and waits for one of its counters."""
    before = case.counters()
    CASES[limit][1](case)
    wait_until(lambda: any(case.counters()[name] > before[name] for name in COUNTED[limit]), 0.05)


def test_every_limit_is_documented_and_tested() -> None:
    assert set(documented()) == ALL
    assert set(CASES) == set(COUNTED)
