"""Artifacts in a real registry, Debian's docker-registry, and in one that lies."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import oras.client
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lab.runners.compiled import share
from lab.servers.registry import running_registry
from pyaici import artifacts
from pyaici.artifacts import MAX_BYTES, ArtifactError, Reference
from pyaici.bundled import find_controller
from pyaici.cli.__main__ import main

SCRIPT = 'from aici import *\n\nasync def main():\n    await force("It is ")\n    await gen(regex="[0-9]+")\n'
Answer = tuple[int, dict[str, str], bytes]
#: the address of a registry, and a function that says what it answers to a path
Liar = tuple[str, Callable[[Callable[[str], Answer]], None]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("AICI_STORE", str(share(tmp_path / "store")))
    for name in ("AICI_OCI_KEYS", "AICI_SOCKET", "AICI_SERVER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def program() -> None:
    if shutil.which("docker-registry") is None:
        pytest.skip("no docker-registry: scripts/servers.sh fetches it")


@pytest.fixture(scope="module")
def registry(program: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "count.py"
    path.write_text(SCRIPT)
    return path


def pushed(address: str, path: Path, name: str) -> Reference:
    """Pushes a file; returns the reference with its tag."""
    reference = Reference.parse(f"{address}/{name}")
    artifacts.push(reference, path)
    return reference


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


# -- with a real registry ------------------------------------------------------------------------------------


def test_a_module_is_an_artifact_as_the_cncf_describes_it(registry: str, tmp_path: Path) -> None:
    """The client of oras reads it, which knows nothing of this project."""
    module = find_controller("yesno")
    reference = pushed(registry, module, "team/yesno:1.0")
    client = oras.client.OrasClient(insecure=True)
    target = str(reference).removeprefix("oci://")
    manifest = client.get_manifest(target)
    assert manifest["config"]["mediaType"] == "application/vnd.wasm.config.v0+json"
    (layer,) = manifest["layers"]
    digest = f"sha256:{hashlib.sha256(module.read_bytes()).hexdigest()}"
    assert (layer["mediaType"], layer["digest"]) == ("application/wasm", digest)
    container = client.get_container(target)
    config = client.get_blob(container, manifest["config"]["digest"]).json()
    assert (config["architecture"], config["os"], config["layerDigests"]) == ("wasm", "wasip1", [digest])
    (file,) = client.pull(target=target, outdir=str(tmp_path / "out"))
    assert (Path(file).name, Path(file).read_bytes()) == ("yesno.wasm", module.read_bytes())


def test_the_same_file_has_the_same_digest(registry: str, script: Path) -> None:
    first, second = (artifacts.push(Reference.parse(f"{registry}/same:{tag}"), script) for tag in "ab")
    assert first == second
    pulled = artifacts.pull(Reference.parse(f"{registry}/same@{first}"))
    assert (pulled.name, pulled.content.decode(), pulled.digest) == ("count.py", SCRIPT, first)


def test_what_other_tools_have_pushed_is_a_controller(registry: str, tmp_path: Path) -> None:
    module = tmp_path / "odd name.of a.wasm"
    shutil.copy(find_controller("yesno"), module)
    client = oras.client.OrasClient(insecure=True)
    client.push(f"{registry}/by-others:1", files=[f"{module}:application/wasm"], disable_path_validation=True)
    found = artifacts.pull(Reference.parse(f"oci://{registry}/by-others:1"))
    assert found.content == module.read_bytes() and found.name == "odd_name_of_a.wasm"


def test_commands_take_references(
    registry: str, script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(script), f"{registry}/count:1"]) == 0
    (whole,) = lines(capsys)
    assert re.fullmatch(rf"oci://{registry}/count@sha256:[0-9a-f]{{64}}", whole)
    for reference in (whole, f"oci://{registry}/count:1"):
        assert main(["check", reference]) == 0
    assert main(["upload", f"oci://{registry}/count:1", "--tag", "count"]) == 0
    capsys.readouterr()
    assert main(["list"]) == 0
    assert "count" in capsys.readouterr().out
    assert main(["push", "yesno", f"oci://{registry}/yesno:1"]) == 0
    assert main(["check", lines(capsys)[0]]) == 0


def test_a_tag_stays_with_its_digest_until_it_is_pulled_again(
    registry: str, script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = str(pushed(registry, script, "moving:latest"))
    first, digest = artifacts.pulled(reference)
    script.write_text(SCRIPT.replace("It is", "They are"))
    pushed(registry, script, "moving:latest")
    assert artifacts.pulled(reference) == (first, digest) and first.read_text() == SCRIPT
    shutil.rmtree(first.parent)  # the digest holds, even if the file is gone
    assert artifacts.pulled(reference) == (first, digest) and first.read_text() == SCRIPT
    assert main(["pull", reference]) == 0
    now = artifacts.pulled(reference)
    assert lines(capsys) == [f"{now[0]}  {now[1]}"] and now[1] != digest
    assert "They are" in now[0].read_text()


def test_what_was_pulled_needs_no_registry(program: None, script: Path, tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir()
    with running_registry(tmp_path / "registry") as address:
        reference = str(pushed(address, script, "kept:1"))
        kept = artifacts.pulled(reference)
    assert artifacts.pulled(reference) == kept
    with pytest.raises(ArtifactError, match=f"cannot reach {address}"):
        artifacts.pulled(reference, update=True)


def test_credentials_come_from_the_usual_file(program: None, tmp_path: Path, script: Path) -> None:
    folder = tmp_path / "registry"
    folder.mkdir()
    # a published test vector of bcrypt: the hash of U*U
    (folder / "users").write_text("reader:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n")
    with running_registry(
        folder, f"auth: {{htpasswd: {{realm: here, path: {folder / 'users'}}}}}\n"
    ) as address:
        reference = Reference.parse(f"{address}/private:1")
        with pytest.raises(ArtifactError, match=f"needs other credentials: docker login {address}"):
            artifacts.push(reference, script)
        for word, allowed in (("wrong", False), ("U*U", True)):
            (tmp_path / "docker").mkdir(exist_ok=True)
            known = base64.b64encode(f"reader:{word}".encode()).decode()
            (tmp_path / "docker" / "config.json").write_text(
                json.dumps({"auths": {address: {"auth": known}}})
            )
            if allowed:
                artifacts.push(reference, script)
                assert artifacts.pull(reference).content.decode() == SCRIPT
            else:
                with pytest.raises(ArtifactError, match="needs other credentials"):
                    artifacts.push(reference, script)


def sign(
    reference: Reference, digest: str, key: ec.EllipticCurvePrivateKey, tmp_path: Path, about: str = ""
) -> None:
    """Signs a digest as `cosign sign --key` does: an artifact whose tag names the digest."""
    payload = json.dumps({"critical": {"image": {"docker-manifest-digest": about or digest}}}).encode()
    (tmp_path / "payload").write_bytes(payload)
    (tmp_path / "annotations").write_text(
        json.dumps(
            {
                str(tmp_path / "payload"): {
                    "dev.cosignproject.cosign/signature": base64.b64encode(
                        key.sign(payload, ec.ECDSA(hashes.SHA256()))
                    ).decode()
                }
            }
        )
    )
    oras.client.OrasClient(insecure=True).push(
        f"{reference.registry}/{reference.name}:{digest.replace(':', '-')}.sig",
        files=[f"{tmp_path / 'payload'}:application/vnd.dev.cosign.simplesigning.v1+json"],
        annotation_file=str(tmp_path / "annotations"),
        disable_path_validation=True,
    )


def test_signatures_are_checked(
    registry: str, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ours", "theirs")}
    files = {}
    for name, key in keys.items():
        files[name] = tmp_path / f"{name}.pub"
        files[name].write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
    reference = Reference.parse(f"{registry}/signed:1")
    digest = artifacts.push(reference, script)
    known = artifacts.pulled(str(reference))  # without keys
    for word in ("not signed", "no signature by one of the keys", "no signature by one of the keys"):
        with pytest.raises(ArtifactError, match=word):
            artifacts.pulled(str(reference), [files["ours"]])
        if word == "not signed":
            sign(reference, digest, keys["theirs"], tmp_path)
        else:  # by the right key, but about something else
            sign(reference, digest, keys["ours"], tmp_path, about="sha256:" + "0" * 64)
    sign(reference, digest, keys["ours"], tmp_path)
    assert artifacts.pulled(str(reference), [files["theirs"], files["ours"]]) == known
    monkeypatch.setenv("AICI_OCI_KEYS", f"{files['theirs']}:{tmp_path / 'none'}")
    assert main(["check", str(reference)]) == 1


# -- with a registry that lies -------------------------------------------------------------------------------


@pytest.fixture
def liar() -> Iterator[Liar]:
    answers: list[Callable[[str], Answer]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answers[-1](self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", answers.append
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def manifest_of(*layers: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 2, "config": {}, "layers": layers}).encode()


def layer_of(content: bytes, **other: Any) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"mediaType": "application/wasm", "size": len(content), "digest": digest} | other


WASM = b"\0asm and more"
LIES: dict[str, tuple[bytes, bytes, str]] = {
    "other bytes": (manifest_of(layer_of(WASM)), b"\0asm and MORE", "is not sha256:"),
    "fewer bytes": (manifest_of(layer_of(WASM)), WASM[:-1], "is not sha256:"),
    "more bytes": (manifest_of(layer_of(WASM)), WASM * 2, f"more than {len(WASM)} bytes"),
    "a huge size": (manifest_of(layer_of(WASM, size=1 << 40)), WASM, f"at most {MAX_BYTES} are taken"),
    "a size below zero": (manifest_of(layer_of(WASM, size=-1)), WASM, "is no controller"),
    "a size that is a word": (manifest_of(layer_of(WASM, size="12")), WASM, "is no controller"),
    "a digest with a path": (manifest_of(layer_of(WASM, digest="../../x")), WASM, "is no controller"),
    "another kind": (manifest_of(layer_of(WASM, mediaType="text/html")), WASM, "text/html"),
    "two layers": (manifest_of(layer_of(WASM), layer_of(WASM)), WASM, "is no controller"),
    "no layers": (manifest_of(), WASM, "this has none"),
    "layers that are no list": (b'{"layers": 3}', WASM, "is no controller"),
    "an index": (b'{"schemaVersion": 2, "manifests": []}', WASM, "is no controller"),
    "no JSON": (b"<html>", WASM, "no JSON object"),
    "deep JSON": (b"[" * 100_000, WASM, "no JSON object"),
    "a huge manifest": (b" " * (5 << 20), WASM, "sends more than"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_found(liar: Liar, lie: str) -> None:
    address, answer = liar
    manifest, blob, problem = LIES[lie]
    answer(lambda path: (200, {}, manifest if "/manifests/" in path else blob))
    with pytest.raises(ArtifactError, match=re.escape(problem)):
        artifacts.pulled(f"oci://{address}/lies:1")


def test_another_manifest_than_the_digest_is_refused(
    liar: Liar,
) -> None:
    address, answer = liar
    answer(lambda path: (200, {}, manifest_of(layer_of(WASM)) if "/manifests/" in path else WASM))
    with pytest.raises(ArtifactError, match="sent another manifest"):
        artifacts.pull(Reference.parse(f"{address}/lies@sha256:{'0' * 64}"))


@pytest.mark.parametrize(
    ("status", "headers", "problem"),
    [
        (302, {"Location": "http://registry.example/v2/"}, "registry.example without TLS"),
        (302, {"Location": "file:///etc/passwd"}, "without TLS"),
        (302, {"Location": "/v2/lies/manifests/1"}, "cannot reach"),  # without end
        (401, {"WWW-Authenticate": 'Bearer realm="http://other.example/token"'}, "other.example without TLS"),
        (401, {"WWW-Authenticate": "Bearer"}, "needs other credentials"),
        (401, {"WWW-Authenticate": 'Basic realm="here"'}, "needs other credentials"),
        (403, {}, "needs other credentials"),
        (404, {}, "has no"),
        (429, {}, "429"),
        (500, {}, "500"),
    ],
)
def test_answers_that_are_errors_are_named(
    liar: Liar,
    status: int,
    headers: dict[str, str],
    problem: str,
) -> None:
    address, answer = liar
    answer(lambda _: (status, headers, b'{"errors": [{"message": "no"}]}'))
    with pytest.raises(ArtifactError, match=problem):
        artifacts.pull(Reference.parse(f"{address}/lies:1"))


def test_a_registry_that_trickles_is_given_up(liar: Liar, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is the test's own: each look at the clock is a minute later."""
    address, answer = liar
    answer(lambda path: (200, {}, manifest_of(layer_of(WASM)) if "/manifests/" in path else WASM))
    minutes = iter(range(0, 1 << 20, 60))
    monkeypatch.setattr("pyaici.artifacts.time.monotonic", lambda: float(next(minutes)))
    monkeypatch.setattr("pyaici.artifacts._TRANSFER_S", 30.0)
    with pytest.raises(ArtifactError, match="is too slow"):
        artifacts.pull(Reference.parse(f"{address}/slow:1"))


# -- references and files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("registry.example/a", "oci://registry.example/a:latest"),
        ("oci://127.0.0.1:5000/a/b-c:1.0", "oci://127.0.0.1:5000/a/b-c:1.0"),
        (f"localhost/a:1@sha256:{'0' * 64}", f"oci://localhost/a@sha256:{'0' * 64}"),
        ("[::1]:5000/a:v1", "oci://[::1]:5000/a:v1"),
    ],
)
def test_references(text: str, whole: str) -> None:
    reference = Reference.parse(text)
    assert str(reference) == whole
    assert reference.plain == ("registry" not in text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "oci://",
        "a",
        "https://r/a",
        "r/A",
        "r/../a",
        "r/a:",
        "r/a@sha256:12",
        "r/a b",
        "u@r/a",
        "r/a\n",
        "r//a",
        "r/a?b",
    ],
)
def test_odd_references_are_refused(text: str) -> None:
    with pytest.raises(ArtifactError, match="no reference to an artifact"):
        Reference.parse(text)


@pytest.mark.parametrize(
    ("title", "name"),
    [("../../etc/x.sh", "x.wasm"), ("", "controller.wasm"), ("é" * 300, "_" * 60 + ".wasm"), (3, "3.wasm")],
)
def test_names_of_files_are_harmless(liar: Liar, title: object, name: str, tmp_path: Path) -> None:
    address, answer = liar
    layer = layer_of(WASM, annotations={"org.opencontainers.image.title": title})
    answer(lambda path: (200, {}, manifest_of(layer) if "/manifests/" in path else WASM))
    file, digest = artifacts.pulled(f"oci://{address}/named:1")
    assert file.name == name and file.is_relative_to(tmp_path / "cache")
    assert file.parent.name == digest.removeprefix("sha256:")


def test_what_is_no_controller_is_not_pushed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("notes")
    huge = tmp_path / "huge.wasm"
    huge.write_bytes(b"\0asm" + bytes(MAX_BYTES))
    for path, problem in ((other, "neither a WebAssembly module nor a script"), (huge, "at most")):
        assert main(["push", str(path), "127.0.0.1:9/x"]) == 1
        assert problem in capsys.readouterr().err
    with pytest.raises(ArtifactError, match="leave out the digest"):
        artifacts.push(Reference.parse(f"127.0.0.1:9/x@sha256:{'0' * 64}"), find_controller("yesno"))
