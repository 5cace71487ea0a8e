"""Commands with --server: the choice of server, socket or store, refused options, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyaici.cli.__main__ import main
from tests.pyaici.scripted_server import Answers, answering, refusal, stream

ROOT = Path(__file__).resolve().parents[3]
UNREACHABLE = "http://127.0.0.1:9"
MODULE: dict[str, Any] = {
    "id": "ab" * 32,
    "tags": ["named"],
    "owners": ["ada", "bob"],
    "created": 0.0,
    "size": 5,
    "abi_version": 1,
    "callbacks": ["init", "mid"],
}
LISTED = json.dumps({"data": [MODULE], "bundled": []}).encode()
HEADER = {"object": "initial-run", "prompt_tokens": 2}
USAGE = {"prompt_tokens": 2, "sampled_tokens": 1, "forced_tokens": 0, "backtracked_tokens": 0}
PIECE = {"text": "yes", "origin": "sampled", "tokens": [7]}
FORK = {"index": 0, "text": "yes", "prompt": "Well?", "prompt_ids": [1, 2], "pieces": [PIECE]}
STEP = {"object": "run", "forks": [{**FORK, "finish_reason": "eos"}], "usage": USAGE}
ENDED = {"index": 0, "parent": None, "text": "yes", "finish_reason": "eos", "error": None, "log": ""}
END = {
    "object": "run.end",
    "forks": [ENDED],
    "usage": USAGE,
    "variables": {},
    "timing": {"first_token_s": 0.5, "seconds": 1.5},
}
RUN = stream(HEADER, STEP, END, "[DONE]")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AICI_SERVER", "AICI_TOKEN", "AICI_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_options_take_precedence_over_variables_and_server_over_socket(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def output(*options: str) -> str:
        assert main(["tags", *options]) == 1
        return capsys.readouterr().err

    at_server, at_socket = "no answer from the server at", "no aicirt listens on"
    monkeypatch.setenv("AICI_SOCKET", "none.sock")
    assert f"{at_socket} none.sock" in output()
    assert f"{at_server} {UNREACHABLE}" in output("--server", UNREACHABLE)
    monkeypatch.setenv("AICI_SERVER", "http://127.0.0.1:7")
    assert f"{at_server} http://127.0.0.1:7" in output()
    assert f"{at_server} {UNREACHABLE}" in output("--server", UNREACHABLE)
    assert f"{at_socket} other.sock" in output("--socket", "other.sock")
    assert "there is no folder nowhere" in output("--store", "nowhere")
    monkeypatch.setenv("AICI_SERVER", "")
    assert f"{at_socket} none.sock" in output(), "an empty variable counts as unset"


@pytest.mark.parametrize(
    "command", [["list"], ["tags"], ["upload", "regex"], ["tag", "a", "b"], ["untag", "a"]]
)
@pytest.mark.parametrize("other", [["--socket", "x"], ["--store", "x"]])
def test_server_socket_and_store_exclude_each_other(
    command: list[str], other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--server", UNREACHABLE, *other])
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_token_needs_a_server_and_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AICI_TOKEN", "unused-here")
    assert main(["tags", "--store", "."]) == 0, "the variable is ignored here"
    for command in (["list"], ["run", "none", "--prompt", "x"]):
        assert main([*command, "--token", "mysecret"]) == 1
        output = capsys.readouterr()
        assert "--token needs a server" in output.err and "mysecret" not in output.err + output.out
    for token in ("mysecret", "mysecret\n"):
        assert main(["list", "--server", UNREACHABLE, "--token", token]) == 1
        output = capsys.readouterr()
        assert "mysecret" not in output.err + output.out


def test_tags_prints_the_tags_of_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with answering([(200, LISTED)] * 2) as (url, _):
        assert main(["tags", "--server", url]) == 0
        assert capsys.readouterr().out == f"named  {'ab' * 8}  ada, bob  unknown\n"
        assert main(["tags", "--server", url, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {"tag": "named", "controller": "ab" * 32, "owners": ["ada", "bob"], "created": None}


def test_remove_reports_whether_the_module_stays(capsys: pytest.CaptureFixture[str]) -> None:
    there = json.dumps(MODULE).encode()
    deleted = b'{"object": "deleted"}'
    answers: Answers = [(200, LISTED), (200, deleted), (200, there)]
    answers += [(200, LISTED), (200, deleted), (404, refusal("gone", "unknown_controller"))]
    with answering(answers) as (url, seen):
        assert main(["remove", "named", "--server", url]) == 0
        assert "stays: other owners have uploaded or tagged it" in capsys.readouterr().out
        assert main(["remove", "abababab", "--server", url]) == 0
        assert capsys.readouterr().out == f"{'ab' * 32}  removed\n"
    assert [request[:2] for request in seen[3:]] == [
        ("GET", "/v1/controllers"),
        ("DELETE", f"/v1/controllers/{'ab' * 32}"),
        ("GET", f"/v1/controllers/{'ab' * 32}"),
    ]


# -- run --------------------------------------------------------------------------------------------


def run(answers: Answers, *options: str) -> tuple[int, list[Any]]:
    with answering(answers) as (url, seen):
        status = main(["run", *options, "--server", url])
    assert not answers, "every answer must be requested"
    return status, [body for _, _, body in seen]


def test_run_prints_json_and_takes_the_prompt_from_any_place(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["Well?", "--arg", "a+"], ["--arg", "a+", "Well?"], ["--prompt", "Well?", "--arg", "a+"]):
        status, (body,) = run([(200, RUN)], "yesno", *words, "--json")
        assert status == 0 and body["messages"] == [{"role": "user", "content": "Well?"}]
        assert json.loads(capsys.readouterr().out) == {**END, "object": "run.result"}
    for wrong in (["Well?", "--prompt", "x"], ["--seed", "3", "Well?", "x"], ["Well?", "--arq", "a+"]):
        with pytest.raises(SystemExit):
            main(["run", "yesno", *wrong])
        assert "unrecognized arguments" in capsys.readouterr().err


def test_run_sends_the_options_and_prints_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--temperature", "0.5", "--top-p", "0.9", "--top-k", "7", "--seed", "3", "--max-tokens", "9")
    options += ("--min-p", "0.1", "--typical-p", "0.8", "--top-n-sigma", "2")
    status, (body,) = run([(200, RUN)], "yesno", "--arg", "a+", "--prompt", "Well?", "--n", "2", *options)
    assert status == 0
    assert body == {
        "controller": "yesno",
        "controller_arg": "a+",
        "messages": [{"role": "user", "content": "Well?"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "typical_p": 0.8,
        "top_n_sigma": 2.0,
        "seed": 3,
        "max_tokens": 9,
        "n": 2,
        "stream": True,
    }
    shown = capsys.readouterr().out
    assert "#0 (ended: eos)\nWell?yes\n" in shown
    assert "1 token sampled, 0 forced, 0 backtracked, 0 forks in 1 step and 1.50 s" in shown
    assert "prompt: 2 tokens; first token after 0.50 s" in shown


def test_model_without_a_chat_template_gets_the_plain_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    no_template = (400, refusal("the model x has no chat template", "no_chat_template"))
    status, (first, second) = run([no_template, (200, RUN)], "none", "--prompt", "Well?")
    assert status == 0 and "messages" in first and second["prompt"] == "Well?"
    status, (only,) = run([(200, RUN)], "none", "--prompt", "Well?", "--no-chat")
    assert status == 0 and only["prompt"] == "Well?" and "controller_arg" not in only
    status, _ = run([no_template], "none", "--prompt", "Well?", "--chat")
    assert status == 1 and "has no chat template" in capsys.readouterr().err


def test_failed_fork_gives_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    error = {"code": "trap", "message": "it fell"}
    failed = {**FORK, "finish_reason": "error", "error": error}
    end = {**END, "forks": [ENDED, {**ENDED, "index": 1, "error": error}]}
    status, _ = run(
        [(200, stream(HEADER, {**STEP, "forks": [failed]}, end, "[DONE]"))], "none", "--prompt", "x"
    )
    assert status == 1
    assert "error: it fell" in capsys.readouterr().out


def test_broken_stream_shows_the_received_text(capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = run([(200, stream(HEADER, STEP))], "none", "--prompt", "x")
    output = capsys.readouterr()
    assert status == 1 and "Well?yes" in output.out and "1 token sampled" in output.out
    assert "ended the stream before the run was finished" in output.err
    unfinished = stream(HEADER, STEP, {**END, "forks": []}, "[DONE]")
    assert run([(200, unfinished)], "none", "--prompt", "x")[0] == 1
    assert "before the run was finished" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "x"], "--model cannot be used with --server"),
        (["--device", "cpu", "--beams", "2"], "--device, --beams cannot be used with --server"),
        (["--socket", "x"], "--socket cannot be used with --server"),
        (["--temperature", "-1"], "temperature is -1"),
        (["--arg", "@/no/file"], "--arg: cannot read '/no/file'"),
    ],
)
def test_invalid_options_are_refused_without_a_request(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "yesno", "--prompt", "x", "--server", UNREACHABLE, *options]) == 1
    assert words in capsys.readouterr().err


def test_options_of_a_local_run_take_precedence_over_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AICI_SERVER", UNREACHABLE)
    assert main(["run", "none", "--prompt", "x"]) == 1
    assert f"no answer from the server at {UNREACHABLE}" in capsys.readouterr().err
    assert main(["run", "none", "--prompt", "x", "--model", "nowhere"]) == 1
    assert "there is no file or folder nowhere" in capsys.readouterr().err


def test_missing_files_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gone.wasm", "folder/regex"):
        assert main(["run", name, "--prompt", "x", "--server", UNREACHABLE]) == 1
        assert f"is called '{name}'" in capsys.readouterr().err


def without(*modules: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process without these packages."""
    program = (
        "import importlib.util, sys\n"
        f"missing = {modules}\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name in missing else find(name, *more)\n"
        "sys.modules.update(dict.fromkeys(missing))\n"
        "from pyaici.cli.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=False, env=env
    )


def test_client_needs_no_engine_and_names_missing_packages() -> None:
    heavy = ("torch", "transformers", "fastapi", "uvicorn", "pydantic", "sse_starlette")
    with answering([(200, RUN)]) as (url, _):
        done = without(*heavy, command=["run", "yesno", "--prompt", "Well?", "--server", url])
    assert done.returncode == 0, done.stderr
    assert "Well?yes" in done.stdout
    missing = without("httpx2", command=["tags", "--server", UNREACHABLE])
    assert missing.returncode == 1
    assert "scripts/setup.sh client (missing: httpx2)" in missing.stderr
    missing = without("rich", command=["run", "none", "--prompt", "x", "--server", UNREACHABLE])
    assert "scripts/setup.sh client (missing: rich)" in missing.stderr


@pytest.mark.parametrize("engine", ["llama", "hf", "vllm"])
def test_path_of_a_model_is_checked_before_packages(engine: str) -> None:
    heavy = ("torch", "transformers", "vllm", "xllamacpp", "gguf")
    done = without(*heavy, command=["run", "none", "--prompt", "x", "--engine", engine, "--model", "SmolLM2"])
    assert done.returncode == 1
    assert "there is no file" in done.stderr and "SmolLM2" in done.stderr
