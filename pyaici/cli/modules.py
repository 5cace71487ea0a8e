"""`aici list`, `upload`, `tags`, `tag`, `untag`, `remove`: uploaded controllers and their names."""

from __future__ import annotations

import argparse
import shlex
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError
from aicirt.contract.modules import ControllerInfo
from aicirt.system.terminal import show, show_json
from pyaici.bundled import (
    LANGUAGES,
    SCHEME,
    BundledController,
    bundled_grammars,
    check_tag,
    find_controller,
    language_of,
)
from pyaici.cli.artifacts import controller_here
from pyaici.cli.command import add_command
from pyaici.cli.place import add_place, open_place, require_store, resolve_module
from pyaici.scripting.script import Script, read_script

_CONTROLLER_HELP = (
    "a tag, an id or at least its first 8 digits, or the name of an uploaded bundled controller"
)


def add(commands: Any) -> None:
    """Adds the commands and their arguments."""
    for add_one in (_add_list, _add_upload, _add_tags, _add_tag, _add_untag, _add_remove):
        add_one(commands)


# -- list ----------------------------------------------------------------------------------------------------

_LIST_MORE = """
Lists bundled controllers (aici run NAME), the kinds of scripts (aici run my_script.py), bundled grammars, and
uploaded controllers. A controller is also uploaded when `aici run` or an engine runs it. Engines start
uploaded controllers by tag or id.
"""
_LIST_EXAMPLES = """\
  aici list                               bundled controllers, and uploads with a tag in the user's store
  aici list --all                         ... and all other uploads
  aici list --socket /run/aici.sock       ... and uploads with a tag in this daemon
  aici list --server http://gpu-3:8000    ... and uploads at this server: your own, and those with a tag
  aici list --json                        whole ids, and times in seconds since 1970
"""


def _add_list(commands: Any) -> None:
    summary = "list bundled and uploaded controllers, and their tags"
    parser = add_command(commands, "list", list_all, summary, more=_LIST_MORE, examples=_LIST_EXAMPLES)
    add_place(parser)
    parser.add_argument("--all", action="store_true", help="also show uploads without a tag")
    parser.add_argument("--json", action="store_true", help="print a JSON object of lists")


def list_all(arguments: argparse.Namespace) -> int:
    """Prints the bundled controllers, script languages, grammars and uploaded modules."""
    require_store(arguments)
    with open_place(arguments) as place:
        modules, bundled = place.list(), place.bundled()
    shown = sorted(
        (module for module in modules if arguments.all or module.tags),
        key=lambda module: (not module.tags, module.tags, module.id),
    )
    if arguments.json:
        show_json(_listed(bundled, shown))
        return 0
    show("bundled:")
    for known in bundled:
        show(_line(known.name, known.size, known.summary))
        if known.example:
            show(f"{'':<33}  aici run {known.name} --arg {_quoted(known.example)} --prompt ...")
    show("scripts, by file name:")
    names = {known.name for known in bundled}
    for language in LANGUAGES:
        runs = (
            f"run by {language.controller}" if language.controller in names else "not built, see aici doctor"
        )
        example = f"aici run my_script{language.suffixes[0]} --arg JSON_OR_TEXT --prompt ..."
        show(f"  {' '.join('*' + suffix for suffix in language.suffixes):<33}{language.name}, {runs}")
        show(f"{'':<33}  {example}")
    show(f"grammars, for --arg @NAME: {', '.join(bundled_grammars())}")
    show("uploaded:" if modules else "uploaded: nothing")
    for module in shown:
        script = [f"({module.script}, a script in {module.language})"] if module.script else []
        show(_line(module.id[:16], module.size, "  ".join([", ".join(module.tags), *script]).strip()))
    if left := len(modules) - len(shown):
        show(f"  {left} without a tag; --all lists them")
    return 0


def _listed(bundled: list[BundledController], modules: list[ControllerInfo]) -> dict[str, Any]:
    """Returns the lists of controllers, kinds of scripts and grammars as JSON values."""
    return {
        "bundled": [asdict(known) for known in bundled],
        "scripts": [asdict(language) for language in LANGUAGES],
        "grammars": list(bundled_grammars()),
        "uploaded": [
            {
                "id": module.id,
                "size": module.size,
                "tags": sorted(module.tags),
                "owners": module.owners,
                "created": module.created or None,
                "script": module.script or None,
            }
            for module in modules
        ],
    }


def _quoted(text: str) -> str:
    """Quotes a text for bash and zsh in one line."""
    if text.isprintable():
        return f'"{text}"' if "'" in text and not set('"$`\\!') & set(text) else shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{escaped}'"


def _line(name: str, size: int | None, more: str) -> str:
    kilobytes = "" if size is None else f"{size / 1000:.1f} kB"
    return f"  {name:<20} {kilobytes:>11}  {more}".rstrip()


# -- upload --------------------------------------------------------------------------------------------------

_UPLOAD_MORE = """
Prints the controller's id and tags. An engine that uses the same daemon, such as a vLLM server, can then
start the controller by its id or by a tag, and `aici run TAG` runs it. An uploaded script is a controller
like any other; its argument is a JSON value or a text.

Uploading a file again changes nothing. A tag of another controller moves to this one; requests that begin
later use this controller. Without a daemon, it goes to the store from which this user's daemons load
controllers. A server (aici serve) records you as the owner. It requires a token of the role upload, unless it
was started with --anonymous upload.
"""
_UPLOAD_EXAMPLES = """\
  aici upload my_ctrl.wasm --tag my_ctrl --socket /run/aici.sock
  aici upload my_ctrl.wasm --tag my_ctrl --server http://gpu-3:8000
  aici upload my_script.py --tag my_script --server http://gpu-3:8000
  aici upload regex                                        uploads a bundled controller
"""


def _add_upload(commands: Any) -> None:
    summary = "upload a controller for engines to use"
    parser = add_command(commands, "upload", upload, summary, more=_UPLOAD_MORE, examples=_UPLOAD_EXAMPLES)
    parser.add_argument(
        "file",
        metavar="CONTROLLER",
        help="a .wasm file, a script (.py, .js, .mjs), the name of a bundled controller, or oci://...",
    )
    parser.add_argument(
        "--tag", metavar="NAME", action="append", default=[], help="give it this name; may be repeated"
    )
    add_place(parser)


def upload(arguments: argparse.Namespace) -> int:
    """Uploads and tags the controller, and prints the id of the module and its tags."""
    for name in arguments.tag:
        check_tag(name)
    # a folder is none here: its module may be an older build
    file = controller_here(arguments.file) if arguments.file.startswith(SCHEME) else arguments.file
    script = _script(file) if language_of(file) else None
    wasm = b"" if script else _module(file)
    with open_place(arguments) as place:
        module = place.upload_script(script) if script else place.upload(wasm)
        for name in arguments.tag:
            try:
                place.tag(module.id, name)
            except AiciError as error:
                raise AiciError(
                    f"{arguments.file} has been uploaded as {module.id}, but not tagged: {error}"
                ) from error
    show(f"{module.id}  {', '.join(sorted({*module.tags, *arguments.tag}))}".rstrip())
    return 0


def _module(name: str) -> bytes:
    path = find_controller(name)
    try:
        return path.read_bytes()
    except OSError as error:
        raise AiciError(f"cannot read {path}: {error.strerror}") from error


def _script(name: str) -> Script:
    """Reads a script, and names it in messages by its file name without the folder."""
    return replace(read_script(name), name=Path(name).name)


# -- tags ----------------------------------------------------------------------------------------------------

_TAGS_MORE = """
Prints a line for each tag: the tag, the first digits of its controller's id, the controller's owners, and the
age of the first upload.
"""
_TAGS_EXAMPLES = """\
  aici tags                                      in the store of this user, or at $AICI_SOCKET or $AICI_SERVER
  aici tags --server http://127.0.0.1:8000
  aici tags --json                               whole ids, and times in seconds since 1970
"""
_UNITS = (("days", 86400), ("h", 3600), ("min", 60), ("s", 1))


def _add_tags(commands: Any) -> None:
    summary = "list the names of uploaded controllers"
    parser = add_command(commands, "tags", list_tags, summary, more=_TAGS_MORE, examples=_TAGS_EXAMPLES)
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects")


def list_tags(arguments: argparse.Namespace) -> int:
    """Prints one line per tag, sorted by name."""
    require_store(arguments)
    with open_place(arguments) as place:
        modules = place.list()
    found = sorted((name, module) for module in modules for name in module.tags)
    if arguments.json:
        rows = [
            {"tag": name, "controller": module.id, "owners": module.owners, "created": module.created or None}
            for name, module in found
        ]
        show_json(rows)
        return 0
    width = max((len(name) for name, _ in found), default=0)
    owners = max((len(_owners(module.owners)) for _, module in found), default=0)
    for name, module in found:
        since = age(time.time() - module.created) if module.created else "unknown"
        show(f"{name:<{width}}  {module.id[:16]}  {_owners(module.owners):<{owners}}  {since}")
    return 0


def _owners(names: list[str]) -> str:
    return ", ".join(names) or "-"


def age(seconds: float) -> str:
    """Formats a duration in the largest unit of which it has at least two."""
    for name, unit in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return "just now"


# -- tag, untag ----------------------------------------------------------------------------------------------

_TAG_MORE = """
Requests that begin later find this controller by the name. Running requests keep their controller.
"""
_TAG_EXAMPLES = """\
  aici tag 41d0f2c9 json_latest              the beginning of an id, as aici list --all shows it
  aici tag json_latest json_stable           adds a second tag
  aici tag json_latest json_stable --server http://gpu-3:8000
"""
_UNTAG_MORE = """
Removes only the name: requests that begin later no longer find the controller by it. At a server the role of
your token decides: an administrator removes any owner's tags, with or without --force.
"""
_UNTAG_EXAMPLES = """\
  aici untag json_latest
  aici untag theirs --force --socket /run/aici.sock      also if another owner has set it
"""


def _add_tag(commands: Any) -> None:
    summary = "give an uploaded controller a name"
    parser = add_command(commands, "tag", tag, summary, more=_TAG_MORE, examples=_TAG_EXAMPLES)
    parser.add_argument("controller", metavar="CONTROLLER", help=_CONTROLLER_HELP)
    parser.add_argument(
        "name", metavar="NAME", help="the tag; if another controller has it, it moves to this one"
    )
    add_place(parser)


def tag(arguments: argparse.Namespace) -> int:
    """Adds the tag, and prints the id of the module and its tags."""
    check_tag(arguments.name)
    with open_place(arguments) as place:
        module = resolve_module(place, arguments.controller)
        place.tag(module, arguments.name)
        (names,) = [found.tags for found in place.list() if found.id == module]
    show(f"{module}  {', '.join(sorted(names))}")
    return 0


def _add_untag(commands: Any) -> None:
    summary = "remove a name of an uploaded controller"
    parser = add_command(commands, "untag", untag, summary, more=_UNTAG_MORE, examples=_UNTAG_EXAMPLES)
    parser.add_argument("name", metavar="NAME", help="the tag")
    parser.add_argument("--force", action="store_true", help="also remove another owner's tag")
    add_place(parser)


def untag(arguments: argparse.Namespace) -> int:
    """Removes the tag; prints nothing."""
    with open_place(arguments) as place:
        place.untag(arguments.name, arguments.force)
    return 0


# -- remove --------------------------------------------------------------------------------------------------

_REMOVE_MORE = """
Remove your own tags first. The controller is deleted when no other owner has uploaded or tagged it; running
requests continue to their end. Without a daemon it is removed from the store; a daemon that uses that
store keeps it in memory until you remove it there too, or the daemon ends. At a server the role of your
token decides: an administrator removes other owners' uploads and tags, with or without --force.
"""
_REMOVE_EXAMPLES = """\
  aici remove 41d0f2c9                                   the beginning of an id, as aici list --all shows it
  aici remove 41d0f2c9 --force --socket /run/aici.sock   uploads of all owners, and all tags
"""


def _add_remove(commands: Any) -> None:
    summary = "remove an uploaded controller"
    parser = add_command(commands, "remove", remove, summary, more=_REMOVE_MORE, examples=_REMOVE_EXAMPLES)
    parser.add_argument("controller", metavar="CONTROLLER", help=_CONTROLLER_HELP)
    parser.add_argument(
        "--force", action="store_true", help="also remove other owners' uploads of it, and all its tags"
    )
    add_place(parser)


def remove(arguments: argparse.Namespace) -> int:
    """Removes the module, and prints its id and whether it was deleted."""
    with open_place(arguments) as place:
        module = resolve_module(place, arguments.controller)
        gone = place.remove(module, arguments.force)
    show(f"{module}  {'removed' if gone else 'stays: other owners have uploaded or tagged it'}")
    return 0
