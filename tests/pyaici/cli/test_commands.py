"""`aici new`, `build`, `check` and `list`, as a user calls them."""

from __future__ import annotations

import compileall
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aicirt.modules.store import ModuleStore
from lab.system.forked import run_forked
from pyaici.bundled import bundled_controllers, describe_bundled
from pyaici.cli import new
from pyaici.cli.__main__ import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs commands outside the repository and without a daemon."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AICI_SOCKET", raising=False)


def aici(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked("pyaici.cli", *arguments)


def test_new_writes_the_name_into_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "deep/words-2"]) == 0
    folder = Path("deep/words-2")
    for name in ("main.cpp", "README.md"):
        assert "words-2" in (folder / name).read_text()
        assert "NAME" not in (folder / name).read_text()
    include = next(f for f in (folder / "compile_flags.txt").read_text().split("\n") if f.startswith("-I"))
    assert Path(include[2:], "aici.h").is_file()


def test_new_does_not_overwrite_files(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/notes").write_text("keep")
    assert main(["new", "mine"]) == 1
    assert "mine exists already" in capsys.readouterr().err
    assert [p.name for p in Path("mine").iterdir()] == ["notes"]
    Path("file").touch()
    assert main(["new", "file"]) == 1
    for bad in ("", "9lives", "a b", "..", "-x/"):
        assert main(["new", "--", bad]) == 1
        assert "is not a valid name" in capsys.readouterr().err


def test_new_leaves_compiled_templates_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip compiles the scripts of an installed package, including those among the templates."""
    shutil.copytree(new.TEMPLATES, tmp_path / "templates")
    compileall.compile_dir(tmp_path / "templates", quiet=1)
    assert list((tmp_path / "templates").rglob("*.pyc"))
    monkeypatch.setattr(new, "TEMPLATES", tmp_path / "templates")
    assert main(["new", "--python", "story"]) == 0
    assert {path.name for path in Path("story").rglob("*")} == {"main.py", "tests.toml", "README.md"}


@pytest.mark.parametrize("name", ["mine", "deep/er/mine"])
def test_failed_new_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write, left = Path.write_text, 1

    def fill(path: Path, text: str) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", fill)
    assert main(["new", name]) == 1
    assert f"{name} cannot be created: No space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    left = 100
    assert main(["new", name]) == 0
    Path("empty").mkdir()
    assert main(["new", "empty"]) == 0
    assert Path("empty/main.cpp").is_file()


def test_build_shows_compiler_errors(capsys: pytest.CaptureFixture[str]) -> None:
    main(["new", "broken"])
    Path("broken/main.cpp").write_text("int x = undefined_thing;\n")
    assert main(["build", "broken"]) == 1
    errors = capsys.readouterr().err
    assert "main.cpp:1:9: error:" in errors
    assert "undefined_thing" in errors
    assert not Path("broken.wasm").exists()


def test_build_of_the_current_folder_and_with_an_output_path(monkeypatch: pytest.MonkeyPatch) -> None:
    main(["new", "here", "--lang", "zig"])
    monkeypatch.chdir("here")
    assert main(["build"]) == 0
    assert Path("here.wasm").is_file()
    assert main(["build", ".", "-o", "out/other.wasm"]) == 0
    assert Path("out/other.wasm").read_bytes() == Path("here.wasm").read_bytes()


def test_build_of_one_file_and_of_a_folder_with_a_dot() -> None:
    main(["new", "plain", "--lang", "zig"])
    assert main(["build", "plain/main.zig"]) == 0
    assert Path("main.wasm").is_file()
    Path("plain").rename("version.2")
    assert main(["build", "version.2"]) == 0
    assert Path("version.2.wasm").is_file()


def test_build_reports_a_module_that_the_runtime_would_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    Path("half").mkdir()
    Path("half/main.c").write_text('#include "aici.h"\nAICI_CONTROLLER\n')
    assert main(["build", "half"]) == 1
    output = capsys.readouterr().out
    assert "half.wasm: refused" in output
    assert "aici_mid_process" in output


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"text", "not WebAssembly"),
        (b"\0asm", "truncated"),
        (b"\0asm\x01\0\0\0", "aici_abi_v1"),
        # a body that pops from an empty stack: only the compiler sees it
        (None, "type mismatch"),
    ],
)
def test_check_gives_the_reason_for_refusal(
    content: bytes | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is None:
        main(["new", "good", "--lang", "zig"])
        main(["build", "good"])
        content = invalid_code(Path("good.wasm").read_bytes())
        capsys.readouterr()
    Path("bad.wasm").write_bytes(content)
    assert main(["check", "bad.wasm"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("bad.wasm: refused")
    assert reason in output


def invalid_code(wasm: bytes) -> bytes:
    """Returns the module with its last function replaced by a `drop` on an empty stack."""
    from aicirt.wasm.module.reader import inspect

    start, end = inspect(wasm).bodies[-1]
    body = b"\0\x1a" + b"\x01" * (end - start - 3) + b"\x0b"  # no locals, drop, nop..., end
    return wasm[:start] + body + wasm[end:]


def test_check_does_not_read_a_huge_file(capsys: pytest.CaptureFixture[str]) -> None:
    with open("huge.wasm", "wb") as file:
        file.truncate(1 << 40)
    assert main(["check", "huge.wasm"]) == 1
    assert "the file has 1099511627776 bytes, more than the limit of 16777216" in capsys.readouterr().out
    assert main(["check", "/dev/zero"]) == 1
    assert "more than the limit" in capsys.readouterr().out


def test_check_of_a_folder_or_missing_file_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    assert main(["check", "mine"]) == 1
    output = capsys.readouterr().err
    assert output.startswith("aici: error: the folder mine has no script main.py or main.js, and no module")
    assert main(["check", "gone.wasm"]) == 1
    assert "no bundled controller is called 'gone.wasm'" in capsys.readouterr().err
    Path("loop.wasm").symlink_to("loop.wasm")
    assert main(["check", "loop.wasm"]) == 1


def test_check_prints_the_reasons_first(capsys: pytest.CaptureFixture[str]) -> None:
    Path("half").mkdir()
    Path("half/main.c").write_text('#include "aici.h"\nAICI_CONTROLLER\n')
    main(["build", "half"])
    capsys.readouterr()
    assert main(["check", "half.wasm"]) == 1
    lines = capsys.readouterr().out.splitlines()
    words = [line.split()[0] for line in lines]
    assert words[:3] == ["half.wasm:", "refused:", "refused:"]
    assert words[3:] == ["memory", "exports", "imports", "steps", "limits", "CPU"]


def test_list_shows_bundled_and_uploaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ModuleStore(tmp_path / "store")
    assert main(["list", "--store", str(tmp_path / "store")]) == 0
    assert "uploaded: nothing" in capsys.readouterr().out
    main(["new", "mine", "--lang", "zig"])
    main(["build", "mine"])
    info = store.add(Path("mine.wasm").read_bytes())
    store.tag("mine-latest", info.id)
    capsys.readouterr()
    assert main(["list", "--store", str(tmp_path / "store")]) == 0
    listed = capsys.readouterr().out
    assert re.search(rf"^  {info.id[:16]} .* mine-latest$", listed, re.MULTILINE)
    assert "without a tag" not in listed
    for name in bundled_controllers():
        assert re.search(rf"^  {name} +\d", listed, re.MULTILINE)


def test_list_shows_examples_in_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--store", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert '"\'"' not in listed
    for known in describe_bundled():
        if known.example is None:
            continue
        (line,) = (one for one in listed.splitlines() if f"  aici run {known.name} " in one)
        command = line.replace("aici run", "printf %s", 1).replace(f"{known.name} --arg", "", 1)
        shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        assert shown.stdout == f"{known.example}--prompt..."


def test_list_counts_modules_without_a_tag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ModuleStore(tmp_path / "store")
    main(["new", "mine", "--lang", "zig"])
    main(["build", "mine"])
    info = store.add(Path("mine.wasm").read_bytes())
    capsys.readouterr()
    assert main(["list", "--store", str(tmp_path / "store")]) == 0
    listed = capsys.readouterr().out
    assert "  1 without a tag; --all lists them" in listed and info.id[:16] not in listed
    assert main(["list", "--all", "--store", str(tmp_path / "store")]) == 0
    assert re.search(rf"^  {info.id[:16]} +\d+\.\d kB$", capsys.readouterr().out, re.MULTILINE)


def test_list_does_not_create_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--store", "nowhere"]) == 1
    assert capsys.readouterr().err == "aici: error: there is no folder nowhere\n"
    assert not Path("nowhere").exists()
    Path("file").touch()
    assert main(["list", "--store", "file"]) == 1
    assert "there is no folder file" in capsys.readouterr().err


def test_help_of_every_command_has_examples() -> None:
    top = aici("--help")
    assert top.returncode == 0
    assert "aici new my_ctrl" in top.stdout
    commands = re.findall(r"^    (\w+) ", top.stdout, re.MULTILINE)
    assert commands == [
        *(
            "new",
            "build",
            "check",
            "run",
            "test",
            "eval",
            "serve",
            "runtime",
            "users",
            "grammar",
            "list",
            "upload",
            "tags",
            "tag",
            "untag",
            "remove",
            "push",
            "pull",
            "top",
            "doctor",
        )
    ]
    for command in ("list", "upload", "tags", "tag", "untag", "remove"):
        assert "module" not in aici(command, "--help").stdout.lower(), "their word is controller"
    assert "aici build once.cpp" in aici("build", "--help").stdout
    for command in commands:
        assert f"examples:\n  aici {command}" in aici(command, "--help").stdout, command


def test_interrupt_during_the_imports_leaves_no_traceback() -> None:
    program = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "pyaici.cli.build":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
from pyaici.cli import script
script()
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_help_and_errors_of_run_need_no_engine() -> None:
    """torch takes seconds to import, and is not installed with the package alone."""
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from pyaici.cli.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )

    def without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *arguments]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    assert "--prompt TEXT" in without_torch("run", "--help").stdout
    assert (
        "no bundled controller is called 'nonsense'"
        in without_torch("run", "nonsense", "--prompt", "x").stderr
    )
    missing = without_torch("run", "none", "--prompt", "x", "--engine", "hf")
    assert missing.returncode == 1
    assert "scripts/setup.sh hf" in missing.stderr


def test_wrong_arguments_are_explained() -> None:
    assert "invalid choice: 'bild'" in aici("bild").stderr
    for arguments, line in [
        (("list", "--quick"), "aici list: error: unrecognized arguments: --quick"),
        (
            ("run", "yesno", "--promt", "Is it?"),
            "aici run: error: unrecognized arguments: --promt Is it?; did you mean --prompt?",
        ),
        (
            ("run", "yesno", "Is it?", "Or not?"),
            "aici run: error: unrecognized arguments: Or not? Is it?; did you mean --prompt?",
        ),
        (("build", "one", "two"), "aici build: error: unrecognized arguments: two"),
        (
            ("serve", "--prot", "1"),
            "aici serve: error: unrecognized arguments: --prot 1; did you mean --port?",
        ),
    ]:
        wrong = aici(*arguments)
        assert wrong.returncode == 2
        assert wrong.stderr.startswith(f"usage: aici {arguments[0]} ")
        lines = wrong.stderr.splitlines()
        assert lines[-1] == line and len(lines) <= 8, "the usage hides the error"


def test_without_arguments_the_help_is_printed() -> None:
    alone = aici()
    assert (alone.returncode, alone.stdout) == (2, "")
    assert alone.stderr == aici("--help").stdout


def test_closed_output_pipe_ends_the_command_without_a_message() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    root = Path(__file__).resolve().parents[3]
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "pyaici.cli", "list"]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False, env=env)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "")
