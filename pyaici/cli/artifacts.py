"""`aici push`, `pull`: controllers in OCI registries, and references to them in place of names."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from aicirt.system.terminal import show
from pyaici.bundled import SCHEME, controller_in, find_controller, language_of
from pyaici.cli.command import add_command

if TYPE_CHECKING:
    from types import ModuleType

#: names files with public keys, separated by colons
KEYS_VARIABLE = "AICI_OCI_KEYS"

_PUSH_MORE = """
Stores a controller in an OCI registry, where container images are kept. A module becomes an artifact as the
CNCF describes them for WebAssembly, which other tools read, too. Prints the reference with the digest, by
which everybody gets these bytes. Credentials come from docker login or podman login. Needs the extra oci.
"""
_PUSH_EXAMPLES = """\
  aici push my_ctrl.wasm registry.example/team/my_ctrl:1.0
  aici push my_script.py 127.0.0.1:5000/my_script:latest      a registry of this machine, without TLS
  cosign sign --key cosign.key --new-bundle-format=false registry.example/team/my_ctrl@sha256:...
"""
_PULL_MORE = f"""
Fetches a controller from an OCI registry into the user's cache, checks it, and prints its file and digest.
run, check, test, eval and upload take such a reference in place of a file, too. They stay with what a tag
referred to when it was fetched first; this command fetches it anew.

With keys (--key, or ${KEYS_VARIABLE}), one of them must have signed the artifact with cosign. Needs the extra
oci.
"""
_PULL_EXAMPLES = """\
  aici pull oci://registry.example/team/my_ctrl:1.0
  aici pull oci://registry.example/team/my_ctrl:1.0 --key cosign.pub
  aici run oci://registry.example/team/my_ctrl:1.0 "Tell me a story"
  aici upload oci://registry.example/team/my_ctrl:1.0 --tag my_ctrl --server http://gpu-3:8000
"""


def add(commands: Any) -> None:
    """Adds the commands and their arguments."""
    summary = "store a controller in an OCI registry"
    parser = add_command(commands, "push", push, summary, more=_PUSH_MORE, examples=_PUSH_EXAMPLES)
    parser.add_argument(
        "controller", metavar="CONTROLLER", help="a .wasm file, a script, or the name of a bundled controller"
    )
    parser.add_argument("reference", metavar="REFERENCE", help="[oci://]REGISTRY/NAME[:TAG]")
    summary = "fetch a controller from an OCI registry"
    parser = add_command(commands, "pull", pull, summary, more=_PULL_MORE, examples=_PULL_EXAMPLES)
    parser.add_argument("reference", metavar="REFERENCE", help="[oci://]REGISTRY/NAME[:TAG][@DIGEST]")
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        help="file of a public key, one of which must have signed it; may be repeated (default: "
        f"${KEYS_VARIABLE})",
    )


def push(arguments: argparse.Namespace) -> int:
    """Pushes the controller, and prints its reference with the digest."""
    artifacts = _artifacts()
    name = controller_in(arguments.controller)
    reference = artifacts.Reference.parse(arguments.reference)
    try:
        digest = artifacts.push(reference, Path(name) if language_of(name) else find_controller(name))
    except OSError as error:
        raise AiciError(f"cannot read {name}: {error.strerror}") from error
    show(f"{SCHEME}{reference.registry}/{reference.name}@{digest}")
    return 0


def pull(arguments: argparse.Namespace) -> int:
    """Pulls the controller, and prints its file and digest."""
    file, digest = _artifacts().pulled(arguments.reference, arguments.key or _keys(), update=True)
    show(f"{file}  {digest}")
    return 0


def controller_here(name: str) -> str:
    """Returns the file of a reference to an artifact, or else what `controller_in` returns.

    Raises AiciError if the artifact cannot be pulled, and UnknownControllerError.
    """
    if not name.startswith(SCHEME):
        return controller_in(name)
    return str(_artifacts().pulled(name, _keys())[0])


def _keys() -> list[Path]:
    return [Path(name) for name in os.environ.get(KEYS_VARIABLE, "").split(":") if name]


def _artifacts() -> ModuleType:
    try:
        from pyaici import artifacts
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pyaici"):
            raise
        raise AiciError(
            f"references to registries need the package {error.name}: pip install 'pyaici[oci]'"
        ) from None
    return artifacts
