"""`aici upload`, `tag`, `untag`, `remove` and `tags`, with a daemon and with a store."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.runners.compiled import share
from pyaici.bundled import find_controller
from pyaici.cli.__main__ import main
from pyaici.cli.modules import age
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from tests.thorough import also

GUESTS = Path(__file__).resolve().parents[2] / "guests"


@pytest.fixture(autouse=True)
def no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AICI_SOCKET", raising=False)
    monkeypatch.delenv("AICI_SERVER", raising=False)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(workers=1, store=share(tmp_path_factory.mktemp("daemon") / "store")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without a daemon."""
    return share(tmp_path_factory.mktemp("store") / "store")


# the variable names a daemon, as --socket does: test_script_is_uploaded_listed_and_removed has it always
@pytest.fixture(params=["daemon", "store", pytest.param("variable", marks=pytest.mark.thorough)])
def place(
    request: pytest.FixtureRequest, store: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Returns options for a daemon, for a store although AICI_SOCKET is set, or none with AICI_SOCKET set."""
    if request.param == "daemon":
        return ["--socket", str(daemon.socket_path)]
    monkeypatch.setenv("AICI_SOCKET", str(daemon.socket_path))
    return ["--store", str(store)] if request.param == "store" else []


@pytest.fixture
def guest(tmp_path: Path) -> Path:
    """Builds a module that is different in every test."""
    made = build_controller(GUESTS / "guest.c", tmp_path / "guest.wasm").path
    # a custom section, which has no effect
    made.write_bytes(
        made.read_bytes() + b"\0\x20\x03own" + hashlib.sha256(str(tmp_path).encode()).digest()[:28]
    )
    return made


def identity(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_upload_prints_id_and_tags(guest: Path, place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upload", str(guest), *place]) == 0
    assert capsys.readouterr().out == f"{identity(guest)}\n"
    assert main(["upload", str(guest), "--tag", "beta", "--tag", "alpha", *place]) == 0
    assert capsys.readouterr().out == f"{identity(guest)}  alpha, beta\n"
    assert main(["upload", str(guest), "--tag", "gamma", *place]) == 0
    assert capsys.readouterr().out == f"{identity(guest)}  alpha, beta, gamma\n", "earlier tags are kept"
    assert main(["list", *place]) == 0
    assert f"{identity(guest)[:16]} " in capsys.readouterr().out


def test_tag_moves_to_another_module(
    guest: Path, place: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    regex = find_controller("regex")
    assert main(["upload", str(guest), "--tag", "moving", *place]) == 0
    assert main(["upload", "regex", "--tag", "moving", *place]) == 0
    capsys.readouterr()
    assert main(["tag", "moving", "other", *place]) == 0
    assert capsys.readouterr().out == f"{identity(regex)}  moving, other\n"
    assert main(["tag", identity(guest)[:12], "moving", *place]) == 0
    assert capsys.readouterr().out == f"{identity(guest)}  moving\n"
    assert main(["tag", "regex", "moving", *place]) == 0
    assert capsys.readouterr().out == f"{identity(regex)}  moving, other\n"


def test_tags_lists_tags_by_name(guest: Path, place: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upload", str(guest), "--tag", "zz", "--tag", "a-long-name", *place]) == 0
    capsys.readouterr()
    assert main(["tags", *place]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == sorted(lines), "sorted by name"
    own = [line.split() for line in lines if identity(guest)[:16] in line]
    assert own == [[tag, identity(guest)[:16], "local", "just", "now"] for tag in ("a-long-name", "zz")]
    assert main(["tags", "--json", *place]) == 0
    rows = {row["tag"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["zz"]["controller"] == identity(guest) and rows["zz"]["owners"] == ["local"]
    assert 0 <= time.time() - rows["zz"]["created"] < 3600
    for tag in ("zz", "a-long-name"):
        assert main(["untag", tag, *place]) == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "just now"), (59, "59 s"), (119, "119 s"), (7200, "2 h"), (40 * 86400, "40 days")],
)
def test_ages_are_rounded_to_readable_units(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_tags_does_not_create_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tags", "--store", str(tmp_path / "nowhere")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
    assert main(["tags", "--store", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""


def test_uploaded_module_is_removed_after_its_tag(
    guest: Path, place: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upload", str(guest), "--tag", "passing", *place]) == 0
    assert main(["remove", "passing", *place]) == 1
    assert "still has the tags passing: remove them first (aici untag)" in capsys.readouterr().err
    assert main(["untag", "passing", *place]) == 0
    assert main(["untag", "passing", *place]) == 1
    assert "no tag 'passing'" in capsys.readouterr().err
    assert main(["remove", identity(guest)[:16], *place]) == 0
    assert capsys.readouterr().out == f"{identity(guest)}  removed\n"
    assert main(["remove", identity(guest), *place]) == 1
    assert "no uploaded controller is called" in capsys.readouterr().err


def test_modules_and_tags_of_other_owners_need_force(
    guest: Path, daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--socket", str(daemon.socket_path)]
    with Runtime(daemon.socket_path, owner="ann") as runtime:
        module = runtime.upload(guest).id
        runtime.tag(module, "anns")
        assert main(["remove", module, *where]) == 1
        assert "owner 'local' has not uploaded module" in capsys.readouterr().err
        assert main(["untag", "anns", *where]) == 1
        assert "belongs to 'ann'" in capsys.readouterr().err
        assert main(["upload", str(guest), *where]) == main(["remove", module, *where]) == 0
        assert "stays: other owners have uploaded or tagged it" in capsys.readouterr().out
        assert runtime.describe("anns").owners == ["ann"]
        assert main(["untag", "anns", "--force", *where]) == 0
        runtime.tag(module, "again")
        assert main(["remove", module, "--force", *where]) == 0
        assert module not in [known.id for known in runtime.list()]


def test_connected_engine_can_start_an_uploaded_controller_by_its_tag(guest: Path, daemon: Daemon) -> None:
    with Runtime(daemon.socket_path) as runtime:
        runtime.register(Vocabulary([bytes([i]) for i in range(256)] + [b""], {256: "</s>"}, eos=(256,)))
        assert main(["upload", str(guest), "--tag", "hers", "--socket", str(daemon.socket_path)]) == 0
        assert runtime.is_live(runtime.instantiate("hers", "token 5"))


def test_daemon_and_store_share_modules_and_tags(guest: Path, tmp_path: Path) -> None:
    """A tag made in the store can be moved by a daemon, and in the store again."""
    store = tmp_path / "store"
    assert main(["upload", str(guest), "--tag", "first", "--store", str(store)]) == 0
    with Runtime(store=store, workers=1) as runtime:
        (module,) = runtime.list()
        assert (module.id, module.tags) == (identity(guest), ["first"])
        runtime.tag(runtime.upload(find_controller("regex")).id, "first")
    assert main(["tag", identity(guest), "first", "--store", str(store)]) == 0


def test_invalid_files_names_and_tags_are_refused(
    tmp_path: Path, place: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.wasm"
    text.write_text("text")
    for argv, message in [
        (["upload", str(text), "--tag", "x"], "not WebAssembly"),
        (["upload", "rejex"], "did you mean regex?"),
        (["upload", str(tmp_path)], "is a folder, not a controller"),
        (
            ["upload", "regex", "--tag", "No Tag"],
            f"as {identity(find_controller('regex'))}, but not tagged: invalid tag 'No Tag'",
        ),
        (["tag", "nobody", "x"], "no uploaded controller is called 'nobody'; aici list --all lists all"),
        (["tag", "", "x"], "no uploaded controller is called ''"),
    ]:
        assert main([*argv, *place]) == 1
        output = capsys.readouterr()
        assert message in output.err and output.out == ""
    assert main(["list", "--all", *place]) == 0
    assert hashlib.sha256(b"text").hexdigest()[:16] not in capsys.readouterr().out


def test_ids_take_precedence_over_tags_and_need_eight_digits(
    guest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--store", str(share(tmp_path / "store"))]
    assert main(["upload", str(guest), *where]) == 0
    assert main(["upload", "regex", *where]) == 0
    victim, planted = identity(guest), identity(find_controller("regex"))
    assert main(["tag", planted, victim[:8], *where]) == 1
    assert "could be taken for the id of a module" in capsys.readouterr().err
    assert main(["tag", victim[:8], "mine", *where]) == 0
    assert capsys.readouterr().out == f"{victim}  mine\n"
    assert main(["tag", victim[:7], "mine", *where]) == 1
    assert "no uploaded controller is called" in capsys.readouterr().err


def test_upload_without_a_daemon_is_an_error(
    tmp_path: Path, guest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upload", str(guest), "--socket", str(tmp_path / "none.sock")]) == 1
    assert f"no aicirt listens on {tmp_path / 'none.sock'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "name"),
    [
        *(("daemon", "greet.py"), ("store", "greet.py"), ("variable", "greet.py"), ("daemon", "greet.mjs")),
        *also(("store", "greet.mjs"), ("variable", "greet.mjs")),
    ],
    indirect=["place"],
)
def test_script_is_uploaded_listed_and_removed(
    name: str, place: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store keeps the script's text and its interpreter; uploading again changes nothing."""
    script = tmp_path / name
    comment = {".py": "#", ".mjs": "//"}[script.suffix] + str(tmp_path)
    main_of = {".py": "async def main():\n    pass", ".mjs": "export async function main() {}"}
    script.write_text(f"{main_of[script.suffix]} {comment}\n")
    tag = f"greet{script.suffix}"
    assert main(["upload", str(script), "--tag", tag, *place]) == 0
    printed = capsys.readouterr().out
    module, printed_tag = printed.split()
    assert len(module) == 64 and printed_tag == tag
    assert main(["upload", str(script), *place]) == 0
    assert capsys.readouterr().out == printed
    assert main(["list", *place]) == 0
    kilobytes = f"{script.stat().st_size / 1000:.1f} kB"
    language = {".py": "python", ".mjs": "javascript"}[script.suffix]
    shown = capsys.readouterr().out
    assert f"{kilobytes}  {tag}  ({name}, a script in {language})\n" in shown
    assert "without a tag; --all lists them" in shown, "the interpreter has no tag"
    assert main(["untag", tag, *place]) == 0
    assert main(["remove", module, *place]) == 0
    assert main(["tag", module, "other", *place]) == 1
    assert "no uploaded controller is called" in capsys.readouterr().err


def test_script_with_a_syntax_error_is_refused(
    place: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.py").write_text("async def main():\n    f(\n    if\n")
    assert main(["upload", "wrong.py", *place]) == 1
    assert "wrong.py:2:6: SyntaxError: '(' was never closed" in capsys.readouterr().err
    assert main(["upload", "wrnog.py", *place]) == 1
    assert "did you mean wrong.py?" in capsys.readouterr().err
    Path("needs.py").write_text("WORD = arg['word']\nasync def main():\n    pass\n")
    assert main(["upload", "needs.py", *place]) == 0, "an error that depends on the argument is accepted"


def test_script_is_stored_in_a_folder_although_the_daemon_of_the_variable_is_gone(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AICI_SOCKET", str(tmp_path / "gone"))
    script = tmp_path / "script.py"
    script.write_text("async def main():\n    pass\n")
    assert main(["upload", str(script), "--store", str(store)]) == 0
