"""What a worker can still do after it has confined itself, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aicirt.worker import landlock
from pyaici.runtime import Runtime

#: tries things one by one and tells how each ended; argv: a folder of code, a file elsewhere, the test's pid
_PROBE = """
import errno, json, os, signal, socket, subprocess, sys, threading
from pathlib import Path
from aicirt.worker import confine

code, secret, outside = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
open_before = open(secret)
listener = socket.create_server(("127.0.0.1", 0))
abstract = socket.socket(socket.AF_UNIX)
confine.bind_to(os.getppid())
version = confine.close_in(code)
confine.hide()
told = {"version": version}

def attempt(name, function):
    try:
        told[name] = str(function())
    except OSError as error:
        told[name] = errno.errorcode[error.errno]

def shared_memory():
    import posix_ipc
    semaphore = posix_ipc.Semaphore(sys.argv[4])
    semaphore.release()
    return semaphore.value

def in_a_thread():
    result = []
    def work():
        try:
            result.append(secret.read_text())
        except OSError as error:
            result.append(errno.errorcode[error.errno])
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return result[0]

attempt("code", lambda: (code / "module").read_text())
attempt("write code", lambda: (code / "new").write_text("x"))
attempt("change code", lambda: (code / "module").open("a"))
attempt("secret", secret.read_text)
attempt("list", lambda: os.listdir(secret.parent))
attempt("thread", in_a_thread)
attempt("open before", open_before.read)
attempt("library", lambda: __import__("colorsys").rgb_to_hsv(0, 0, 1)[2])
attempt("shared memory", shared_memory)
attempt("new shared memory", lambda: os.open("/dev/shm/aici-test-confine", os.O_CREAT | os.O_RDWR))
attempt("memory file", lambda: os.write(os.memfd_create("x"), b"12"))
attempt("program", lambda: subprocess.run([sys.executable, "-c", ""]))
attempt("tcp", lambda: socket.create_connection(listener.getsockname()))
attempt("listen", lambda: socket.create_server(("127.0.0.1", 0)))
attempt("signal", lambda: os.kill(outside, 0))
attempt("look", lambda: os.open("/proc/self/mem", os.O_RDONLY))
attempt("etc", lambda: Path("/etc/passwd").read_text())
told["core"] = __import__("resource").getrlimit(__import__("resource").RLIMIT_CORE)
print(json.dumps(told))
"""


def test_what_is_left(tmp_path: Path) -> None:
    import posix_ipc

    code, secret = tmp_path / "code", tmp_path / "home" / "secret"
    code.mkdir()
    secret.parent.mkdir()
    (code / "module").write_text("machine code")
    secret.write_text("none of its business")
    semaphore = posix_ipc.Semaphore(f"/aici-test-{os.getpid()}", posix_ipc.O_CREX)
    try:
        command = [sys.executable, "-c", _PROBE, str(code), str(secret), str(os.getpid()), semaphore.name]
        root = Path(landlock.__file__).parents[2]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        output = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    finally:
        semaphore.unlink()
    assert output.returncode == 0, output.stderr
    told = json.loads(output.stdout)
    known = told.pop("version")
    assert known == landlock.version()
    assert told["code"] == "machine code"
    assert told["open before"] == "none of its business", "what is open stays open"
    assert (told["library"], told["shared memory"], told["memory file"]) == ("1", "1", "2")
    assert told["core"] == [0, 0]
    if known:
        refused = ["write code", "change code", "secret", "list", "thread", "program", "etc"]
        refused.append("new shared memory")
        assert {name: told[name] for name in refused} == dict.fromkeys(refused, "EACCES")
    if known >= 4:
        assert (told["tcp"], told["listen"]) == ("EACCES", "EACCES")
    if known >= 6:
        assert told["signal"] == "EPERM"
    if os.getuid():
        assert told["look"] in ("EACCES", "EPERM")


def test_where_there_is_no_landlock_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "_CREATE", 1 << 20)  # a system call that no kernel has
    assert landlock.version() == 0
    assert landlock.restrict([(Path("/"), landlock.Access.READ_FILE)]) == 0
    assert Path("/etc/passwd").read_text()


def test_workers_run_under_it() -> None:
    with Runtime(workers=1) as runtime:
        health = runtime.health()
        processes = [health["builder"], *health["workers"]]
        assert [process["landlock"] for process in processes] == [landlock.version()] * 2
        for process in processes:
            status = Path(f"/proc/{process['pid']}/status").read_text()
            assert "NoNewPrivs:\t1" in status
