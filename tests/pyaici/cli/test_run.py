"""`aici run` with a tiny model: names of uploads, and options of engines."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.runners.compiled import share
from pyaici.cli.__main__ import main
from pyaici.client.control import Daemon
from pyaici.toolchain import build_controller
from tests.pyaici.cli.test_remote import END, ENDED, USAGE
from tests.pyaici.engines.batching.support import make_model
from tests.pyaici.engines.llama.tiny_gguf import write_gguf

GUEST = Path(__file__).resolve().parents[2] / "guests" / "guest.c"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = write_gguf(make_model(), tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    return ["--model", str(path), "--max-tokens", "4"]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_controller(GUEST, tmp_path_factory.mktemp("guest") / "guest.wasm").path


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(workers=1, store=share(tmp_path_factory.mktemp("daemon"))) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without a daemon."""
    return share(tmp_path_factory.mktemp("store"))


# a run with AICI_SOCKET also proves what --socket does, and one with --store what AICI_STORE does
@pytest.fixture(
    params=[
        pytest.param("daemon", marks=pytest.mark.thorough),
        *("AICI_SOCKET", "store"),
        pytest.param("default store", marks=pytest.mark.thorough),
    ]
)
def place(
    request: pytest.FixtureRequest, daemon: Daemon, store: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The options that name a place of uploads: a daemon or a store."""
    monkeypatch.delenv("AICI_SOCKET", raising=False)
    if request.param == "daemon":
        return ["--socket", str(daemon.socket_path)]
    if request.param == "AICI_SOCKET":
        monkeypatch.setenv("AICI_SOCKET", str(daemon.socket_path))
    elif request.param == "store":
        return ["--store", str(store)]
    else:
        monkeypatch.setenv("AICI_STORE", str(store))
    return []


@pytest.fixture
def tag(request: pytest.FixtureRequest) -> str:
    """A tag that no other test has left in the place."""
    return f"test-{hashlib.sha256(request.node.name.encode()).hexdigest()[:16]}"


def test_run_finds_the_tag_and_the_id_of_an_upload(
    place: list[str],
    tag: str,
    guest: Path,
    model: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "--store" in place:  # it has precedence
        monkeypatch.setenv("AICI_SOCKET", "/nowhere/aici.sock")
    assert main(["upload", str(guest), "--tag", tag, *place]) == 0
    module = capsys.readouterr().out.split()[0]
    for name in (tag, module, module[:16]):
        assert main(["run", name, "--arg", "splice 1", "--prompt", "Hi", *place, *model]) == 0
        assert "1 token sampled" in capsys.readouterr().out
    assert main(["run", "yesno", "--prompt", "Hi", *place, *model]) == 0


def test_run_passes_the_argument_of_an_uploaded_script(
    place: list[str], tag: str, model: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "greet.py"
    script.write_text("from aici import *\nasync def main():\n    await force(f'<{arg[\"x\"]}>')\n")
    assert main(["upload", str(script), "--tag", tag, *place]) == 0
    assert main(["run", tag, "--arg", '{"x": 7}', "--prompt", "Hi", *place, *model]) == 0
    assert "<7>" in capsys.readouterr().out


def test_result_as_json_has_the_fields_of_the_server(
    model: list[str], daemon: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of forks, and of a run that fails."""
    place = ["--socket", str(daemon.socket_path), *model]
    assert main(["run", "showcase", "Hi", *place, "--json", "--max-tokens", "60"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {*END, "forks"} and result["object"] == "run.result"
    assert all(set(fork) == set(ENDED) for fork in result["forks"])
    assert [fork["parent"] for fork in result["forks"]][:2] == [None, 0]
    assert set(result["usage"]) == {*USAGE, "completion_tokens"} and result["usage"]["sampled_tokens"] > 0
    script = tmp_path / "fails.py"
    script.write_text("from aici import *\nasync def main():\n    fail('no')\n")
    assert main(["run", str(script), "Hi", *place, "--json"]) == 1
    (fork,) = json.loads(capsys.readouterr().out)["forks"]
    assert fork["error"]["code"] == "failed" and "no" in fork["error"]["message"]


def test_list_as_json_has_all_that_can_run(place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *place, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"regex", "json_schema"} <= {known["name"] for known in listed["bundled"]}
    assert [language["controller"] for language in listed["scripts"]] == ["pyctrl", "jsctrl"]
    assert "c.y" in listed["grammars"]
    assert all(module["tags"] for module in listed["uploaded"])


def test_a_name_on_the_hub_is_downloaded_after_all_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cache without the model, and no network: the message says what was tried."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert main(["run", "none", "Hi", "--model", "owner/name"]) == 1
    error = capsys.readouterr().err
    assert "owner/name is not a folder, and cannot be downloaded from the Hugging Face Hub" in error


def test_run_of_an_unknown_name_suggests_others(
    model: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "rejex", "--prompt", "Hi", *model]) == 1
    error = capsys.readouterr().err
    assert "no file, no upload and no bundled controller is called 'rejex': did you mean regex?" in error


def test_lines_of_the_input_are_messages(tmp_path: Path, model: list[str], daemon: Daemon) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from aici import *\nasync def main():\n"
        "    while (line := await receive()) is not None:\n        print(repr(line))\n"
    )
    socket = ["--socket", str(daemon.socket_path)]
    command = ["run", str(script), "--prompt", "x", "--messages", *model, *socket]
    lines = "one\ntwö\r\n\nlast".encode()
    done = subprocess.run(
        [sys.executable, "-m", "pyaici.cli", *command], input=lines, capture_output=True, check=True
    )
    for word in ("'one'", "'tw\\xf6'", "''", "'last'"):
        assert word in done.stdout.decode()


def test_help_groups_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    found = re.findall(r"^([a-z][a-z ]*):$|^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    title, groups = "", dict[str, list[str]]()
    for heading, option in found:
        title = heading or title
        if option:
            groups.setdefault(title, []).append(option)
    assert groups == {
        "request": ["--arg", "--prompt", "--chat", "--calls", "--messages", "--json", "--record"],
        "model": [
            *("--model", "--engine", "--threads", "--llama-library", "--device", "--trust-remote-code"),
            "--second",
        ],
        "daemon or server": ["--socket", "--store", "--server", "--token"],
        "sampling": [
            *("--beams", "--n", "--temperature", "--top-p", "--top-k", "--min-p", "--typical-p"),
            *("--top-n-sigma", "--max-tokens", "--seed"),
        ],
    }


@pytest.mark.parametrize("command", ["upload", "tag"])
def test_names_of_bundled_controllers_cannot_be_tags(
    command: str, place: list[str], tag: str, guest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upload", str(guest), "--tag", tag, *place]) == 0
    named = ["upload", str(guest), "--tag", "regex"] if command == "upload" else ["tag", tag, "regex"]
    assert main([*named, *place]) == 1
    assert "'regex' cannot be a tag: it is the name of a bundled controller" in capsys.readouterr().err
    assert main(["tags", *place]) == 0
    assert "regex" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--record", "r.json"], "--record needs a file or a bundled controller"),
        (["--engine", "hf", "--threads", "2"], "--threads needs --engine llama; the engine is hf"),
        (["--trust-remote-code"], "--trust-remote-code needs --engine hf or vllm; the engine is llama"),
        (["--engine", "vllm", "--beams", "2"], "--beams needs --engine llama or hf; the engine is vllm"),
        (["--engine", "vllm", "--second", "a=b"], "--second needs --engine llama or hf; the engine is vllm"),
        (["--second", "b.gguf"], "--second takes NAME=MODEL, for example amateur=small.gguf, not 'b.gguf'"),
        (["--second", "a=b", "--second", "a=c"], "--second has the name 'a' twice"),
        (["--second", "a=none.gguf"], "there is no file none.gguf"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "mine", "--prompt", "Hi", *options]) == 1
    assert words in capsys.readouterr().err
