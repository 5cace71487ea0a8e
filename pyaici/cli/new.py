"""`aici new`: creates a starter project."""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from pyaici.cli.command import add_command
from pyaici.toolchain import BuildError, find_sdk
from pyaici.toolchain.flags import CXX, TARGET, C

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
  aici test my_script
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
        print(f'next: aici test {folder} && aici run {folder / script} "Tell me a story"')
        return 0
    print(f'next: aici build {folder} && aici run {folder.name}.wasm "Tell me a story"')
    return 0


def create(folder: Path, language: str) -> None:
    """Writes the starter project of `language` into `folder`: all of it, or nothing if it fails.

    Raises:
        BuildError: the name is invalid, the folder exists and is not empty, or it cannot be created.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", folder.name):
        raise BuildError(
            f"{folder.name!r} is not a valid name: use letters, digits, _ and -, and begin with a letter"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BuildError(f"{folder} exists already; choose another name")
    files = _files(folder.name, language)
    try:
        _write(folder.resolve(), files)
    except OSError as error:
        raise BuildError(f"{folder} cannot be created: {error.strerror}") from None


def _write(folder: Path, files: dict[Path, str]) -> None:
    """Creates `folder` and its missing parents with these files: all of them, or nothing if it fails."""
    top = folder
    while not top.parent.exists():
        top = top.parent
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=top.parent) as temporary:
        new = Path(temporary, top.name)
        for place, text in files.items():
            made = new / folder.relative_to(top) / place
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(text)
        new.rename(top)


def _files(name: str, language: str) -> dict[Path, str]:
    """Returns the files of a starter project and their texts."""
    is_script = language in SCRIPTS
    sdk = "" if is_script else json.dumps(str(find_sdk().root))[1:-1]  # escaped as in TOML and JSON strings
    texts: dict[Path, str] = {}
    if not is_script:
        texts[Path("README.md")] = (TEMPLATES / "README.md").read_text()
    for template in sorted((TEMPLATES / language).rglob("*")):
        # pip compiles the scripts among the templates
        if template.is_file() and template.parent.name != "__pycache__":
            place = template.relative_to(TEMPLATES / language)
            texts[place] = texts.get(place, "") + template.read_text()  # a language appends to the README
    files = {place: text.replace("NAME", name).replace("AICI_SDK", sdk) for place, text in texts.items()}
    if is_script:
        return files
    files[Path(".gitignore")] = "\n".join(["*.wasm", *_BUILT.get(language, ())]) + "\n"
    if language in ("c", "cpp"):
        flags = CXX if language == "cpp" else C
        # clangd reads this, so that editors find aici.h and know the target
        editor = [flag for flag in flags if flag not in TARGET]
        lines = ["--target=wasm32-wasi", *editor, f"-I{find_sdk().include}"]
        files[Path("compile_flags.txt")] = "\n".join(lines) + "\n"
    return files
