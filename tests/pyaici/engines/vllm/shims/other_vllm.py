"""A copy of the installed vLLM that says to be another version, or in which something has another name.

``python -m tests.pyaici.engines.vllm.shims.other_vllm MODEL``, with the copy in PYTHONPATH, runs a request
without and one with a controller in this process, and prints what happened as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

from tests.pyaici.engines.vllm.engines import ENVIRONMENT, Engines


def make_other_vllm(
    folder: Path, *, version: str | None = None, renamed: dict[str, str] | None = None
) -> Path:
    """Makes the copy in `folder`, mostly of links. Returns the value of PYTHONPATH for processes that use it.

    `renamed`: new names of functions, by their present names; the copy itself calls them by the new ones.
    """
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None
    original, copy = Path(spec.origin).parent, folder / "vllm"
    shutil.copytree(original, copy, copy_function=os.symlink)
    texts = {}
    if version is not None:
        texts[copy / "_version.py"] = f"__version__ = {version!r}\n__version_tuple__ = (0, 0, {version!r})\n"
    for old, new in (renamed or {}).items():
        for file in copy.rglob("*.py"):
            if old in (text := texts.get(file) or file.read_text("utf-8")):
                texts[file] = text.replace(old, new)
    for file, text in texts.items():
        file.unlink()  # a link
        file.write_text(text, "utf-8")
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def main(model: Path) -> None:
    """Runs the requests."""
    os.environ.update(ENVIRONMENT)
    from vllm.exceptions import VLLMValidationError

    from tests.pyaici.engines.vllm.requests import FRANCE, generate, parameters

    engines = Engines(model)
    llm = engines()
    scheduler = type(llm.llm_engine.engine_core.engine_core.scheduler)
    (free,) = generate(llm, [(FRANCE, parameters(max_tokens=10))])
    try:
        generate(llm, [(FRANCE, parameters("regex", "[0-9]+"))])
        why = None
    except VLLMValidationError as error:
        why = str(error)
    print(json.dumps({"scheduler": scheduler.__name__, "free": list(free.token_ids), "why": why}))
    engines.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
