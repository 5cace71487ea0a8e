"""`aici serve` as a program: options, settings, shutdown."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from aicirt.contract.errors import AiciError
from lab.system.forked import SERVER, run_forked
from lab.system.waiting import PATIENCE, wait_until
from pyaici.server import serve
from pyaici.server.settings import ServerSettings, read_settings
from tests.pyaici.server.serving import Serving, read_events


def _aici(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run_forked("pyaici.cli", *arguments, imports=SERVER, env={**os.environ, **env})


def test_help_has_every_setting_and_examples() -> None:
    shown = _aici("serve", "--help")
    assert shown.returncode == 0
    for name, field in ServerSettings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in shown.stdout
        assert field.description
    assert "examples:" in shown.stdout


def test_flags_override_the_environment_which_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "aici.toml"
    file.write_text('port = 1\nhost = "127.0.0.3"\nmax_streams = 2\ncors_origins = ["http://a"]\n')
    monkeypatch.setenv("AICI_SERVE_PORT", "2")
    monkeypatch.setenv("AICI_SERVE_MAX_STREAMS", "3")
    settings = read_settings({"port": "4"}, file)
    assert (settings.port, settings.max_streams, settings.host) == (4, 3, "127.0.0.3")
    assert settings.cors_origins == ["http://a"]
    assert read_settings({}).host == "127.0.0.1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--port", "70000"), "--port"),
        (("--port", "x"), "--port"),
        (("--engine", "mlx"), "--engine"),
        (("--max-streams", "0"), "--max-streams"),
        (("--config", "/nonexistent.toml"), "/nonexistent.toml"),
        (("--model", "/nonexistent"), "there is no file or folder /nonexistent"),
        (("--port", "0", "--device", "cuda"), "--device needs --engine hf; the engine is llama"),
        (
            ("--port", "0", "--engine", "hf", "--threads", "1"),
            "--threads needs --engine llama; the engine is",
        ),
        (("--prot", "1"), "unrecognized arguments: --prot 1; did you mean --port?"),
    ],
)
def test_invalid_options_are_named(arguments: tuple[str, ...], words: str) -> None:
    refused = _aici("serve", *arguments)
    assert refused.returncode in (1, 2)
    assert words in refused.stderr and "Traceback" not in refused.stderr


def test_unknown_setting_in_a_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "aici.toml"
    file.write_text("prot = 1\n")
    with pytest.raises(AiciError, match="no setting 'prot'"):
        serve.main(["--config", str(file)])
    file.write_text("port = \n")
    with pytest.raises(AiciError, match=r"aici\.toml"):
        serve.main(["--config", str(file)])


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        (
            "AICI_SERVE_MAX_STREAM",
            "3",
            "no setting AICI_SERVE_MAX_STREAM; did you mean AICI_SERVE_MAX_STREAMS",
        ),
        ("AICI_SERVE_MAX_STREAMS", "none", "^AICI_SERVE_MAX_STREAMS: "),
        (
            "AICI_SERVE_CORS_ORIGINS",
            "http://localhost:3000",
            "^AICI_SERVE_CORS_ORIGINS: write a list as JSON",
        ),
    ],
)
def test_invalid_environment_variables_are_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(AiciError, match=words):
        read_settings({})


def test_invalid_setting_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "aici.toml"
    file.write_text("max_streams = 0\n")
    with pytest.raises(AiciError, match=r"^--config .*aici\.toml: max_streams: "):
        read_settings({}, file)
    with pytest.raises(AiciError, match=r"^--max-streams: "):
        read_settings({"max_streams": 0}, file)


def test_port_in_use_is_reported_before_the_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = _aici("serve", "--port", str(port))
    assert refused.returncode == 1 and f"port {port} of 127.0.0.1 is in use" in refused.stderr
    assert "loading" not in refused.stderr and "Traceback" not in refused.stderr


def test_missing_file_of_users_is_an_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "users.json")
    refused = _aici("serve", "--users", missing)
    assert refused.returncode == 1 and f"aici users add NAME --file {missing}" in refused.stderr
    listed = _aici("users", "list", "--file", missing)
    assert listed.returncode == 1 and missing in listed.stderr


def test_users_are_added_listed_and_removed_by_command(tmp_path: Path) -> None:
    file = str(tmp_path / "users.json")
    added = _aici("users", "add", "ada", "--role", "upload", "--file", file)
    assert added.returncode == 0 and added.stdout.startswith("aici-")
    assert "ada" in _aici("users", "list", "--file", file).stdout
    assert _aici("users", "add", "ada", "--file", file).returncode == 1
    assert _aici("users", "remove", "ada", "--file", file).returncode == 0
    assert _aici("users", "list", "--file", file).stdout == ""


def test_sigterm_lets_running_requests_end(tmp_path: Path) -> None:
    with Serving(tmp_path / "log", "--drain-s", "60", "--log-level", "debug") as server:
        taken = threading.Event()
        read: list[Any] = []

        def reader() -> None:
            with server.client() as client:
                body = {"prompt": "Once upon a time", "max_tokens": 60}
                with client.stream("POST", "/v1/run", json=body) as answer:
                    for event in read_events(answer):
                        read.append(event)
                        taken.set()

        thread = threading.Thread(target=reader)
        thread.start()
        assert taken.wait(PATIENCE)
        assert server.stop(signal.SIGTERM) == 128 + signal.SIGTERM
        thread.join()
        assert read[-1]["object"] == "run.end" and read[-1]["forks"][0]["finish_reason"] in ("length", "eos")
        log = server.text()
        assert "Once upon a time" not in log, "third-party packages would log user content"
        assert " INFO uvicorn: " in log and "uvicorn.error" not in log


def test_requests_longer_than_the_drain_time_get_an_error(tmp_path: Path) -> None:
    long = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}
    found: dict[str, Any] = {}
    with Serving(tmp_path / "log", "--drain-s", "1", "--max-streams", "3") as server:

        def ask(path: str, body: dict[str, Any]) -> None:
            with server.client() as client:
                answer = client.post(path, json=body)
                found[f"{path} {body.get('stream')}"] = answer.status_code, answer.text

        requests = [
            ("/v1/run", long),
            ("/v1/completions", long),
            ("/v1/completions", {**long, "stream": True}),
            (
                "/api/v1/messages",
                {"model": "rwkv-world", "messages": [{"role": "user", "content": "x"}]},
            ),  # waits
        ]
        threads = [threading.Thread(target=ask, args=pair) for pair in requests]
        for thread in threads[:3]:
            thread.start()
        wait_until(
            lambda: sum(n for name, n in server.metrics().items() if "aici_live_requests{" in name) >= 3
        )
        threads[3].start()
        wait_until(lambda: server.metrics()["aici_waiting_requests"] > 0)
        assert server.stop(signal.SIGTERM) == 128 + signal.SIGTERM
        for thread in threads:
            thread.join()
        log = server.text()
    status, text = found["/v1/run None"]
    assert status == 200 and '"finish_reason":"cancelled"' in text and text.rstrip().endswith("data: [DONE]")
    status, text = found["/v1/completions None"]
    assert status == 503 and '"overloaded"' in text
    status, text = found["/v1/completions True"]
    assert status == 200 and '"overloaded"' in text and text.rstrip().endswith("data: [DONE]")
    assert found["/api/v1/messages None"][0] == 503
    assert "Traceback" not in log and "timeout graceful shutdown exceeded" not in log


def test_ctrl_c_stops_the_server_soon_without_drain_time(tmp_path: Path) -> None:
    with Serving(tmp_path / "log", "--drain-s", "0") as server:
        with server.client() as client:
            with client.stream(
                "POST", "/v1/run", json={"prompt": "Once", "max_tokens": 4000, "ignore_eos": True}
            ) as answer:
                events = read_events(answer)
                next(events)
                server.stop(signal.SIGINT)
                assert len(list(events)) < 4000, "the server did not wait for the end of the answer"
        assert "Traceback" not in server.text()


def test_second_ctrl_c_ends_streams_with_an_error_event(tmp_path: Path) -> None:
    """Clients that never read are disconnected."""
    long = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    body = json.dumps(long).encode()
    head = "POST /v1/run HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with Serving(tmp_path / "log", "--drain-s", "600") as server, server.client() as client:
        with (
            socket.create_connection(("127.0.0.1", server.port)) as silent,
            client.stream("POST", "/v1/completions", json=long) as answer,
        ):
            silent.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            assert silent.recv(1)
            events = answer.iter_lines()
            next(line for line in events if line.startswith("data: "))
            server.process.send_signal(signal.SIGINT)
            server.wait_for("Waiting for connections to close")
            next(line for line in events if line.startswith("data: "))
            assert server.stop(signal.SIGINT) == 128 + signal.SIGINT
            assert [line for line in events if line][-2].startswith('data: {"error":{"message":"the server')
        log = server.text()
        assert "Application shutdown complete" in log
        assert "Traceback" not in log and "ERROR" not in log and "Exception" not in log


def test_other_people_of_the_machine_are_counted() -> None:
    """Accounts of people reach a server that listens on the machine's own address only."""

    def account(name: str, number: int, shell: str) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "x", number, number, "", f"/home/{name}", shell))

    system = [account("root", 0, "/bin/bash"), account("nobody", 65_534, "/usr/sbin/nologin")]
    people = [account("ada", 1000, "/bin/bash"), account("bob", 1001, "/bin/zsh")]
    assert serve.other_people([*system, account("git", 1002, "/usr/sbin/nologin")]) == 0
    own = account("own", os.getuid(), "/bin/bash")
    assert serve.other_people([*system, own, *people]) == 2
