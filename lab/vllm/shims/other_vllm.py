"""A copy of the installed vLLM in which something has another name."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path


def make_other_vllm(folder: Path, renamed: dict[str, str]) -> str:
    """Makes the copy in `folder`, mostly of links. Returns the value of PYTHONPATH for processes that use it.

    `renamed`: new names of functions, by their present names; the copy itself calls them by the new ones.
    """
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None
    original, copy = Path(spec.origin).parent, folder / "vllm"
    shutil.copytree(original, copy, copy_function=os.symlink)
    texts: dict[Path, str] = {}
    for old, new in renamed.items():
        for file in copy.rglob("*.py"):
            if old in (text := texts.get(file) or file.read_text("utf-8")):
                texts[file] = text.replace(old, new)
    for file, text in texts.items():
        file.unlink()  # a link
        file.write_text(text, "utf-8")
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
