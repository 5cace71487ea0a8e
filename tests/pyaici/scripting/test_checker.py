"""Positions of errors in scripts, as the real interpreters report them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyaici.bundled import JAVASCRIPT, language_of
from pyaici.scripting.checker import Checker, find_problem
from pyaici.scripting.script import Script


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    with Checker() as checker:
        yield checker


MAIN = "async def main():\n    pass\n"
MAIN_JS = "export async function main() {}\n"


@pytest.mark.parametrize(
    ("name", "source", "place"),
    [
        ("a.py", "from aici import *\n" + MAIN, None),
        (
            "a.py",
            "async def main():\n    x = 'é' + no_such_name\n",
            "a.py:2:15: NameError: name 'no_such_name'",
        ),
        ("a.py", "'''\f\u2028é'''\nasync def main():\n    nix\n", "a.py:3:5: NameError"),
        ("a.py", "def main():\n    pass\n", "a.py:1:1: TypeError: main must be a coroutine"),
        ("a.py", "async def main():\n    f(\n    if\n", "a.py:2:6: SyntaxError: '(' was never closed"),
        ("a.py", "x = 1\n  y = 2\n" + MAIN, "a.py:2: IndentationError"),
        ("a.py", "import os\n" + MAIN, "a.py:1: ImportError: no module named 'os'"),
        (
            "a.py",
            "from aici import *\ndef f():\n    return regex('[')\nX = f()\n" + MAIN,
            "a.py:3: Error: the reg",
        ),
        ("a.py", "x = 1\n", "a.py:1: defines neither main"),
        (
            "a.py",
            "x = 1\nwhile True:\n    x += 1\n" + MAIN,
            "a.py:3: TimeLimitError: the script has used up",
        ),
        ("a.js", "let x = 1;\nfor (;;) x++;\n" + MAIN_JS, "a.js: TimeLimitError: the script has used up"),
        ("a.js", "let x = [];\nfor (;;) x.at(1);\n" + MAIN_JS, "a.js:2:"),
        ("a.py", "\nsorted(range(1 << 20), key=lambda x: -x)\n" + MAIN, "a.py: the top level used"),
        (
            "a.py",
            "from aici import *\nasync def main():\n    gen(max_tokens=1)\n",
            "a.py:3:5: gen(...) is never awaited: write await gen(...)",
        ),
        ("a.py", "from aici import fork as f\nasync def main():\n    f(2)\n", "a.py:3:5: f(...) is never"),
        (
            "a.py",
            "from aici import *\ndef gen(): pass\nasync def main():\n    gen()\n    await force('x')\n",
            None,
        ),
        (
            "a.py",
            "async def main():\n    print(1\n    x = 2\n",
            "a.py:2:10: SyntaxError: '(' was never closed",
        ),
        ("a.py", "X = [1,\n\nasync def main():\n    pass\n", "a.py:1:5: SyntaxError: '[' was never closed"),
        ("a.js", 'import { force } from "aici";\n' + MAIN_JS, None),
        ("a.js", "export async function main() {\n  f('a';\n}\n", "a.js:2:8: SyntaxError"),
        ("a.js", "const x = 1;\n  nothing;\n" + MAIN_JS, "a.js:2:3: ReferenceError"),
        ("a.js", 'import {\n  regex,\n  nix } from "aici";\n' + MAIN_JS, "a.js:3: SyntaxError"),
        (
            "deep/a.mjs",
            'import { regex } from "aici";\nconst f = () => regex("[");\nf();\n' + MAIN_JS,
            "deep/a.mjs:2:",
        ),
        ("a.js", "\n\nexport function main() {\n  f();\n}\n", "a.js:3: TypeError: main must be asynchronous"),
        ("a.js", "export function* main() {}\n", "a.js:1: TypeError: main must be asynchronous"),
        ("a.txt", "", "a.txt:1: a.txt is not a script"),
        ("gone.py", None, "gone.py:1: there is no file gone.py"),
    ],
)
def test_errors_have_their_file_line_and_column(
    checker: Checker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    source: str | None,
    place: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    if source is not None:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(source)
    problem = checker.check(name)
    assert (problem is None) == (place is None), problem
    if place is not None:
        assert str(problem).startswith(place)
        assert "\n" not in str(problem)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("await gen(max_tokens=LIMIT)", "LIMIT"),
        ("print(gen, force, arg, Error, regex, __name__, len, NotImplemented)", None),
        ("print(prompt_token())", "prompt_token"),
        ("Counter; deque; fullmatch", None),
        ("[a for a in (b := [1])]; b; lambda c, *d, e=1, **f: (c, d, e, f)", None),
        ("lambda c=g: c", "g"),
        ("import math as m, sys.x; m; sys; math", "math"),
        ("from json import loads as l; l; loads", "loads"),
        ("def f(x: Any, *y: Some) -> Other: return y\n    z: Third = f(1)", None),
        ("try: pass\n    except Exception as e: e", None),
        ("global x; x = 1; del x; Late; late()", None),
        ("with a_file as f: f", "a_file"),
        ("open; print; breakpoint", "breakpoint"),
        ("exec('q = 1'); q", None),
        ("first; second", "first"),
        ("print(**kw); f'{spec}'", "kw"),
        ("f'{1:{spec}}'", "spec"),
    ],
)
def test_undefined_names_are_those_that_nothing_binds(
    checker: Checker, tmp_path: Path, body: str, name: str | None
) -> None:
    """The interpreter knows the names that are built in, and those of modules."""
    file = tmp_path / "a.py"
    stars = "from aici import *\nfrom collections import *\nfrom re import *\n"
    file.write_text(f"{stars}async def main():\n    {body}\nclass Late: pass\nasync def late(): pass\n")
    problem = checker.check(file)
    assert (problem and problem.message) == (name and f"NameError: name '{name}' isn't defined")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.py", "async def run():\n    pass\ndef main():\n    return run()\n"),
        ("a.py", "def main():\n    yield\n"),
        ("a.py", "def main():\n    pass\nasync def main():\n    pass\n"),
        ("a.js", "async function run() {}\nexport function main() { return run(); }\n"),
        ("a.js", "async function run() {}\nexport const main = () => run();\n"),
        ("a.js", "async function run() {}\nexport { run as main }; // no line break at the end"),
        ("a.js", "export function mid_process() {}\n"),
    ],
)
def test_a_main_that_may_return_a_coroutine_is_accepted(
    checker: Checker, tmp_path: Path, name: str, source: str
) -> None:
    file = tmp_path / name
    file.write_text(source)
    assert checker.check(file) is None


def test_samples_have_no_errors(checker: Checker) -> None:
    folders = Path(__file__).resolve().parents[3] / "controllers"
    arguments = {"quote": "a text", "prefix": "a text"}
    samples = [*folders.glob("pyctrl/samples/*.py"), *folders.glob("jsctrl/samples/*.js")]
    assert len(samples) >= 25
    for sample in samples:
        assert checker.check(sample, arguments.get(sample.stem)) is None
    for path in [*folders.glob("decoding/*.py"), *folders.glob("decoding/*.js")]:
        (argument,) = re.findall(r"^(?: \* )?Argument: (.*)$", path.read_text(), re.MULTILINE)
        assert checker.check(path, json.loads(argument)) is None


def test_top_level_code_can_read_the_argument(checker: Checker, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("from aici import *\nX = choice(arg['words'])\n" + MAIN)
    assert str(checker.check(file)).startswith(f"{file}:2: TypeError")
    assert checker.check(file, {"words": ["a"]}) is None


def test_innermost_position_in_the_script_is_reported() -> None:
    script = Script("s.js", JAVASCRIPT, "")
    places = ["pattern (native)", "Pattern (aici:105:44)", "f (s.js:2:23)", "s.js:9:1"]
    message = "\n".join(["Error: no", *(f"    at {place}" for place in places)])
    assert str(find_problem(script, message)) == "s.js:2:23: Error: no"


@pytest.mark.parametrize(
    ("name", "source", "wrong"),
    [
        ("a.py", "def f(:\n", True),
        ("a.py", "x = 1\n  y = 2\n", True),
        ("a.py", "exec('x =')\n", False),
        ("a.py", "raise SyntaxError('of mine')\n", False),
        ("a.py", "x = 1\n", False),
        ("a.js", "let x = ;", True),
        ("a.js", 'import { nix } from "aici";', True),
        ("a.js", 'JSON.parse("");', False),
        ("a.js", 'new RegExp("(");', False),
        ("a.js", "null.x;", False),
    ],
)
def test_only_invalid_scripts_are_syntax_errors(
    checker: Checker, name: str, source: str, wrong: bool
) -> None:
    """A script that fails when it runs might succeed with another argument."""
    language = language_of(name)
    assert language is not None
    script = Script(name, language, source)
    assert (checker.check_syntax(script) is not None) == wrong
