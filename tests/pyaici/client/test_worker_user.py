"""`--worker-user`: everything works while strangers' code runs as another user. Where the tests may not
switch users, the daemon must say so."""

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
from aicirt.contract.errors import AiciError, CompileLimitError, ProtocolError, RuntimeFailure
from aicirt.contract.messages import StepInput
from aicirt.ipc import names
from aicirt.modules import CompileLimits, compile_in_child_async
from aicirt.system.environment import child_environment
from aicirt.system.user import User
from pyaici.client.daemon import Daemon
from pyaici.client.runtime import Runtime
from pyaici.tokens import load_vocabulary
from tests.processes import family, left_behind

from .conftest import VOCABULARY

NOBODY = pwd.getpwnam("nobody")
MAY_SWITCH = os.geteuid() == 0


def start(store: Path) -> Daemon:
    return Daemon(workers=1, store=store, options=["--worker-user", "nobody"])


def refused(store: Path) -> bool:
    """Where there is no right to switch users: whether that is said."""
    if MAY_SWITCH:
        return False
    with pytest.raises(RuntimeFailure, match=r"workers cannot run as nobody: .* start aicirt as root"):
        start(store)
    return True


def status(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def test_all_works_as_nobody(guest_wasm: Path, tmp_path: Path) -> None:
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
        family_of_it = [seq, *children, runtime.clone(seq)]
        assert len(children) == 2 and all(
            result.mid[number].verb == Verb.SAMPLE for number in family_of_it[:3]
        )
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
        assert artifact.stat().st_uid == os.getuid(), "whoever runs it cannot change it"
        (worker,) = health["workers"]
        os.kill(worker["pid"], 9)
        deadline = time.monotonic() + 60
        while True:
            try:
                again = runtime.instantiate(module, "ok")
                break
            except RuntimeFailure:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert runtime.begin_step([StepInput(again)]).wait().mid[again].verb == Verb.SAMPLE
        processes |= family(daemon.pid)
    assert left_behind(processes) == []


def test_a_tokenizer_of_a_package_that_they_may_not_read(guest_wasm: Path, tmp_path: Path) -> None:
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


def test_a_store_is_used_with_and_without(guest_wasm: Path, tmp_path: Path) -> None:
    """What was compiled before is given to the group; a daemon without it takes the folder as it is."""
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


def test_with_a_worker_for_each_owner(guest_wasm: Path, tmp_path: Path) -> None:
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


def test_compiling_too(tmp_path: Path) -> None:
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

    async def look() -> None:
        while True:
            for pid in set(family(os.getpid())) - {os.getpid()}:
                try:
                    if b"aicirt.modules.compiler" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        users.update(status(pid)["Uid"])
                except OSError:
                    continue
            await asyncio.sleep(0.02)

    async def main() -> None:
        looking = asyncio.create_task(look())
        user = User("nobody", NOBODY.pw_uid, NOBODY.pw_gid)
        with pytest.raises(CompileLimitError):
            cost = CompileLimits(cpu_s=2)
            await compile_in_child_async(wasm, tmp_path / "artifact", cost=cost, user=user)
        looking.cancel()

    asyncio.run(main())
    assert str(NOBODY.pw_uid) in users


@pytest.mark.parametrize(
    ("name", "says"),
    [("no-such-user-here", "there is no user 'no-such-user-here'"), ("root", "can do what root can")],
)
def test_who_cannot_be_one(name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(AiciError, match=says):
        Daemon(workers=1, store=tmp_path, options=["--worker-user", name])


def test_who_may_not_switch_is_told(tmp_path: Path) -> None:
    """A process that has given up its rights, if it had any, tries to."""
    script = f"""
import os, sys
from aicirt.contract.errors import RuntimeFailure
from aicirt.system.user import User, become
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


def test_only_files_of_ours_are_passed_on(tmp_path: Path) -> None:
    """A client names its segment and its bell; the daemon may be able to open more than the client."""
    for name in ("/aici-../../etc/passwd", "/etc/passwd", "../aici-0-1-1-ab", "", "/aici-0-1-1-ab\n", 7):
        with pytest.raises(ProtocolError, match="is no name"):
            names.open_shared_memory(name)  # type: ignore[arg-type]
    name = names.fresh_name()
    link = Path("/dev/shm") / name[1:]
    with pytest.raises(ProtocolError, match="there is no"):
        names.open_shared_memory(name)
    (tmp_path / "secret").write_text("x")
    link.symlink_to(tmp_path / "secret")
    try:
        with pytest.raises(ProtocolError, match="symbolic links"):
            names.open_shared_memory(name)
    finally:
        link.unlink()
