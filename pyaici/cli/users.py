"""`aici users`: manages the users of a server and their roles."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError
from pyaici.cli.command import add_command

_MORE = """
The file is the one that `aici serve --users FILE` reads; a running server sees changes within seconds.
It has a hash of each token, never the token: who has lost it gets a new one (remove, then add).

roles: run      generate with the controllers that are there
       upload   besides, upload, tag and delete controllers of one's own
       admin    besides, delete those of others, and their tags
"""
_EXAMPLES = """\
  aici users add ada --role upload --file users.json     prints ada's token
  aici users remove ada --file users.json
  aici users list --file users.json
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    parser = add_command(
        commands, "users", run, "add, remove and list users of a server", more=_MORE, examples=_EXAMPLES
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("add", "print a token for a new user"),
        ("remove", "end a user's token"),
        ("list", "names and roles"),
    ):
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name != "list":
            action.add_argument("name", metavar="NAME")
        if name == "add":
            action.add_argument(
                "--role", choices=("run", "upload", "admin"), default="run", help="default: run"
            )
        action.add_argument("--file", type=Path, required=True, metavar="FILE", help="the file of users")
        action.set_defaults(parser=action)


def run(arguments: argparse.Namespace) -> int:
    """Adds a user and prints the token, removes a user, or prints a line for each user."""
    from pyaici.server.http.users import Role, UserFile

    users = UserFile(arguments.file)
    if arguments.action == "add":
        print(users.add(arguments.name, Role[arguments.role.upper()]))
        print(f"this is the token of {arguments.name}; it is not shown again", file=sys.stderr)
    elif arguments.action == "remove":
        users.remove(arguments.name)
    elif not arguments.file.exists():
        raise AiciError(f"there is no file {arguments.file}: `aici users add NAME --file ...` makes it")
    else:
        for entry in users.entries():
            since = time.strftime("%Y-%m-%d", time.localtime(entry.created))
            print(f"{entry.name:<32} {entry.role:<7} since {since}")
    return 0
