"""Actions that a sandbox permits and refuses, and the confinement of every process of a daemon."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from wasmtime import wat2wasm

from aicirt.contract.errors import AiciError
from aicirt.sandbox import BUILDER, COMPILER, WORKER, Profile, kernel, landlock
from aicirt.sandbox.enter import enter_namespaces
from aicirt.system.processes import child_environment
from lab.system.processes import command_line, family
from lab.system.waiting import PATIENCE
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime

PROBE = Path(__file__).with_name("probe.py")
PROFILES = (WORKER, BUILDER, COMPILER)
#: takes seconds to compile
LONG = f"""(module (memory (export "memory") 1) (func (export "aici_abi_v1"))
  (func (export "aici_arg") (result i32) (i32.const 16))
  (func (export "aici_mid_process") (result i32) (i32.const 42))
  (func (param i32) (result i32) (local.get 0) {"(i32.const 7) i32.add " * 60_000}))"""
#: actions that no profile allows
REFUSED = {
    *("write code", "change code", "empty code", "remove code", "secret", "list", "etc", "new shared memory"),
    *("process", "program", "own memory", "type into a terminal", "owner of signals"),
    *("shrink", "hole", "hole in a mapping"),
    *("tcp", "udp", "listen", "unix socket", "abstract socket"),
    *("signal", "limits of another", "processor of another", "priority of another"),
}
#: how Landlock and seccomp refuse
ERRORS = {"EACCES", "EPERM"}


def probe(profile: Profile, folder: Path) -> dict[str, Any]:
    """Returns the result of every action that the probe tries under `profile`."""
    code, secret = folder / "code", folder / "home" / "secret"
    code.mkdir()
    secret.parent.mkdir()
    (code / "module").write_text("machine code")
    secret.write_text("secret text")
    output = run_probe([profile.name, str(secret), str(os.getpid())], code)
    assert output.returncode == 0, output.stderr
    assert (code / "module").read_text() == "machine code" and len(list(code.iterdir())) == 1
    results: dict[str, Any] = json.loads(output.stdout)
    return results


def run_probe(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROBE), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=child_environment(), cwd=cwd, check=False
    )


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_every_profile_refuses_dangerous_actions(profile: Profile, tmp_path: Path) -> None:
    results = probe(profile, tmp_path)
    layers = results["layers"]
    assert layers["landlock"] == landlock.version() and layers["seccomp"]
    assert layers["oom_score_adj"] == profile.oom_score_adj
    assert {name: results[name] for name in REFUSED if results[name] not in ERRORS} == {}
    assert results["core"] == "(0, 0)"


@pytest.mark.parametrize("profile", [WORKER, BUILDER], ids=lambda profile: profile.name)
def test_worker_profiles_permit_what_a_worker_needs(profile: Profile, tmp_path: Path) -> None:
    results = probe(profile, tmp_path)
    assert (results["module"], results["open before"]) == ("machine code", "secret text")
    assert (results["library"], results["doorbell"], results["memory file"]) == ("1", "True", "2")
    assert results["advice"] == "None"
    assert (results["thread"], results["own processor"]) == ("done", "None")
    assert results["secret in thread"] in (ERRORS if results["layers"]["landlock"] else {"secret text"})


def test_compiler_cannot_open_anything(tmp_path: Path) -> None:
    results = probe(COMPILER, tmp_path)
    assert results["open before"] == "secret text", "files that are already open stay open"
    for name in ("module", "library", "memory file", "thread"):
        assert results[name] in ERRORS, (name, results[name])
    assert results["descriptor"] != "ok" and results["descriptor"].startswith("E")


HOSTILE = ("execve", "ptrace", "process_vm_readv", "bpf", "mount", "unshare", "io_uring_setup", "userfaultfd")


@pytest.mark.parametrize("profile", [WORKER, COMPILER], ids=lambda profile: profile.name)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_system_call_ends_the_process(profile: Profile, name: str, tmp_path: Path) -> None:
    assert run_probe([profile.name, name], tmp_path).returncode == -signal.SIGSYS


def test_without_landlock_in_the_kernel_restrict_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "_CREATE", 1 << 20)  # a system call that no kernel has
    assert landlock.version() == 0
    assert landlock.restrict([(Path("/"), landlock.Access.READ_FILE)]) == 0
    assert Path("/etc/passwd").read_text()


def test_refused_namespaces_are_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(kernel, "unshare", refuse)
    assert enter_namespaces() == ()


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def compiler_of(daemon: Daemon) -> int:
    """Waits for the daemon's compiler to be in its sandbox; returns its process id."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for pid in family(daemon.pid):
            with contextlib.suppress(OSError):  # it has ended
                if b"aicirt.modules.compiler" in command_line(pid) and status(pid)["Seccomp"] == "2":
                    return pid
        time.sleep(0.01)
    raise AssertionError("nothing was compiled")


def upload(runtime: Runtime, wasm: bytes) -> None:
    with contextlib.suppress(AiciError):  # the compilation may exceed its memory limit
        runtime.upload(bytes(wasm))


def test_processes_of_a_daemon_are_confined_and_have_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"SECRET_TOKEN": "s3cret-1", "OPENAI_API_KEY": "s3cret-2", "AICI_TOKEN": "s3cret-3"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    with Daemon(workers=1, store=tmp_path) as daemon, Runtime(daemon.socket_path) as runtime:
        health = runtime.health()
        (worker,) = health["workers"]
        processes = {health["builder"]["pid"]: BUILDER, worker["pid"]: WORKER}
        for process in (health["builder"], worker):
            assert process["sandbox"]["landlock"] == landlock.version() and process["sandbox"]["seccomp"]
        uploading = threading.Thread(target=upload, args=(runtime, wat2wasm(LONG)))
        uploading.start()
        processes[compiler_of(daemon)] = COMPILER
        for pid, profile in processes.items():
            found = status(pid)
            assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
            assert int(found["CapEff"], 16) == int(found["CapPrm"], 16) == 0
            score = int(Path(f"/proc/{pid}/oom_score_adj").read_text())
            assert score == profile.oom_score_adj > int(Path("/proc/self/oom_score_adj").read_text())
        for pid in (daemon.pid, *processes):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"PYTHONPATH=" in environment
            assert [name for name, value in secrets.items() if value.encode() in environment] == []
        uploading.join()
