"""`--worker-user`: everything works while controllers run as another user.

Where the tests may not switch users, the daemon must say so.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from wasmtime import wat2wasm

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, CompileLimitError, RuntimeFailure
from aicirt.contract.messages import StepInput
from aicirt.modules.compile import CompileLimits, compile_in_child_async
from aicirt.system.processes import User, child_environment
from lab.system.processes import family, left_behind
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.tokens import load_vocabulary

from .conftest import VOCABULARY

NOBODY = pwd.getpwnam("nobody")
MAY_SWITCH = os.geteuid() == 0


def start(store: Path) -> Daemon:
    return Daemon(workers=1, store=store, options=["--worker-user", "nobody"])


def refused(store: Path) -> bool:
    """Returns False if the tests may switch users. Otherwise checks that the daemon refuses to start."""
    if MAY_SWITCH:
        return False
    with pytest.raises(RuntimeFailure, match=r"workers cannot run as nobody: .* start aicirt as root"):
        start(store)
    return True


def status(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def test_everything_works_as_nobody(guest_wasm: Path, tmp_path: Path) -> None:
    if refused(tmp_path):
        return
    with start(tmp_path / "store") as daemon, Runtime(daemon.socket_path) as runtime:
        processes = family(daemon.pid)
        runtime.register(VOCABULARY)
        module = runtime.upload(guest_wasm).id
        seq = runtime.instantiate(module, "fork 3", [1, 2, 3])
        runtime.begin_step([StepInput(seq)]).wait()
        step = runtime.begin_step([StepInput(seq, [1])])
        children = step.wait_pre()[seq].children
        result = step.wait()
        runtime.clone(seq)
        assert len(children) == 2
        assert all(result.mid[number].verb == Verb.SAMPLE for number in (seq, *children))
        health = runtime.health()
        for process in (health["builder"], *health["workers"]):
            found = status(process["pid"])
            assert found["Uid"] == [str(NOBODY.pw_uid)] * 4 and found["Gid"] == [str(NOBODY.pw_gid)] * 4
            assert found["Groups"] == [] and found["NoNewPrivs"] == ["1"]
            assert int(found["CapPrm"][0], 16) == int(found["CapEff"][0], 16) == 0
        code = tmp_path / "store" / "compiled"
        assert (stat.S_IMODE(code.stat().st_mode), code.stat().st_gid) == (0o710, NOBODY.pw_gid)
        (artifact,) = code.glob(f"{module}-*.compiled")
        assert (stat.S_IMODE(artifact.stat().st_mode), artifact.stat().st_gid) == (0o640, NOBODY.pw_gid)
        assert artifact.stat().st_uid == os.getuid(), "the worker's user must not be able to change it"
        (worker,) = health["workers"]
        os.kill(worker["pid"], 9)
        while True:
            try:
                again = runtime.instantiate(module, "ok")
                break
            except RuntimeFailure:
                time.sleep(0.05)
        assert runtime.begin_step([StepInput(again)]).wait().mid[again].verb == Verb.SAMPLE
        processes |= family(daemon.pid)
    assert left_behind(processes) == []


def test_a_tokenizer_works_although_workers_may_not_read_its_package(
    guest_wasm: Path, tmp_path: Path
) -> None:
    if refused(tmp_path):
        return
    alphabet = {letter: number for number, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab={**alphabet, "he": 256}, merges=[("h", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    with start(tmp_path / "store") as daemon, Runtime(daemon.socket_path) as runtime:
        runtime.register(load_vocabulary(tokenizer, vocab_size=300, eos=257))
        seq = runtime.instantiate(runtime.upload(guest_wasm).id, "capabilities")
        runtime.begin_step([StepInput(seq)]).wait()
        log = runtime.begin_step([StepInput(seq, [1])]).wait().logs[seq].split()
        assert "1" in log


def test_a_store_can_be_used_with_and_without_a_worker_user(guest_wasm: Path, tmp_path: Path) -> None:
    """The group gets access to modules compiled before. A daemon without a worker user changes nothing."""
    if refused(tmp_path):
        return
    for make in (Daemon, start, Daemon):
        with (
            make(tmp_path) if make is start else Daemon(workers=1, store=tmp_path) as daemon,
            Runtime(daemon.socket_path) as runtime,
        ):
            runtime.register(VOCABULARY)
            seq = runtime.instantiate(runtime.upload(guest_wasm).id, "ok")
            assert runtime.begin_step([StepInput(seq)]).wait().mid[seq].verb == Verb.SAMPLE


def test_isolated_owners_have_workers_of_the_worker_user(guest_wasm: Path, tmp_path: Path) -> None:
    if refused(tmp_path):
        return
    options = ["--worker-user", "nobody", "--isolate-owners"]
    with (
        Daemon(workers=2, store=tmp_path, options=options) as daemon,
        Runtime(daemon.socket_path, owner="a") as one,
        Runtime(daemon.socket_path, owner="b") as other,
    ):
        for runtime in (one, other):
            runtime.register(VOCABULARY)
            seq = runtime.instantiate(runtime.upload(guest_wasm).id, "ok")
            assert runtime.begin_step([StepInput(seq)]).wait().mid[seq].verb == Verb.SAMPLE
        health = one.health()
        for process in (*health["workers"], *health["builders"]):
            assert status(process["pid"])["Uid"] == [str(NOBODY.pw_uid)] * 4
        assert len(health["workers"]) == len(health["builders"]) == 2


def test_the_compiler_runs_as_the_worker_user(tmp_path: Path) -> None:
    if refused(tmp_path):
        return
    ops = "(i32.const 7) i32.add " * 400_000
    bomb = f"""(module (memory (export "memory") 1) (func (export "aici_abi_v1"))
      (func (export "aici_arg") (result i32) (i32.const 16))
      (func (export "aici_mid_process") (result i32) (i32.const 42))
      (func (param i32) (result i32) (local.get 0) {ops}))"""
    wasm = tmp_path / "bomb.wasm"
    wasm.write_bytes(bytes(wat2wasm(bomb)))
    users: set[str] = set()

    async def record_users() -> None:
        while True:
            for pid in set(family(os.getpid())) - {os.getpid()}:
                try:
                    if b"aicirt.modules.compiler" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        users.update(status(pid)["Uid"])
                except OSError:
                    continue
            await asyncio.sleep(0.02)

    async def main() -> None:
        recording = asyncio.create_task(record_users())
        user = User("nobody", NOBODY.pw_uid, NOBODY.pw_gid)
        with pytest.raises(CompileLimitError):
            cost = CompileLimits(cpu_s=2)
            await compile_in_child_async(wasm, tmp_path / "artifact", cost=cost, user=user)
        recording.cancel()

    asyncio.run(main())
    assert str(NOBODY.pw_uid) in users


@pytest.mark.parametrize(
    ("name", "words"),
    [("no-such-user-here", "there is no user 'no-such-user-here'"), ("root", "can do what root can")],
)
def test_unknown_and_privileged_worker_users_are_refused(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(AiciError, match=words):
        Daemon(workers=1, store=tmp_path, options=["--worker-user", name])


def test_a_process_that_may_not_switch_users_gets_an_error_with_advice(tmp_path: Path) -> None:
    """A child process first gives up its right to switch users, if it has it."""
    script = f"""
import os, sys
from aicirt.contract.errors import RuntimeFailure
from aicirt.system.processes import User, become
if os.geteuid() == 0:
    become({NOBODY.pw_uid}, {NOBODY.pw_gid})
    try:
        os.setuid(0)
    except PermissionError:
        pass
    else:
        raise SystemExit("it can come back")
try:
    User("somebody", 12345, 12345).require()
except RuntimeFailure as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=child_environment(),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.startswith("workers cannot run as somebody: ") and "start aicirt as root" in done.stdout
    )
