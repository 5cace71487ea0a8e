"""Scarce resources, one at a time: typed errors, and normal operation when a resource is available again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import ROOT
from lab.campaigns.campaign import Campaign
from lab.campaigns.processes import build_ledger
from lab.campaigns.scarce import CASES

_CASE_SECONDS = 180.0
#: a private mount namespace; if we are not root, as root of a user namespace
_OWN_MOUNTS = (
    ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
)
_USER = 65533
#: another user, since root has no limit on processes; may read files that root has installed
_OTHER_USER = [
    *(
        "setpriv",
        "--reuid",
        str(_USER),
        "--regid",
        str(_USER),
        "--clear-groups",
        "--bounding-set=-all,+dac_read_search",
    ),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
]


def run(campaign: Campaign) -> None:
    """Runs the campaign. A case is one scarce resource. Figures: cases tried, and cases not possible here."""
    not_tried = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        wasm = build_ledger(folder)
        for number, case in enumerate(CASES):
            if campaign.only not in (None, number) or campaign.over:
                continue
            prefix = prefix_of(case)
            if prefix is None:
                not_tried.append(case)
                continue
            problem = _try([*prefix, sys.executable, "-m", "lab.campaigns.scarce", case, str(wasm)])
            if problem:
                campaign.failed(number, f"{case}: {problem}")
            campaign.ended(case)
    campaign.figure("tried", campaign.done, "cases")
    campaign.figure("not_tried", len(not_tried), "cases")
    if not_tried:
        print(f"not possible here: {', '.join(not_tried)}", file=sys.stderr)


def prefix_of(case: str) -> list[str] | None:
    """Returns the words before the command, or None if the case is not possible for this user."""
    if "mounts" in CASES[case].needs:
        works = (
            shutil.which("unshare")
            and not subprocess.run(
                [*_OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
            ).returncode
        )
        return _OWN_MOUNTS if works else None
    if "user" in CASES[case].needs and os.getuid() == 0:
        works = (
            shutil.which("setpriv")
            and not subprocess.run(
                [*_OTHER_USER, sys.executable, "-c", ""], capture_output=True, check=False
            ).returncode
        )
        return _OTHER_USER if works else None
    return []


def _try(command: list[str]) -> str:
    """Runs a case and prints the errors that it got; returns what went wrong, or an empty text."""
    with tempfile.TemporaryDirectory() as home:
        if command[: len(_OTHER_USER)] == _OTHER_USER:
            os.chown(home, _USER, _USER)
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "HOME": home, "AICI_STORE": f"{home}/store", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate(timeout=_CASE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return f"did not end within {_CASE_SECONDS:g} s"
    for line in out.splitlines():
        print(f"  {json.loads(line)}", file=sys.stderr)
    if process.returncode:
        return f"status {process.returncode}: {err[-1200:]}"
    return ""
