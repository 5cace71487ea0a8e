"""The manifests for Kubernetes: valid, true to the programs, and programs work in their security context."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from lab.system.fetch import pypi_wheel
from lab.system.waiting import PATIENCE
from pyaici.bundled import find_controller
from pyaici.cli.__main__ import parser
from pyaici.client.control import Control
from pyaici.server.settings import ServerSettings
from tests.pyaici.engines.batching.support import make_model
from tests.pyaici.engines.llama.tiny_gguf import write_gguf

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "scripts" / "kubernetes"
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))
#: the oldest one has containers that start before others and end after them, and a preStop that sleeps
VERSIONS = ("1.34", "1.37")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def pod(name: str) -> dict[str, Any]:
    """Returns the specification of the only pod that a file describes."""
    (found,) = [one for one in documents(name) if one["kind"] in ("Deployment", "Pod")]
    spec: dict[str, Any] = found["spec"]
    return spec["template"]["spec"] if found["kind"] == "Deployment" else spec


def containers(name: str) -> list[dict[str, Any]]:
    return [*pod(name).get("initContainers", []), *pod(name)["containers"]]


@cache
def schemas(version: str) -> tuple[Registry[Any], dict[str, Any]]:
    """Returns the definitions of a version of Kubernetes, and schemas that allow no other fields by kind."""
    with zipfile.ZipFile(pypi_wheel("kubernetes-validate")) as wheel:
        folder = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict"
        definitions = json.loads(wheel.read(f"{folder}/_definitions.json"))
        kinds = {
            kind: json.loads(wheel.read(f"{folder}/{kind.lower()}-{api}.json"))
            for kind, api in {
                "Deployment": "apps-v1",
                "Pod": "v1",
                "Service": "v1",
                "PersistentVolumeClaim": "v1",
            }.items()
        }
    resource = Resource.from_contents(definitions, default_specification=DRAFT7)
    return Registry().with_resource("_definitions.json", resource), kinds


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", FILES)
def test_manifests_are_valid(name: str, version: str) -> None:
    registry, kinds = schemas(version)
    for document in documents(name):
        validator = jsonschema.Draft7Validator(kinds[document["kind"]], registry=registry)
        assert [error.message for error in validator.iter_errors(document)] == []
        wrong = {**document, "spec": {**document["spec"], "misspelled": 1}}
        assert list(validator.iter_errors(wrong)), "the schema allows no other fields"


@pytest.mark.parametrize("name", FILES)
def test_containers_have_no_rights_that_they_do_not_need(name: str) -> None:
    whole = pod(name)
    context = whole["securityContext"]
    assert context["runAsNonRoot"] and context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert whole["automountServiceAccountToken"] is False
    volumes = {volume["name"] for volume in whole["volumes"]}
    for container in containers(name):
        own = container["securityContext"]
        assert own["readOnlyRootFilesystem"] and own["capabilities"] == {"drop": ["ALL"]}
        assert own["allowPrivilegeEscalation"] is False and "privileged" not in own
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]
        assert container["resources"]["limits"]["memory"]


def test_the_server_is_started_probed_and_drained_as_it_expects() -> None:
    whole, (container,) = pod("server.yaml"), containers("server.yaml")
    given = parser(completing=True).parse_args(["serve", *container["args"]])
    settings = ServerSettings(drain_s=float(given.drain_s), _cli_parse_args=[])
    (port,) = container["ports"]
    assert port["containerPort"] == settings.port_to_listen_on
    stop = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert whole["terminationGracePeriodSeconds"] >= stop + settings.drain_s + settings.last_words_s
    # two routes that answer without a token: tests/pyaici/server/test_operations.py
    paths = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")
    }
    assert paths == {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    image = (ROOT / "scripts" / "docker" / "Dockerfile").read_text()
    assert f"VOLUME {mounts['cache']}" in image and "EXPOSE 8000" in image
    assert given.users == f"{mounts['users']}/users.json"


def test_engine_and_runtime_meet() -> None:
    runtime, engine = containers("vllm.yaml")
    assert pod("vllm.yaml")["shareProcessNamespace"], "each watches the other's process"
    given = parser(completing=True).parse_args([*runtime["command"][1:], *runtime["args"]])
    sockets = {str(given.socket), *(one["value"] for one in engine["env"] if one["name"] == "AICI_SOCKET")}
    assert sockets == {"/run/aici/aici.sock"} and runtime["startupProbe"]["exec"]["command"][-1] in sockets
    for container in (runtime, engine):
        assert {"name": "socket", "mountPath": "/run/aici"} in container["volumeMounts"]


# -- in namespaces with the security context -----------------------------------------------------------------


def contained(name: str, container: dict[str, Any], folder: Path, *command: str) -> list[str]:
    """Returns a command that runs another one as the container's security context says.

    Everything is read-only but `folder`, which is as open as an empty volume is; the user has no capabilities
    and gets none. System calls are not filtered: the filter of a container runtime is not at hand.
    """
    context = pod(name)["securityContext"] | container["securityContext"]
    assert context["readOnlyRootFilesystem"] and context["allowPrivilegeEscalation"] is False
    user, group = context["runAsUser"], context["runAsGroup"]
    script = (
        "set -e; mount --make-rprivate /; mount --bind $0 $0; mount -o remount,bind,ro /; "
        "mount -t tmpfs -o ro tmpfs /dev/shm; "
        f'exec unshare --user --map-user={user} --map-group={group} setpriv --no-new-privs "$@"'
    )
    outer = ["unshare", "--user", "--map-root-user", "--mount"]
    return [*outer, "sh", "-c", script, str(folder), *command]


@pytest.fixture
def volume() -> Iterator[Path]:
    """A folder as Kubernetes makes empty volumes: open for everybody. A short name, as sockets need."""
    with tempfile.TemporaryDirectory(prefix="aici-volume-") as name:
        folder = Path(name)
        folder.chmod(0o2777)
        probe = contained("server.yaml", containers("server.yaml")[0], folder, "true")
        if subprocess.run(probe, check=False, capture_output=True).returncode != 0:
            pytest.skip("this machine allows no user namespaces")
        yield folder


def environment(container: dict[str, Any], folder: Path, **more: str) -> dict[str, str]:
    """Returns the container's variables, with what is in its volumes in the folder."""
    named = {one["name"]: one["value"] for one in container["env"]}
    mine = named | {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        **more,
    }
    return {k: v for k, v in os.environ.items() if not k.startswith(("AICI_", "XDG_"))} | mine


def wait_for(process: subprocess.Popen[bytes], log: Path, words: str) -> str:
    """Returns the rest of the line of the log with these words."""
    until = time.monotonic() + PATIENCE
    while words not in (text := log.read_text()):
        assert process.poll() is None and time.monotonic() < until, text
        time.sleep(0.05)
    return text.partition(words)[2].split("\n")[0]


def tiny_model(folder: Path) -> Path:
    """Writes a model whose tokens are bytes, with a chat template. It is loaded without torch."""
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    return write_gguf(make_model(), folder / "tiny.gguf", template)


def test_the_server_works_in_its_security_context(volume: Path, tmp_path: Path) -> None:
    (container,) = containers("server.yaml")
    model = tiny_model(tmp_path)
    program = [sys.executable, "-m", "pyaici.cli", "serve", "--drain-s", "1", "--log-format", "text"]
    command = contained("server.yaml", container, volume, *program, "--port", "0", "--model", str(model))
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment(container, volume), cwd=ROOT, stdout=output, stderr=output
        )
    try:
        address = wait_for(process, log, "running on ").split(" ")[0]
        body = {"controller": "yesno", "prompt": "Is it?", "stream": False, "max_tokens": 10}
        asked = urllib.request.Request(
            f"{address}/v1/run", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(asked) as answer:
            (fork,) = json.load(answer)["forks"]
        assert fork["error"] is None and fork["text"].strip() in ("Yes", "No")
    finally:
        process.terminate()
        process.wait(PATIENCE)
    assert "Traceback" not in log.read_text()


def test_an_engine_meets_the_runtime_of_another_container(volume: Path, tmp_path: Path) -> None:
    """Both have file systems of their own and share a volume with the socket, and the processes."""
    runtime, engine = containers("vllm.yaml")
    log = tmp_path / "log"
    socket = volume / "aici.sock"
    program = [sys.executable, "-m", *shlex.split("pyaici.cli runtime --workers 1 --socket"), str(socket)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            contained("vllm.yaml", runtime, volume, *program),
            env=environment(runtime, volume),
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )
    try:
        wait_for(process, log, "listening on")
        model = tiny_model(tmp_path)
        arguments = [str(find_controller("yesno")), "--prompt", "Is it?", "--model", str(model), "--json"]
        run = [sys.executable, "-m", "pyaici.cli", "run", *arguments]
        done = subprocess.run(
            contained("vllm.yaml", engine, volume, *run),
            env=environment(engine, volume, AICI_SOCKET=str(socket)),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["forks"][0]["text"].strip() in ("Yes", "No")
        with contextlib.closing(Control(socket)) as control:
            (worker,) = control.call("health")["workers"]
        assert {"landlock", "seccomp", "namespaces"} <= set(worker["sandbox"]), worker
    finally:
        process.terminate()
        process.wait(PATIENCE)
