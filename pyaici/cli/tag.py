"""`aici tag`: names an uploaded controller."""

from __future__ import annotations

import argparse
from typing import Any

from aicirt.errors import UnknownModuleError
from pyaici.cli.command import add_command
from pyaici.cli.place import Place, add_place, open_place

_MORE = """
Requests that begin from then on get this module by the name; those under way keep theirs.
"""
_EXAMPLES = """\
  aici tag 41d0f2c9 json_latest              the beginning of an id, as aici list --all shows it
  aici tag json_latest json_stable           what has this tag gets another one
"""


def add(commands: Any) -> None:
    """Adds the command's arguments."""
    parser = add_command(
        commands, "tag", run, "give an uploaded controller a name", more=_MORE, examples=_EXAMPLES
    )
    parser.add_argument("module", metavar="MODULE", help="id of a module, the beginning of one, or a tag")
    parser.add_argument("name", metavar="NAME", help="the tag; if another module has it, it moves")
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the id of the module, and its tags."""
    with open_place(arguments) as place:
        module = _find(place, arguments.module)
        place.tag(module, arguments.name)
        (tags,) = [found.tags for found in place.list() if found.id == module]
    print(f"{module}  {', '.join(sorted(tags))}")
    return 0


def _find(place: Place, name: str) -> str:
    """The id that a user means. Raises UnknownModuleError."""
    modules = place.list()
    found = [module.id for module in modules if name in module.tags or name == module.id]
    if not found and name:
        found = [module.id for module in modules if module.id.startswith(name)]
    if not found:
        raise UnknownModuleError(f"no uploaded module is called {name!r}; aici list --all shows all")
    if len(found) > 1:
        raise UnknownModuleError(f"{len(found)} ids begin with {name}: {', '.join(id[:16] for id in found)}")
    return found[0]
