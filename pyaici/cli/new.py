"""`aici new`: creates a starter project."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from pyaici.build import BuildError, find_sdk
from pyaici.build.flags import CXX, TARGET, C
from pyaici.cli.command import add_command

TEMPLATES = Path(__file__).resolve().parent / "templates"
#: languages that are built; each has a folder in templates/
LANGUAGES = ("cpp", "c", "zig", "rust", "assemblyscript")
#: languages of scripts, which are not built -> file name of the script
SCRIPTS = {"python": "main.py", "javascript": "main.js"}
#: files that builds outside `aici build` leave in the folder
_BUILT = {"rust": ("/target/",), "assemblyscript": ("/node_modules/",)}

_MORE = """
Creates the folder NAME with a working source file, a README and settings for editors. C++ has the whole SDK
(token masks, recognizers, regular expressions), and Rust has a crate with token masks and recognizers. The
other compiled languages have the binary interface, aici.h. The compiler for C, C++ and Zig comes with
'pyaici[sdk]'; Rust needs cargo, AssemblyScript needs Node.js. Scripts in Python and JavaScript need no
compiler; their folder also contains tests.
"""
_EXAMPLES = """\
  aici new my_ctrl
  aici new my_ctrl --lang rust
  aici new --python my_script
  aici test my_script/main.py --transcript my_script/tests.toml
  aici build my_ctrl && aici run my_ctrl.wasm --prompt "Tell me a story"
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    parser = add_command(commands, "new", run, "create a starter controller", more=_MORE, examples=_EXAMPLES)
    parser.add_argument("name", metavar="NAME", help="name of the controller and of the new folder")
    language = parser.add_mutually_exclusive_group()
    language.add_argument(
        "--lang",
        choices=(*LANGUAGES, *SCRIPTS),
        default=LANGUAGES[0],
        help="the language (default: %(default)s)",
    )
    for name in SCRIPTS:
        language.add_argument(
            f"--{name}", dest="lang", action="store_const", const=name, help=f"same as --lang {name}"
        )


def run(arguments: argparse.Namespace) -> int:
    """Creates the folder and prints the next commands."""
    folder = Path(arguments.name)
    create(folder, arguments.lang)
    print(f"made {folder}/: {', '.join(sorted(p.name for p in folder.iterdir()))}")
    if script := SCRIPTS.get(arguments.lang):
        tested = f"aici test {folder / script} --transcript {folder / 'tests.toml'}"
        print(f'next: {tested} && aici run {folder / script} --prompt "Tell me a story"')
        return 0
    print(f'next: aici build {folder} && aici run {folder.name}.wasm --prompt "Tell me a story"')
    return 0


def create(folder: Path, language: str) -> None:
    """Writes the starter project of `language` into `folder`.

    Raises:
        BuildError: the name is invalid, or the folder exists and is not empty.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", folder.name):
        raise BuildError(
            f"{folder.name!r} is not a valid name: use letters, digits, _ and -, and begin with a letter"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BuildError(f"{folder} exists already; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    is_script = language in SCRIPTS
    sdk = "" if is_script else json.dumps(str(find_sdk().root))[1:-1]  # escaped as in TOML and JSON strings
    for part in (TEMPLATES / language,) if is_script else (TEMPLATES / "README.md", TEMPLATES / language):
        for template in part.rglob("*") if part.is_dir() else (part,):
            if template.is_file():
                made = folder / template.relative_to(part if part.is_dir() else TEMPLATES)
                made.parent.mkdir(parents=True, exist_ok=True)
                with open(made, "a") as file:  # a language appends its own text to the README
                    file.write(template.read_text().replace("NAME", folder.name).replace("AICI_SDK", sdk))
    if is_script:
        return
    (folder / ".gitignore").write_text("\n".join(["*.wasm", *_BUILT.get(language, ())]) + "\n")
    if language in ("c", "cpp"):
        flags = CXX if language == "cpp" else C
        # clangd reads this, so that editors find aici.h and know the target
        editor = [flag for flag in flags if flag not in TARGET]
        lines = ["--target=wasm32-wasi", *editor, f"-I{find_sdk().include}"]
        (folder / "compile_flags.txt").write_text("\n".join(lines) + "\n")
