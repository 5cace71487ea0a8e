"""Controllers in OCI registries: `push` stores one as an artifact, `pull` brings it here and checks it.

A module has the layout of the CNCF's Wasm artifacts, so other tools for WebAssembly can read it. A script
is a layer of a type of its own. The package oras (extra `oci`) speaks to the registry and finds credentials
where `docker login` and `podman login` put them. Its transport is bounded here: a registry may send anything.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import oras.provider
import requests
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from oras.container import Container

from aicirt.contract.errors import ModuleError
from aicirt.system.files import cache_folder, private_directory, read_regular, write_whole
from pyaici.bundled import LANGUAGES, SCHEME, language_of
from pyaici.scripting.script import Script, ScriptFileError, decode_script

#: maximum bytes of a controller; a server's limit for uploads is the same by default
MAX_BYTES = 16 << 20
#: the same of manifests, configurations and answers about tokens: a registry need not take larger ones
_MAX_ANSWER = 4 << 20
#: seconds in which a registry must answer or send something, and those of a whole transfer, beside its bytes
_SILENCE_S, _TRANSFER_S = 30.0, 60.0
#: bytes a second that a transfer must reach
_MIN_RATE = 50_000
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_WASM, _WASM_CONFIG = "application/wasm", "application/vnd.wasm.config.v0+json"
_SCRIPT = "application/vnd.aici.script.v1"
_EMPTY = "application/vnd.oci.empty.v1+json"
_TITLE = "org.opencontainers.image.title"
#: suffixes of files by the type of their layer
_SUFFIXES = {_WASM: ".wasm", **{f"{_SCRIPT}+{one.word}": one.suffixes[0] for one in LANGUAGES}}
#: names of this machine, with which HTTP without TLS is allowed
_HOSTS_HERE = ("localhost", "127.0.0.1", "::1")
_REFERENCE = re.compile(
    r"(?P<registry>(?:[A-Za-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?)/"
    r"(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


class ArtifactError(ModuleError):
    """Reports a registry that cannot be reached or refuses, or an artifact that is not what it should be."""

    code = "artifact"


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an artifact, as in ``oci://registry.example/team/json:1.2``."""

    registry: str
    name: str
    tag: str
    #: ``sha256:`` and 64 digits, or "" for what the tag refers to
    digest: str

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Reads a reference, with or without ``oci://``. Raises ArtifactError."""
        found = _REFERENCE.fullmatch(text.removeprefix(SCHEME))
        if found is None or len(text) > 512:
            raise ArtifactError(
                f"{text!r} is no reference to an artifact: it has the form oci://REGISTRY/NAME:TAG, with a "
                "name in small letters, or oci://REGISTRY/NAME@sha256:DIGEST"
            )
        return cls(found["registry"], found["name"], found["tag"] or "latest", found["digest"] or "")

    def __str__(self) -> str:
        return f"{SCHEME}{self.registry}/{self.name}{f'@{self.digest}' if self.digest else f':{self.tag}'}"

    def within(self, places: Iterable[str]) -> bool:
        """Returns whether one of these registries, or folders of registries, has the artifact."""
        path = f"{self.registry}/{self.name}/"
        return any(path.startswith(f"{place.strip('/')}/") for place in places)

    @property
    def plain(self) -> bool:
        """Says whether the registry is on this machine, where HTTP without TLS is allowed."""
        return re.sub(r":\d+$", "", self.registry).strip("[]") in _HOSTS_HERE


@dataclass(frozen=True, slots=True)
class Artifact:
    """A controller that has been pulled and checked."""

    #: name of the file: what it was called when it was pushed, with the suffix of its kind
    name: str
    content: bytes
    #: of the manifest, by which it was found: ``sha256:`` and 64 digits
    digest: str

    @property
    def script(self) -> Script | None:
        """The script, if it is one. Raises ArtifactError if it is not UTF-8 or too long."""
        if (language := language_of(self.name)) is None:
            return None
        try:
            return decode_script(self.name, language, self.content)
        except ScriptFileError as error:
            raise ArtifactError(str(error)) from None


def push(reference: Reference, path: Path) -> str:
    """Stores a module or script; returns the digest of its manifest, which equal files have in common.

    Raises ArtifactError, and OSError if the file cannot be read.
    """
    content = path.read_bytes()
    if len(content) > MAX_BYTES:
        raise ArtifactError(f"{path} has {len(content)} bytes; a controller has at most {MAX_BYTES}")
    if reference.digest:
        raise ArtifactError("what is pushed gets a tag: leave out the digest")
    language = language_of(path)
    if language is None and not content.startswith(b"\0asm"):
        raise ArtifactError(f"{path} is neither a WebAssembly module nor a script")
    kind = f"{_SCRIPT}+{language.word}" if language else _WASM
    layer = _descriptor(kind, content) | {"annotations": {_TITLE: path.name}}
    config = b"{}" if language else _wasm_config(layer["digest"])
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        **({"artifactType": _SCRIPT} if language else {}),
        "config": _descriptor(_EMPTY if language else _WASM_CONFIG, config),
        "layers": [layer],
    }
    with _failures(reference), _Registry(reference) as registry, tempfile.TemporaryDirectory() as folder:
        for described, data in ((layer, content), (manifest["config"], config)):
            blob = Path(folder, "blob")
            blob.write_bytes(data)
            registry.expect(registry.upload_blob(str(blob), registry.container, described))
        answer = registry.expect(registry.upload_manifest(manifest, registry.container))
        body = answer.request.body
        return _digest(body if isinstance(body, bytes) else str(body).encode())


def pull(reference: Reference, keys: Sequence[Path] = (), most: int = MAX_BYTES) -> Artifact:
    """Fetches and checks a controller of at most `most` bytes.

    `keys`: public keys in PEM, as `cosign generate-key-pair` writes them; one of them must have signed it.
    Raises ArtifactError.
    """
    with _failures(reference), _Registry(reference) as registry:
        body, manifest = registry.manifest(reference.digest or reference.tag)
        digest = _digest(body)
        if reference.digest and digest != reference.digest:
            raise ArtifactError(f"{reference}: the registry sent another manifest, of {digest}")
        if keys:
            _check_signature(registry, digest, keys)
        layer = _only_layer(reference, manifest)
        if layer["size"] > most:
            raise ArtifactError(f"{reference} has {layer['size']} bytes; at most {most} are taken")
        content = registry.blob(layer)
        return Artifact(_file_name(layer), content, digest)


def pulled(name: str, keys: Sequence[Path] = (), *, update: bool = False) -> tuple[Path, str]:
    """Returns the file of a reference in the user's cache, and its digest; pulls it if it is not there.

    A tag stays with the digest that it had when it was pulled first, until `update`: a change in the
    registry changes nothing here. Raises ArtifactError.
    """
    reference = Reference.parse(name)
    folder = cache_folder() / "artifacts"
    try:
        pins = private_directory(folder / "tags")
        # what was checked with some keys, or none, has not been checked with others
        checked = "".join(sorted(_digest(key.read_bytes()) for key in keys))
        pin = pins / _digest(f"{reference} {checked}".encode()).removeprefix("sha256:")
        known = None if update else read_regular(pin, 100, ours=True)
        if known is not None:
            here = folder / known.decode().removeprefix("sha256:")
            files = list(here.iterdir()) if here.is_dir() else []
            if len(files) == 1:
                return files[0], known.decode()
            reference = replace(reference, digest=known.decode())  # the file is gone, the pin is not
        artifact = pull(reference, keys)
        here = private_directory(folder / artifact.digest.removeprefix("sha256:"))
        write_whole(here / artifact.name, artifact.content)
        write_whole(pin, artifact.digest.encode())
    except OSError as error:
        raise ArtifactError(f"cannot keep {name}: {error}") from error
    return here / artifact.name, artifact.digest


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "size": len(content), "digest": _digest(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _wasm_config(layer: str) -> bytes:
    """Returns the configuration of a module: WASI preview 1, made at no particular time."""
    made = {"created": "1970-01-01T00:00:00Z", "architecture": "wasm", "os": "wasip1"}
    return json.dumps({**made, "layerDigests": [layer]}, sort_keys=True).encode()


def _only_layer(reference: Reference, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the descriptor of the controller. Raises ArtifactError for anything that is no controller."""
    layers = manifest.get("layers")
    match layers:
        case [{"mediaType": str(kind), "size": int(size), "digest": str(digest)}] if (
            kind in _SUFFIXES and size >= 0 and re.fullmatch("sha256:[0-9a-f]{64}", digest)
        ):
            return dict(layers[0])
    listed = layers if isinstance(layers, list) else []
    kinds = [str(layer.get("mediaType")) for layer in listed if isinstance(layer, dict)]
    raise ArtifactError(
        f"{reference} is no controller: one has a single layer, {_WASM} or {_SCRIPT}+LANGUAGE; this has "
        f"{', '.join(kinds[:5]) or 'none'}"
    )


def _file_name(layer: Mapping[str, Any]) -> str:
    """Returns a name without folders and odd characters, with the suffix that the layer's type has."""
    suffix = _SUFFIXES[layer["mediaType"]]
    notes = layer.get("annotations")
    title = notes.get(_TITLE) if isinstance(notes, dict) else None
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", Path(str(title or "controller")).stem)[:60] or "controller"
    return stem + suffix


def _check_signature(registry: _Registry, digest: str, keys: Sequence[Path]) -> None:
    """Raises ArtifactError unless one of the keys has signed the digest, as `cosign sign --key` does.

    The signatures are layers of an artifact of its own, whose tag is made of the digest.
    """
    _, signed = registry.manifest(f"{digest.replace(':', '-')}.sig", missing=f"{digest} is not signed")
    public = [_public_key(key) for key in keys]
    for layer in signed.get("layers", [])[:20]:
        match layer:
            case {
                "size": int(size),
                "digest": str(),
                "annotations": {"dev.cosignproject.cosign/signature": str(signature)},
            } if 0 <= size <= _MAX_ANSWER:
                payload = registry.blob(layer)
                if any(_has_signed(key, payload, signature) for key in public) and _signs(payload, digest):
                    return
    raise ArtifactError(f"{digest} has no signature by one of the keys")


def _public_key(path: Path) -> ec.EllipticCurvePublicKey:
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ArtifactError(f"cannot read the public key {path}: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ArtifactError(f"{path} is no ECDSA key, as cosign makes them")
    return key


def _has_signed(key: ec.EllipticCurvePublicKey, payload: bytes, signature: str) -> bool:
    try:
        key.verify(base64.b64decode(signature), payload, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def _signs(payload: bytes, digest: str) -> bool:
    """Returns whether a payload in Red Hat's format of simple signing is about this digest."""
    try:
        match json.loads(payload):
            case {"critical": {"image": {"docker-manifest-digest": str(found)}}}:
                return found == digest
    except ValueError:
        pass
    return False


def _credentials() -> list[Path]:
    """Returns where docker and podman keep credentials if they are told to, and where podman does anyway."""
    named = (("DOCKER_CONFIG", "config.json"), ("REGISTRY_AUTH_FILE", ""))
    found = [Path(os.environ[name], file) for name, file in named if os.environ.get(name)]
    home = os.environ.get("XDG_RUNTIME_DIR") or Path.home() / ".config"
    return [*found, Path(home, "containers", "auth.json")]


class _Registry(oras.provider.Registry):  # type: ignore[misc] # the package has no types
    """A connection to the registry of a reference. A context manager."""

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference.registry, insecure=reference.plain)
        self.session = self.auth.session = _Session()
        self.auth.prefix = self.prefix
        self.container = Container(str(reference).removeprefix(SCHEME))
        # beside ~/.docker/config.json
        self.auth.load_configs(self.container, [str(path) for path in _credentials() if path.is_file()])

    def __enter__(self) -> _Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self.session.close()

    def do_request(
        self, url: str, method: str = "GET", headers: dict[str, str] | None = None, **options: Any
    ) -> requests.Response:
        """Sends a request, at most three times. The class above waits two minutes for one that is not there.

        Raises ArtifactError if the registry wants other credentials.
        """
        headers = {**(headers or {}), **self.auth.get_auth_header()}
        for attempt in range(3):
            answer: requests.Response = self.session.request(method, url, headers=headers, **options)
            asked = answer.headers.get("WWW-Authenticate", "")
            if answer.status_code not in (401, 403) or not asked:
                break
            if asked.lower().startswith("basic"):
                if attempt or not (known := getattr(self.auth, "_basic_auth", "")):
                    break
                headers["Authorization"] = f"Basic {known}"
            elif 'realm="' in asked:
                headers, changed = self.auth.authenticate_request(answer, headers, refresh=attempt > 0)
                if not changed:
                    break
        if answer.status_code in (401, 403):
            raise ArtifactError(
                f"{self.container} needs other credentials: docker login {self.container.registry}, or podman"
            )
        return answer

    def expect(self, answer: requests.Response, missing: str = "") -> requests.Response:
        """Returns the answer. Raises ArtifactError with the registry's reason if it is an error."""
        if answer.status_code in (200, 201, 202):
            return answer
        if answer.status_code == 404:
            raise ArtifactError(missing or f"the registry has no {self.container}")
        try:
            reasons = [str(error.get("message")) for error in answer.json()["errors"]]
        except (ValueError, LookupError, TypeError, AttributeError):
            reasons = [answer.reason or "no reason"]
        raise ArtifactError(
            f"{self.container}: the registry says {'; '.join(reasons)[:500]} ({answer.status_code})"
        )

    def manifest(self, name: str, missing: str = "") -> tuple[bytes, Mapping[str, Any]]:
        """Returns the bytes and the value of a manifest of this repository. Raises ArtifactError."""
        url = f"{self.prefix}://{self.container.manifest_url(name)}"
        body = self.expect(self.do_request(url, headers={"Accept": _MANIFEST}), missing).content
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ArtifactError(f"{self.container}: the manifest of the registry is no JSON object")
        return body, found

    def blob(self, layer: Mapping[str, Any]) -> bytes:
        """Returns the content of a descriptor, after checking its size and digest. Raises ArtifactError."""
        answer = self.expect(self.get_blob(self.container, quote(layer["digest"], safe=":"), stream=True))
        content = _read_answer(answer, layer["size"])
        if len(content) != layer["size"] or _digest(content) != layer["digest"]:
            raise ArtifactError(f"{self.container}: what the registry sent is not {layer['digest']}")
        return content


class _Session(requests.Session):
    """Requests with bounded answers and times, and without TLS to this machine alone."""

    def request(self, method: str, url: str, **options: Any) -> requests.Response:  # type: ignore[override]
        streamed = options.pop("stream", False)
        answer = super().request(method, url, **{"timeout": _SILENCE_S, **options, "stream": True})
        if not streamed:
            answer._content = _read_answer(answer, _MAX_ANSWER)
        return answer

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        parts = urlsplit(request.url or "")
        if parts.scheme != "https" and parts.hostname not in _HOSTS_HERE:
            raise ArtifactError(f"the registry sends requests to {parts.hostname} without TLS")
        return super().send(request, **options)


def _read_answer(answer: requests.Response, most: int) -> bytes:
    """Reads the content. Raises ArtifactError for more than `most` bytes, or if it takes too long."""
    until = time.monotonic() + _TRANSFER_S + most / _MIN_RATE
    found = bytearray()
    for part in answer.iter_content(1 << 16):
        found += part
        if len(found) > most:
            raise ArtifactError(f"{urlsplit(answer.url).netloc} sends more than {most} bytes")
        if time.monotonic() > until:
            raise ArtifactError(f"{urlsplit(answer.url).netloc} is too slow: {len(found)} bytes so far")
    return bytes(found)


@contextlib.contextmanager
def _failures(reference: Reference) -> Iterator[None]:
    """Raises errors of the transport, and of answers that make no sense, as ArtifactError."""
    try:
        yield
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"cannot reach {reference.registry}: {error}") from error
