"""Bundled controllers and grammars, languages of scripts, and the names that users give them."""

from __future__ import annotations

import difflib
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from aicirt.contract.errors import ModuleError, UnknownControllerError
from aicirt.contract.modules import looks_like_id
from pyaici.toolchain.controller import SOURCE_SUFFIXES
from pyaici.toolchain.sdk import source_tree

_PACKAGED = Path(__file__).resolve().parent / "_grammars"


def bundled_grammars() -> dict[str, Path]:
    """Returns files by name (such as ``c.y``), sorted, from the source tree or the installed package."""
    tree = source_tree()
    folders = sorted((tree / "controllers").glob("*/grammars")) if tree else [_PACKAGED]
    found = {path.name: path for folder in folders for path in folder.iterdir() if path.is_file()}
    return dict(sorted(found.items()))


def find_grammar(name: str) -> Path | None:
    """Returns the bundled grammar of this name, if there is one."""
    return bundled_grammars().get(name)


#: most characters at the beginning of a grammar that tell its kind
_MAX_LOOKED_AT = 1 << 16
# All of these take linear time: what is not closed goes on to the end.
_BLOCK = r"/\*(?:[^*]|\*(?!/))*(?:\*/)?|\(\*(?:[^*]|\*(?!\)))*(?:\*\))?"
_STRING = r"""'(?:[^'\\\n]|\\.)*'?|"(?:[^"\\\n]|\\.)*"?"""
#: blanks and comments before the first rule, and the code before yacc's declarations
_BEFORE_RULE = re.compile(rf"(?:\s|//.*|#.*|{_BLOCK}|%\{{(?:[^%]|%(?!\}}))*(?:%\}})?)*")
#: the beginning of a rule, perhaps of a terminal with a priority, attributes or parameters
_RULE = re.compile(
    r"(?:%(?:extend|override)[ \t]+)?[?!]*+<?[\w-]++>?(?:[ \t]*(?:\.-?\d+|\[[^]\n]*\]|\{[^}\n]*\}))*"
    r"\s*+(?P<mark>::=|:)"
)
#: what has no rules in it: in GBNF and KBNF, and in Lark and yacc
_IN_BNF = re.compile(rf"""{_STRING}|\[(?:[^]\\\n]|\\.)*\]?|\#(?!["']).*|{_BLOCK}""")
_IN_LARK = re.compile(rf"{_STRING}|//.*|#.*|{_BLOCK}|/(?:[^/\\]|\\[\s\S])*/?")


def grammar_controller(grammar: str) -> str:
    """Returns the controller for a grammar, by its first rule; strings and comments may contain anything.

    A line that begins with `%%` is yacc. A rule with `::=` means GBNF if a rule is called `root`, else KBNF,
    whose first rule is `start`. Everything else is Lark.
    """
    grammar, at = grammar[:_MAX_LOOKED_AT] + "\n", 0
    while (at := _end_of_match(_BEFORE_RULE, grammar, at)) < len(grammar):
        if grammar.startswith("%%", at):
            return "lr1"
        if rule := _RULE.match(grammar, at):
            if rule["mark"] == "::=":
                return "gbnf" if _has_line(r"root[ \t]*::=", _IN_BNF, grammar[at:]) else "kbnf"
            return "lr1" if _has_line("%%", _IN_LARK, grammar[at:]) else "lark"
        at = grammar.index("\n", at)
    return "lark"


def _end_of_match(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _has_line(begins: str, hidden: re.Pattern[str], text: str) -> bool:
    """Returns whether a line of the text begins so, outside of what is hidden."""
    line = re.compile(rf"^[ \t]*{begins}", re.MULTILINE)
    return bool(line.search(text) and line.search(hidden.sub(" ", text)))


@dataclass(frozen=True, slots=True)
class Language:
    """A language of scripts."""

    #: for messages and docs
    name: str
    #: the bundled controller that runs its scripts
    controller: str
    #: suffixes of its files
    suffixes: tuple[str, ...]

    @property
    def word(self) -> str:
        """The language's name in requests and uploads."""
        return self.name.lower()


PYTHON = Language("Python", "pyctrl", (".py",))
JAVASCRIPT = Language("JavaScript", "jsctrl", (".js", ".mjs"))
LANGUAGES = (PYTHON, JAVASCRIPT)


def language_of(name: str | Path | None) -> Language | None:
    """Returns the language of a script by its file name; None if it is not a script's name."""
    if name is None:
        return None
    suffix = Path(name).suffix.lower()
    return next((language for language in LANGUAGES if suffix in language.suffixes), None)


#: how a reference to a controller in a registry begins, where its name may stand
SCHEME = "oci://"

FOLDER = Path(__file__).resolve().parent / "_wasm"


#: by name: a summary, as in the source, and an argument to try it with if it takes one
DESCRIPTIONS = {
    "beam": ("beam search, as a controller", "4 24"),
    "choice": ("the model writes one of several texts", '["red", "green", "blue"]'),
    "extract": (
        "the output is a text of a grammar or of a regular expression, and parts of it become variables",
        'start: "My name is " name "."\nname[capture]: /[A-Z][a-z]+/\n',
    ),
    "gbnf": (
        "the output is a text of a grammar in GBNF, the syntax of llama.cpp",
        'root ::= [A-Z] [a-z]+ " is " [0-9]+ " years old."',
    ),
    "jsctrl": (
        "runs a script in JavaScript as a controller: aici run my_script.js",
        'import { force, gen } from "aici"; export async function main() { force("It is "); '
        "await gen({ regex: /[0-9]+/ }); }",
    ),
    "json_schema": (
        "the output is JSON that a JSON Schema allows",
        '{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, '
        '"required": ["name", "age"], "additionalProperties": false}',
    ),
    "kbnf": (
        "the output is a text of a grammar in KBNF, Koishi's BNF",
        "start ::= #'[A-Z][a-z]+' ' is ' #'[0-9]+' ' years old.';",
    ),
    "lark": (
        "the output is a text of a grammar in the dialect of Lark that llguidance and xgrammar take",
        'start: NAME "is" INT "years old."\nNAME: /[A-Z][a-z]+/\n%import common.INT\n%ignore " "',
    ),
    "lr1": (
        "the output is a text of an LR(1) grammar in the syntax of yacc",
        '%% list: N | list N ; N: "/[0-9]+/" ; SKIP: "/, ?/" ;',
    ),
    "prefix": (
        "the output begins with given characters, with the model's exact conditional distribution",
        " Par",
    ),
    "pyctrl": (
        "runs a script in Python as a controller: aici run my_script.py",
        'from aici import *\nasync def main():\n    await force("It is ")\n    await gen(regex="[0-9]+")\n',
    ),
    "regex": (
        "the output matches a regular expression from its first to its last character",
        "[A-Z][a-z]+ is [0-9]+ years old",
    ),
    "showcase": (
        "uses every verb of the controller interface in one run, with a line about each in the log",
        None,
    ),
    "substring": (
        "the output is a verbatim part of a given text",
        '{"text": "The quick brown fox jumps over the lazy dog.", "end": "\\n"}',
    ),
    "uppercase": ("the model writes without small letters (a to z)", None),
    "yesno": ('the model answers "Yes" or "No" and stops', None),
    "yesno_zig": ('yesno in Zig: the model answers "Yes" or "No" and stops', None),
}
#: controllers that run scripts, and their language: only a build with network has them
SCRIPT_CONTROLLERS = dict(sorted((language.controller, language.name) for language in LANGUAGES))


@dataclass(frozen=True, slots=True)
class BundledController:
    """A bundled controller, as users see it."""

    name: str
    summary: str = ""
    #: an argument to try it with, if it takes one
    example: str | None = None
    #: bytes of its file; None if it is on a server, which does not report sizes
    size: int | None = None


def describe_bundled() -> list[BundledController]:
    """Describes all bundled controllers, sorted by name."""
    return [
        BundledController(name, *DESCRIPTIONS.get(name, ("", None)), size=path.stat().st_size)
        for name, path in bundled_controllers().items()
    ]


def bundled_controllers() -> dict[str, Path]:
    """Returns files by name, sorted; empty in a source tree that has not been built."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.wasm"))}


def build_cure() -> str:
    """Returns how to get the bundled controllers that are missing here."""
    command = "with network, python -m pyaici.toolchain"
    return command if source_tree() else f"{command} in a checkout, then install that"


def build_missing(name: str) -> None:
    """Builds a bundled controller of a source tree, if it has not been built. Says so on stderr.

    For commands: it takes up to a minute. Raises UnknownControllerError with the reason if it fails.
    """
    out, tree = FOLDER / f"{name}.wasm", source_tree()
    if tree is None or name not in DESCRIPTIONS or out.exists():
        return
    from pyaici.toolchain import BuildError, build_controller

    print(f"building the controller {name}, once ...", file=sys.stderr, flush=True)
    try:
        build_controller(tree / "controllers" / name, out)
    except BuildError as error:
        raise UnknownControllerError(f"the controller {name} cannot be built: {error}", name=name) from None


def check_tag(tag: str) -> None:
    """Raises ModuleError if a tag is the name of a bundled controller, which such a tag could not replace."""
    if tag in DESCRIPTIONS:
        raise ModuleError(
            f"{tag!r} cannot be a tag: it is the name of a bundled controller, which requests would find "
            "instead; choose another tag"
        )


def unknown_controller(name: str) -> UnknownControllerError:
    """Returns the error for a name that is neither bundled nor uploaded. Looks for no file of that name."""
    cure = "upload one with `aici upload FILE --tag NAME`, and use the name"
    if name in DESCRIPTIONS:
        cure = "this one has not been built: python -m pyaici.toolchain"
    if looks_like_id(name) and len(name) < 64:
        cure = f"a whole id has 64 digits; `aici tag {name} NAME` gives the module a name to use instead"
    bundled = ", ".join(bundled_controllers()) or "none, they have not been built"
    return UnknownControllerError(
        f"no controller is called {name!r}: it is neither the id or tag of an uploaded module nor bundled "
        f"(bundled: {bundled}); {cure}",
        name=name,
    )


def find_controller(name: str | Path) -> Path:
    """Returns the Wasm file for `name`: a path to one, or the name of a bundled controller.

    Raises:
        UnknownControllerError: `name` is neither; the message suggests what was probably meant.
    """
    build_missing(str(name))
    found = local_controller(name)
    if found is None:
        raise UnknownControllerError(not_found(name, "no file and no bundled controller"))
    return found


def local_controller(name: str | Path) -> Path | None:
    """Returns what `find_controller` does, or None for a name that is neither: an upload may have it.

    Raises UnknownControllerError for a folder, a source file or a script: these are no names of uploads.
    """
    path = Path(name)
    mode = _mode(path)
    is_folder = stat.S_ISDIR(mode)
    if mode and not is_folder:
        if path.suffix in SOURCE_SUFFIXES:
            raise UnknownControllerError(f"{path} is a source file, not a controller{_built_hint(path)}")
        if language_of(path):
            raise UnknownControllerError(f"{path} is a script, not a module: run it with aici run {path}")
        return path
    bundled = bundled_controllers()
    if str(name) in bundled:
        return bundled[str(name)]
    if is_folder:
        raise UnknownControllerError(f"{path} is a folder, not a controller{_built_hint(path)}")
    return None


def controller_in(name: str) -> str:
    """Returns the controller in a folder: its script `main`, its only module, or FOLDER.wasm beside it.

    Any other name is returned as it is. Raises UnknownControllerError for a folder without any of these.
    """
    folder = Path(name)
    if name in bundled_controllers() or not stat.S_ISDIR(_mode(folder)):
        return name
    scripts = [folder / f"main{suffix}" for language in LANGUAGES for suffix in language.suffixes]
    modules = sorted(folder.glob("*.wasm"))
    beside = folder.resolve().with_suffix(".wasm")
    for path in (*scripts, *(modules if len(modules) == 1 else [folder.parent / beside.name])):
        if path.is_file():
            return str(path)
    raise UnknownControllerError(
        f"the folder {folder} has no script main.py or main.js, and no module: name a file, or build one: "
        f"aici build {folder}"
    )


def not_found(name: str | Path, what: str) -> str:
    """Returns the message for a name that nothing has. `what`: what was looked for, such as "no file"."""
    bundled = bundled_controllers()
    meant = " or ".join(_alike(Path(name), bundled))
    return (
        f"{what} is called {str(name)!r}{meant and f': did you mean {meant}?'} "
        f"(bundled: {', '.join(bundled) or 'none, this tree is not built: python -m pyaici.toolchain'})"
    )


def _mode(path: Path) -> int:
    """Returns the mode as in `stat`; 0 if there is no such file, or the name is invalid."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _built_hint(source: Path) -> str:
    made = Path(f"{source.resolve().stem if source.is_file() else source.resolve().name}.wasm")
    return f": did you mean {made}?" if made.is_file() else f"; aici build {source} makes {made}"


def _alike(path: Path, bundled: dict[str, Path]) -> list[str]:
    """Returns the most similar names: of modules in the same folder, and of bundled controllers."""
    offers = {name: name for name in bundled}
    if stat.S_ISDIR(_mode(path.parent)):
        # matched with and without the suffix
        offers |= {file.stem: str(file) for file in sorted(path.parent.glob("*.wasm"))}
    found = difflib.get_close_matches(path.name.removesuffix(".wasm"), offers, n=2)
    return [offers[name] for name in found]
