"""aici.pyi and aici.d.ts match the exports of the script libraries, and mypy accepts the samples."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyaici
from pyaici.testing import Playground

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(pyaici.__file__).parent / "scripting"
LIBRARY = ROOT / "controllers" / "pyctrl" / "library" / "aici.py"
#: names in the stub without a counterpart in the library: types for annotations
TYPES = {"FinishReason", "Capability", "_T"}
#: what is neither a function nor a class there
VALUES = {"arg", "json"}
#: what takes its options from `**how`
OPEN = ("gen", "generate", "sample", "Sample")


def definitions(path: Path) -> dict[str, Any]:
    """Returns public functions, and classes with their public methods, by name with their parameters."""
    return dict(_members(ast.parse(path.read_text()).body))


def _members(body: list[ast.stmt]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("_") or re.fullmatch("__(contains|len|iter|or|and|sub)__", node.name):
                kinds = sorted(decorator.id for decorator in node.decorator_list)  # type: ignore[attr-defined]
                found.append((node.name, (kinds, _parameters(node.args))))
            elif node.name == "__init__":
                found.append(("__init__", _parameters(node.args)))
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found.append((node.name, dict(_members(node.body))))
    return found


def _parameters(args: ast.arguments) -> list[tuple[str, str, str | None]]:
    """Returns (kind, name, default) of each parameter."""
    plain = args.posonlyargs + args.args
    defaults = [None] * (len(plain) - len(args.defaults)) + [ast.unparse(value) for value in args.defaults]
    found: list[tuple[str, str, str | None]] = [
        ("", arg.arg, value) for arg, value in zip(plain, defaults, strict=True)
    ]
    if args.vararg:
        found.append(("*", args.vararg.arg, None))
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append(("keyword", arg.arg, ast.unparse(default) if default else None))
    if args.kwarg:
        found.append(("**", args.kwarg.arg, None))
    return found


def exported(controller: str, script: str) -> set[str]:
    """Runs a script and returns the names that it printed."""
    with Playground() as playground:
        transcript = playground.play(controller, "", arg=script)
    assert transcript.error is None, transcript.error
    return set(transcript.log.split())


@pytest.fixture(scope="module")
def stub() -> dict[str, Any]:
    return definitions(FOLDER / "aici.pyi")


def test_python_stub_has_exactly_the_names_of_the_module(stub: dict[str, Any]) -> None:
    names = exported(
        "pyctrl", "import aici\nasync def main():\n    print(*[n for n in dir(aici) if n[0] != '_'])\n"
    )
    assert set(stub) | VALUES == names
    tree = ast.parse((FOLDER / "aici.pyi").read_text())
    assigned = {n.targets[0].id for n in tree.body if isinstance(n, ast.Assign)}  # type: ignore[attr-defined]
    annotated = {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}  # type: ignore[union-attr]
    assert (assigned, annotated) == (TYPES, VALUES)


def test_python_stub_has_the_librarys_parameters_and_methods(stub: dict[str, Any]) -> None:
    library = definitions(LIBRARY)
    ours = {name: value for name, value in stub.items() if name not in {*OPEN, "Error"}}
    assert len(ours) >= 20
    for name, value in ours.items():
        expected = library[name]
        if isinstance(value, dict):  # the stub omits constructors that scripts do not call
            for method in ("__init__",):
                if method not in value:
                    expected = {key: of for key, of in expected.items() if key != method}
        assert value == expected, name


def test_python_stub_has_the_keywords_of_actions_that_sample(stub: dict[str, Any]) -> None:
    """The library takes them from `**how`, so the test reads them from its source."""
    text = LIBRARY.read_text()
    taken = dict(re.findall(r'option\("(\w+)", (\w+)\)', text))
    (makers,) = re.findall(r"_MAKERS = \{\n(.*?)\n\}", text, re.DOTALL)
    kinds = re.findall(r'"(\w+)": \1', makers)
    for name in ("gen", "generate"):
        first, *others = stub[name][1]
        assert first == ("", "pattern", "None")
        whole = name == "generate"
        wanted = dict.fromkeys(kinds, "...") | {
            key: default for key, default in taken.items() if whole or key not in {"logprobs", "top_logprobs"}
        }
        assert {key: default for _, key, default in others} == wanted
        assert {kind for kind, _, _ in others} == {"keyword"}
    (sampling,) = re.findall(r"def _sampling\(.*?\n\n", text, re.DOTALL)
    own = dict(re.findall(r'option\("(\w+)", (\w+)\)', sampling))
    for parameters in (stub["sample"][1], stub["Sample"]["__init__"]):
        *first, allowed = parameters[: len(parameters) - len(own)]
        assert allowed == ("", "allowed", "None") and first in ([], [("", "self", None)])
        assert parameters[-len(own) :] == [("keyword", key, default) for key, default in own.items()]


def test_python_stub_has_docstrings(stub: dict[str, Any]) -> None:
    tree = ast.parse((FOLDER / "aici.pyi").read_text())
    plain = {"prompt_tokens", "is_special", "vocab_size"}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name not in plain:
            assert ast.get_docstring(node), node.name
    assert set(stub) >= plain


# -- JavaScript ----------------------------------------------------------------------------------------


def declared() -> dict[str, str]:
    """Returns the declarations of the values that aici.d.ts exports, by name."""
    text = (FOLDER / "aici.d.ts").read_text()
    text = re.sub(r"/\*\*.*?\*/", "", text, flags=re.DOTALL)
    found = re.findall(r"^  export (?:class|function|const) (\w+)(.*?);$", text, re.MULTILINE | re.DOTALL)
    joined: dict[str, str] = {}
    for name, rest in found:
        joined[name] = joined.get(name, "") + rest
    return joined | dict.fromkeys(re.findall(r"^  export class (\w+)", text, re.MULTILINE), "")


def test_typescript_declarations_have_exactly_the_names_of_the_module() -> None:
    script = (
        'import * as aici from "aici";\nexport async function main() {\n'
        '  console.log(...Object.keys(aici).filter((name) => name[0] !== "_"));\n}\n'
    )
    assert set(declared()) == exported("jsctrl", script)


def test_typescript_declarations_have_the_options_of_the_library() -> None:
    library = (ROOT / "controllers" / "jsctrl" / "library" / "aici.js").read_text()
    text = (FOLDER / "aici.d.ts").read_text()
    (taken,) = re.findall(r"const \{ (maxTokens.*?), \.\.\.others \}", library)
    (sampling,) = re.findall(r"\{ (temperature, .*?), \.\.\.others \}", library)
    sampled = {word.split(" ")[0] for word in sampling.split(", ")}
    kinds = re.findall(r"const makers = \{ (.*) \};", library)[0].split(", ")

    def fields(interface: str) -> set[str]:
        (body,) = re.findall(rf"export interface {interface} \{{\n(.*?)\n  \}}", text, re.DOTALL)
        return set(re.findall(r"^    (\w+)\??:", body, re.MULTILINE))

    assert fields("Ways") == set(kinds)
    options = {word.split(" ")[0] for word in taken.split(", ")}
    assert fields("Generation extends Sampling") | fields("Details") == options | {"topLogprobs"}
    assert fields("Sampling") | {"topLogprobs"} == sampled
    assert fields("Sampled extends Sampling") == {"topLogprobs"}
    names = re.findall(r"export (?:async )?(?:const|function) (\w+)[^\n]*\{ [^\n]*\} = \{\}\)", library)
    assert names
    for name in names:
        inner = re.findall(rf"\b{name}\b[^\n]*?\{{ ([^\n{{}}]*) \}} = \{{\}}", library)[0]
        options = re.findall(r"(\w+)(?: = [^,]+)?(?:, |$)", inner)
        assert options, name
        for option in options:
            assert f"{option}?:" in declared()[name], (name, option)


def test_typescript_declarations_have_the_members_of_classes() -> None:
    script = (
        'import * as aici from "aici";\nexport async function main() {\n'
        "  for (const name of "
        '["Label", "Pattern", "Constraint", "TokenSet", "Generated", "Distribution"]) {\n'
        "    const one = aici[name];\n"
        "    for (const member of Object.getOwnPropertyNames(one.prototype))\n"
        '      if (member !== "constructor") console.log(name + "." + member);\n'
        "    for (const member of Object.getOwnPropertyNames(one))\n"
        '      if (!["length", "name", "prototype"].includes(member)) console.log(name + "." + member);\n'
        "  }\n}\n"
    )
    text = (FOLDER / "aici.d.ts").read_text()
    members = set()
    for name, body in re.findall(r"export class (\w+) \{\n(.*?)\n  \}", text, re.DOTALL):
        for member in re.findall(r"^    (?:static |get )?(\w+)\(", body, re.MULTILINE):
            if member != "constructor":
                members.add(f"{name}.{member}")
    assert members == exported("jsctrl", script)


# -- type checkers ----------------------------------------------------------------------------------------


Mypy = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def mypy(tmp_path: Path) -> Mypy:
    """Runs the command of the guide for some files, in a folder without settings of mypy."""
    page = (ROOT / "docs" / "guide" / "script_reference.md").read_text()
    (command,) = re.findall(r"^MYPYPATH=.* mypy .*$", page, re.MULTILINE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(*files: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command.replace("script.py", shlex.join(map(str, files))),
            shell=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_mypy_accepts_the_samples_with_the_stub(mypy: Mypy) -> None:
    folders = ROOT / "controllers"
    samples = sorted([*folders.glob("pyctrl/samples/*.py"), *folders.glob("decoding/*.py")])
    assert len(samples) >= 15
    done = mypy(*samples)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_mistakes_with_the_stub(tmp_path: Path, mypy: Mypy) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(
        "import aici\nfrom aici import gen, generate\n\n\nasync def main():\n    await gen(max_token=3)\n"
        "    (await generate()).probability\n    len(await gen()) + 'a'\n    await aici.fixd('a')\n"
    )
    done = mypy(script)
    found = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    assert found == [6, 7, 8, 9], done.stdout + done.stderr
