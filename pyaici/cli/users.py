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
Edits the file that `aici serve --users FILE` reads; a running server notices changes within seconds. The file
contains hashes of the tokens, not the tokens. To replace a lost token, remove the user and add them again.

roles: run      generate with existing controllers
       upload   also upload, tag and delete own controllers
       admin    also delete and untag other users' controllers
"""
_EXAMPLES = """\
  aici users add ada --role upload --file users.json     prints the token of ada
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
        ("add", "add a user and print the token"),
        ("remove", "remove a user and revoke the token"),
        ("list", "list names and roles"),
    ):
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name != "list":
            action.add_argument("name", metavar="NAME")
        if name == "add":
            action.add_argument(
                "--role", choices=("run", "upload", "admin"), default="run", help="the role (default: run)"
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
        raise AiciError(f"there is no file {arguments.file}: `aici users add NAME --file ...` creates it")
    else:
        for entry in users.entries():
            since = time.strftime("%Y-%m-%d", time.localtime(entry.created))
            print(f"{entry.name:<32} {entry.role:<7} since {since}")
    return 0
