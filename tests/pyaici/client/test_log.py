"""The daemon's log: its lines, and the absence of users' data."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pytest

from aicirt.contract.errors import AiciError, ProtocolError, RuntimeFailure
from aicirt.contract.messages import StepInput
from lab.system.waiting import wait_until
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.toolchain import build_controller

from .conftest import VOCABULARY
from .test_secrets import ANSWER, LEAKY, PROMPT, forms, tokens

#: an argument of a controller, and words for modules, operations and messages that do not exist
ARGUMENT, WORDS = "my cat is called Qwrtz", "open sesame Vbnmk"


class Nonsense(NamedTuple):
    op: str
    words: str


def wait_for(daemon: Daemon, words: str, times: int = 1) -> None:
    wait_until(lambda: daemon.log().count(words) >= times)


def send_secrets(daemon: Daemon, leaky: Path, guest: Path) -> None:
    """Sends the secrets everywhere a client can send data, in valid and invalid requests."""
    with (
        Runtime(daemon.socket_path, owner="a lawyer") as one,
        Runtime(daemon.socket_path, owner="another") as other,
    ):
        for runtime in (one, other):
            runtime.register(VOCABULARY)
        module = one.upload(leaky).id
        seq = one.instantiate(module, prompt=tokens(PROMPT))
        one.begin_step([StepInput(seq)]).wait()
        step = one.begin_step([StepInput(seq, tokens(ANSWER))])
        step.wait_pre()
        step.wait()
        attempts = (
            lambda: one.instantiate(one.upload(guest).id, "init_refuse " + ARGUMENT),
            lambda: one.instantiate(one.upload(guest).id, "init_fail " + ARGUMENT),
            lambda: one.instantiate(WORDS, ARGUMENT),
            lambda: one.tag(module, WORDS),
            lambda: one.upload(WORDS.encode()),
            lambda: one._control.call(WORDS, words=WORDS),
            lambda: one._control.call(
                "instantiate", module=WORDS, arg=3, vocabulary=WORDS, capabilities=WORDS
            ),
            lambda: one._control.call(
                "prepare", module=module, arg=WORDS, vocabulary=1, capabilities=[WORDS]
            ),
        )
        for number, attempt in enumerate(attempts):
            with pytest.raises(AiciError):
                attempt()
                pytest.fail(f"attempt {number} was not refused")
        # an invalid message to a worker: the worker drops the client and says why
        seq = other.instantiate(module, prompt=tokens(PROMPT))
        (link,) = other._links.all
        link.send(Nonsense(WORDS, ANSWER.decode()))
        with pytest.raises(RuntimeFailure):
            while True:
                other.clone(seq)
                time.sleep(0.01)
        wait_for(daemon, "dropping client")
        # invalid frames to the supervisor
        for data in (msgpack.packb([WORDS]), msgpack.packb([1, WORDS]), b"\xc1" + WORDS.encode()):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(daemon.socket_path))
                raw.sendall(struct.pack("<I", len(data)) + data)
                assert raw.recv(10) == b""
        (worker,) = one.health()["workers"]
        os.kill(worker["pid"], 9)
        wait_for(daemon, "died")


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("leaky")
    (folder / "leaky.c").write_text(LEAKY)
    return build_controller(folder / "leaky.c", folder / "leaky.wasm").path


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_contains_no_data_of_users(form: str, leaky: Path, guest_wasm: Path, tmp_path: Path) -> None:
    options = ["--log-format", form, "--log-level", "debug"]
    with Daemon(workers=1, store=tmp_path, options=options) as daemon:
        send_secrets(daemon, leaky, guest_wasm)
        wait_for(daemon, "has disconnected", times=2)
        log = daemon.log()
    for secret in (PROMPT, ANSWER, ARGUMENT.encode(), WORDS.encode()):
        for written in (*forms(secret), str(list(secret)).strip("[]").encode()):
            assert written not in log.encode(errors="replace")
        for word in secret.decode().split():  # no single word either, except words that the log itself uses
            assert len(word) < 4 or word in ("called", "remember", "open") or word not in log, word
    for expected in ("listening on", "a lawyer", "dropping client", "died"):
        assert (expected in log) == (form == "json" or expected != "a lawyer"), expected
    if form == "json":
        check_lines(log)


def check_lines(log: str) -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.splitlines()]
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["level"] in ("debug", "info", "warning", "error") and line["logger"] and line["event"]
        assert line["level"] != "debug" or not line["logger"].startswith("aicirt")

    def about(event: str) -> list[dict[str, Any]]:
        return [line for line in lines if event in line["event"]]

    come, gone = about("has connected"), about("has disconnected")
    assert [line["owner"] for line in come] == ["a lawyer", "another"]
    assert {line["client"] for line in come} == {line["client"] for line in gone}
    assert {line["pid"] for line in come} == {os.getpid()}
    assert [len(line["module"]) for line in about("has uploaded")] == [64] * 3
    (dropped,) = about("dropping client")
    assert (dropped["code"], dropped["owner"], dropped["logger"]) == ("protocol", "another", "aicirt.worker")
    assert {line["worker"] for line in about("died")} == {0}
    codes = [line["code"] for line in about("got an error")]
    assert {"argument", "unknown_controller", "module", "protocol"} <= set(codes)
    assert {line["level"] for line in about("broke the protocol")} == {"warning"}


def test_failed_starts_and_shutdowns_are_logged_as_json(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure) as failed:
        Daemon(workers=1, store=Path("/dev/null/store"), options=["--log-format", "json"])
    line = json.loads(str(failed.value).splitlines()[-1])
    assert line["level"] == "error" and line["code"] == "runtime" and "/dev/null" in line["event"]
    daemon = Daemon(workers=1, store=tmp_path, options=["--log-format", "json", "--log-level", "info"])
    log = daemon.socket_path.with_name("aicirt.log").open()
    daemon.close()
    assert [json.loads(line)["event"] for line in log][-1] == "ended by SIGTERM"


def test_logged_exceptions_contain_no_messages() -> None:
    import io
    import logging

    from aicirt.system.logs import JsonLines, Lines

    stream = io.StringIO()
    logger = logging.Logger("aicirt.test")
    for formatter in (JsonLines(), Lines()):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    try:
        try:
            int(WORDS)
        except ValueError as error:
            raise ProtocolError(f"bad: {WORDS}") from error
    except ProtocolError:
        logger.exception("call %r failed", "tag")
    written = stream.getvalue()
    assert WORDS not in written and written.count("ProtocolError") == written.count("ValueError") == 2
    assert "test_log.py:" in written and json.loads(written.splitlines()[0])["event"] == "call 'tag' failed"
    foreign = logging.LogRecord("asyncio", 40, "", 0, "never retrieved\nfuture: %s", (WORDS,), None)
    assert WORDS not in JsonLines().format(foreign) + Lines().format(foreign)
