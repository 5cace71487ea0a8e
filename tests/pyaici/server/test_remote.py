"""The command line with a real server: uploads, tags, runs, errors, and interruption."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aicirt.system.terminal import printable
from lab.system.waiting import PATIENCE
from pyaici.bundled import bundled_controllers, find_controller
from pyaici.cli.__main__ import main
from pyaici.engines.rest_events import RestEvents
from pyaici.engines.terminal import Kind, Transcripts
from pyaici.rest import RestClient
from pyaici.server.http.errors import ApiError
from pyaici.server.models import ServedModel
from pyaici.toolchain import build_controller
from tests.pyaici.server.serving import Serving

ROOT = Path(__file__).resolve().parents[3]
LIVE = 'aici_live_requests{controlled="false"}'
#: a user and a command's arguments -> exit status, stdout, stderr
Aici = Callable[..., tuple[int, str, str]]

REFUSING = r"""
#include <aici.h>
#include <stdio.h>
AICI_CONTROLLER
static aici_step_arg arg = {sizeof arg};
static aici_mid_result mid = {.size = sizeof mid, .verb = AICI_STOP};
AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }
AICI_EXPORT(aici_init) int aici_init(uint32_t len) {
    printf("I have read %u bytes\n", len);
    aici_fail("and I do not like them", 22);
}
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) { return &mid; }
"""


@pytest.fixture(scope="module")
def server(exact_server: Serving) -> Serving:
    """Tests here compare runs, which must be equal."""
    return exact_server


@pytest.fixture
def aici(
    server: Serving,
    tokens: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Aici:
    monkeypatch.setenv("AICI_SERVER", server.url)
    for name in ("AICI_SOCKET", "AICI_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def run(user: str, *command: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            if user:
                patch.setenv("AICI_TOKEN", tokens[user])
            status = main(list(command))
        captured = capsys.readouterr()
        assert not any(
            token in captured.out + captured.err for name, token in tokens.items() if name != "file"
        )
        return status, captured.out, captured.err

    return run


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A controller that no other test uses."""
    section = b"own" + hashlib.sha256(str(tmp_path).encode()).digest()[:28]
    path = tmp_path / "mine.wasm"
    path.write_bytes(find_controller("yesno").read_bytes() + b"\0\x20\x03" + section)
    return path


def identity(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_controller_from_upload_to_removal(aici: Aici, mine: Path) -> None:
    module = identity(mine)
    assert aici("ada", "upload", str(mine), "--tag", "hers")[:2] == (0, f"{module}  hers\n")
    status, listed, _ = aici("bob", "list")
    assert status == 0 and re.search(rf"^  {module[:16]} .* hers$", listed, re.MULTILINE)
    for name in bundled_controllers():
        assert re.search(rf"^  {name} ", listed, re.MULTILINE)
    tagged = aici("bob", "tags")[1]
    assert re.search(rf"^hers +{module[:16]}  ada +just now$", tagged, re.MULTILINE)
    assert aici("ada", "tag", module[:12], "also-hers")[:2] == (0, f"{module}  also-hers, hers\n")
    assert aici("bob", "upload", str(mine))[0] == 0
    status, _, err = aici("ada", "remove", "hers")
    assert status == 1 and "still has the tags" in err
    assert aici("ada", "untag", "hers")[0] == aici("ada", "untag", "also-hers")[0] == 0
    assert aici("ada", "remove", module)[1] == f"{module}  stays: other owners have uploaded or tagged it\n"
    assert aici("bob", "remove", module)[1] == f"{module}  removed\n"
    assert aici("bob", "remove", module)[0] == 1


def test_commands_need_the_right_role(aici: Aici, mine: Path) -> None:
    for user, says in (
        ("eve", "eve has the role run; this request needs the role upload"),
        ("", "a token with the role upload"),
    ):
        for command in (["upload", str(mine)], ["untag", "guest"], ["remove", "guest"]):
            status, _, err = aici(user, *command)
            assert status == 1 and says in err, command
        assert aici(user, "tags")[0] == aici(user, "list", "--all")[0] == 0
    assert aici("ada", "upload", str(mine), "--tag", "adas")[0] == 0
    status, _, err = aici("bob", "untag", "adas", "--force")
    assert status == 1 and "belongs to 'ada'" in err
    status, _, err = aici("bob", "upload", str(mine), "--tag", "adas")
    assert status == 1 and f"has been uploaded as {identity(mine)}, but not tagged: " in err
    assert aici("root", "remove", "adas", "--force")[1] == f"{identity(mine)}  removed\n"
    assert "adas" not in aici("root", "tags")[1]


def test_wrong_token_is_refused(aici: Aici, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICI_TOKEN", "aici-nobodys")
    for command in (["tags"], ["run", "none", "--prompt", "x", "--max-tokens", "1"]):
        status, out, err = aici("", *command)
        assert status == 1 and "the token is unknown" in err
        assert "nobodys" not in out + err
        assert aici("", *command, "--token", tokens["eve"])[0] == 0, "the option overrides the variable"


def test_tagged_bundled_controllers_are_listed(aici: Aici, server: Serving) -> None:
    server.run(controller="yesno", prompt="Is it?")  # now the server has it for all users
    try:
        assert aici("ada", "upload", "yesno", "--tag", "ask")[0] == 0
        assert aici("bob", "tags")[1].count("ask ") == 1
    finally:
        aici("ada", "untag", "ask")
        assert aici("ada", "remove", identity(find_controller("yesno")))[0] == 0


# -- runs -------------------------------------------------------------------------------------------


def test_runs_by_name_file_and_id_are_equal(aici: Aici, mine: Path, server: Serving) -> None:
    question = ("--prompt", "Is the sky blue?")
    answer = server.run(controller="yesno", messages=[{"role": "user", "content": question[1]}])
    status, by_name, _ = aici("eve", "run", "yesno", *question)
    assert status == 0
    assert f"assistant\n{answer['forks'][0]['text']}\n" in by_name and "#0 (ended: stop)" in by_name
    assert f"prompt: {answer['prompt_tokens']} tokens" in by_name
    status, out, err = aici("eve", "run", str(mine), *question)
    assert status == 1 and out == ""
    assert "must be uploaded first: eve has the role run" in err
    status, by_file, _ = aici("ada", "run", str(mine), *question)
    assert status == 0
    assert without_times(by_file) == without_times(by_name)
    assert without_times(aici("eve", "run", identity(mine), *question)[1]) == without_times(by_name)
    aici("ada", "remove", identity(mine))


def without_times(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if not re.search(r"\d s\b", line)]


def test_forks_are_shown_with_their_texts_and_logs(aici: Aici, server: Serving) -> None:
    body: dict[str, Any] = {"controller": "showcase", "prompt": "Hello", "max_tokens": 60, "seed": 5}
    answer = server.run(**body)
    status, shown, _ = aici(
        "", "run", "showcase", "--prompt", "Hello", "--no-chat", "--max-tokens", "60", "--seed", "5"
    )
    assert status == 0
    usage = answer["usage"]
    assert f"{usage['sampled_tokens']} tokens sampled, {usage['forced_tokens']} forced, " in shown
    assert f"{usage['backtracked_tokens']} backtracked, {len(answer['forks']) - 1} forks in" in shown
    for fork in answer["forks"]:
        parent = "" if fork["parent"] is None else f", forked from #{fork['parent']}"
        assert f"#{fork['index']}{parent} (ended: {fork['finish_reason']})" in shown
        last = fork["log"].splitlines()[-1]
        assert re.sub(r"sequence \d+", "sequence N", last) in re.sub(r"sequence \d+", "sequence N", shown)
    # the transcripts of the same events
    transcripts = Transcripts()
    events = RestEvents()
    with RestClient(server.url) as client:
        for step in client.run(**body):
            for event in events.convert_item(step):
                transcripts.apply_event(event)
    assert events.end is not None
    assert [fork["text"] for fork in events.end["forks"]] == [fork["text"] for fork in answer["forks"]]
    for fork in events.end["forks"]:
        pieces = transcripts.by_seq[fork["index"]].pieces
        text = "".join(p.text for p in pieces if p.kind not in (Kind.PROMPT, Kind.REMOVED))
        assert text == fork["text"]
        assert transcripts.by_seq[fork["index"]].log == fork["log"]
    assert any(p.kind is Kind.REMOVED for p in transcripts.by_seq[0].pieces)


def test_several_sequences_of_one_prompt(aici: Aici) -> None:
    more = ("--prompt", "My favourite animal is", "--no-chat", "--max-tokens", "4", "--temperature", "1")
    status, shown, _ = aici("", "run", "none", *more, "--n", "3", "--seed", "1")
    assert status == 0
    assert [f"#{index}" in shown for index in range(4)] == [True, True, True, False]
    status, _, err = aici("", "run", "none", *more, "--n", "33")
    assert status == 1 and "less than or equal to 32" in err


def test_text_with_unicode_line_separators(aici: Aici) -> None:
    text = "a\u2028b\x85c\u2029"
    status, shown, _ = aici("", "run", "choice", "--arg", json.dumps([text]), "--prompt", "x")
    assert status == 0 and printable(text) in shown.replace("«", "").replace("»", "")


def test_failing_controller_ends_with_status_1(aici: Aici) -> None:
    status, shown, err = aici("", "run", "guest", "--arg", "mid_trap", "--prompt", "x", "--max-tokens", "5")
    assert status == 1 and err == ""
    assert "#0 (ended: error)" in shown and "error: " in shown


def test_errors_of_the_server_are_shown(aici: Aici, tmp_path: Path) -> None:
    def refused(*command: str, user: str = "") -> str:
        status, out, err = aici(user, "run", *command, "--prompt", "x")
        assert status == 1 and out == "", out
        return err

    assert "no controller is called 'rgex'" in refused("rgex")
    assert "column 1" in refused("regex", "--arg", "(a")
    assert "regex needs one as its argument" in refused("regex")
    assert "; give one with --arg TEXT or --arg @FILE" in refused("regex")
    assert "less than or equal to 2" in refused("none", "--temperature", "3")
    assert "4096" in refused("none", "--max-tokens", "5000")
    (tmp_path / "refusing.c").write_text(REFUSING)
    refusing = build_controller(tmp_path / "refusing.c", tmp_path / "refusing.wasm").path
    err = refused(str(refusing), "--arg", "four", user="ada")
    assert err == "  | I have read 4 bytes\naici: error: and I do not like them\n"
    (tmp_path / "text.wasm").write_text("text")
    assert "not WebAssembly" in refused(str(tmp_path / "text.wasm"), user="ada")


def test_ctrl_c_cancels_the_run_on_the_server(server: Serving) -> None:
    """The command runs on a terminal, which shows the growing text."""
    command = ["run", "none", "--prompt", "Once upon a time", "--no-chat", "--max-tokens", "4000"]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pyaici.cli", *command, "--server", server.url],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"},
        stdout=slave,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(slave)
    shown = b""
    while shown.count(b"Once upon a time") < 3:  # frames
        shown += os.read(master, 65536)
    assert server.metrics()[LIVE] == 1.0
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the other end is closed
        while more := os.read(master, 65536):
            shown += more
    os.close(master)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and err == "aici: interrupted\n"
    assert b"(ended: cancelled)" in shown and b"tokens sampled" in shown
    deadline = time.monotonic() + PATIENCE
    while server.metrics()[LIVE] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.metrics()[LIVE] == 0.0


def test_model_without_a_chat_template_has_an_error_code() -> None:
    tokenizer = SimpleNamespace(chat_template=None)
    model = ServedModel("plain", cast("Any", None), tokenizer, cast("Any", None), 10, 100)
    with pytest.raises(ApiError, match="has no chat template") as caught:
        model.encode_chat([{"role": "user", "content": "x"}])
    assert caught.value.code == "no_chat_template"
