"""Releases: the script's checks, the workflows, the images of the server and for development."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from lab.system.ports import free_port
from pyaici.server.settings import ServerSettings
from tests.distribution import ROOT, run

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").iterdir()}
IMAGE = ROOT / "scripts" / "docker" / "Dockerfile"


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Returns the instructions of a Dockerfile with their arguments."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [
        (name, arguments.strip()) for name, _, arguments in (line.partition(" ") for line in whole if line)
    ]


# -- the script -----------------------------------------------------------------------------


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A repository with the script, the version and the changelog; its environment builds nothing."""
    for name in ("scripts/release.sh", "scripts/setup.sh", "pyproject.toml", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    run("git", "init", "--quiet", cwd=tmp_path)
    return tmp_path


def commit(repository: Path) -> None:
    run("git", "add", "--all", cwd=repository)
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    run("git", *who, "commit", "--quiet", "--message", "a", cwd=repository)


def release(repository: Path, tag: str) -> str:
    """Returns the error of the script for a tag. A missing Python stops it after its checks of the tag."""
    done = subprocess.run(
        [repository / "scripts" / "release.sh", tag],
        env={"PATH": os.environ["PATH"], "AICI_PYTHON": "/nonexistent/python"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr


def test_tag_must_fit_the_version(released: Path) -> None:
    assert release(released, "v9.9.9") == (
        f"release: the tag v9.9.9 does not fit the version {VERSION} in pyproject.toml: tag v{VERSION}\n"
    )


def test_release_needs_a_dated_section_and_a_clean_checkout(released: Path) -> None:
    changes = released / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace("unreleased", "to come"))
    assert "CHANGELOG.md has no heading" in release(released, f"v{VERSION}")
    changes.write_text(changes.read_text().replace("to come", "2026-12-01"))
    assert release(released, f"v{VERSION}") == "release: the checkout has changes that are not committed\n"
    commit(released)
    assert release(released, f"v{VERSION}").startswith("setup: Python 3.11 or newer is needed")


def test_changelog_begins_with_this_version() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert re.fullmatch(rf"{re.escape(VERSION)}, (unreleased|\d{{4}}-\d\d-\d\d)", headings[0])


# -- the workflows --------------------------------------------------------------------------


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def test_workflows_run_scripts_that_exist() -> None:
    commands = [step["run"] for each in WORKFLOWS.values() for step in steps(each) if "run" in step]
    found = [word for command in commands for word in shlex.split(command) if word.startswith("./")]
    assert found and all(os.access(ROOT / script, os.X_OK) for script in found)
    for workflow in WORKFLOWS.values():
        for job in workflow["jobs"].values():
            if "uses" in job:
                assert (ROOT / job["uses"]).is_file()


def test_tests_run_with_the_command_of_the_readme() -> None:
    commands = [step.get("run") for step in steps(WORKFLOWS["test.yml"])]
    assert "./scripts/test.sh" in commands and "./scripts/test.sh --thorough" in commands
    assert "\n./scripts/test.sh\n" in (ROOT / "README.md").read_text()


def test_release_publishes_tested_files_without_a_token() -> None:
    workflow = WORKFLOWS["release.yml"]
    assert workflow[True] == {"push": {"tags": ["v*"]}}, "YAML 1.1 reads `on` as true"
    publish = workflow["jobs"]["publish"]
    assert set(publish["needs"]) == {"test", "build"} <= workflow["jobs"].keys()
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"]
    assert any(step["uses"].startswith("pypa/gh-action-pypi-publish@") for step in publish["steps"])
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()
    others = [job for name, job in workflow["jobs"].items() if name != "publish"]
    assert not any("id-token" in job.get("permissions", {}) for job in others)
    (pythons,) = (
        step["with"]["python-version"] for step in steps(workflow) if "setup-python" in step.get("uses", "")
    )
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert all(f"Programming Language :: Python :: {each}" in classifiers for each in pythons.split())


# -- the images -----------------------------------------------------------------------------


def test_image_of_the_server_is_not_root_and_keeps_its_cache() -> None:
    found = instructions(IMAGE)
    names = [name for name, _ in found]
    (user,) = (argument for name, argument in found if name == "USER")
    (volume,) = (argument for name, argument in found if name == "VOLUME")
    assert user not in ("root", "0") and names.index("USER") > max(
        i for i, each in enumerate(names) if each == "RUN"
    )
    assert any(
        argument.endswith(f"install --directory --owner={user} --group={user} {volume}")
        for name, argument in found
        if name == "RUN"
    )


def test_image_installs_locked_versions_and_extras_that_exist() -> None:
    texts = " ".join(argument for name, argument in instructions(IMAGE) if name == "RUN")
    (extras,) = re.findall(r"pyaici-\*\.whl\)\[([a-z,]+)\]", texts)
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= optional.keys()
    (command,) = re.findall(r"sed -n .*(?= >/dist/constraints.txt)", IMAGE.read_text())
    shown = run("bash", "-c", command.replace("/source", str(ROOT)), cwd=ROOT).splitlines()
    requirements = [Requirement(line) for line in shown]
    assert {"wasmtime", "fastapi", "xllamacpp"} <= {each.name for each in requirements}


def test_image_listens_and_reports_its_health(tmp_path: Path) -> None:
    """Runs the commands of the image with the `aici` of this environment, on another port."""
    found = dict(instructions(IMAGE))
    assert int(found["EXPOSE"]) == (ServerSettings().port or 8000)
    entry = json.loads(found["ENTRYPOINT"])
    check = json.loads(found["HEALTHCHECK"].partition(" CMD ")[2])
    port = free_port()
    env = {
        **os.environ,
        "AICI_SERVE_PORT": str(port),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    healthy = [subprocess.run(check, env=env, capture_output=True, check=False).returncode]
    with subprocess.Popen(entry, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            assert any(f"running on http://0.0.0.0:{port}" in line for line in server.stderr)
            healthy.append(subprocess.run(check, env=env, check=False).returncode)
        finally:
            server.terminate()
    assert healthy == [1, 0]


def test_user_of_the_devcontainer_owns_the_cache() -> None:
    """Docker creates a volume with the owner of the folder in the image, or root's if there is none."""
    folder = ROOT / ".devcontainer"
    settings = json.loads((folder / "devcontainer.json").read_text())
    user = settings["remoteUser"]
    commands = [
        text for name, text in instructions(folder / settings["build"]["dockerfile"]) if name == "RUN"
    ]
    for mount in settings["mounts"]:
        target = dict(part.split("=") for part in mount.split(","))["target"]
        assert any(
            command.endswith(f"install --directory --owner={user} --group={user} {target}")
            for command in commands
        )
