"""Imports the real Python of a published wheel of SGLang on a machine without a GPU.

The wheel's own modules run, with stand-ins for packages that only its kernels, pictures and notebooks need,
and for the modules with kernels. Use it in a process of its own: SGLang changes other libraries.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import os
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

from lab.system.fetch import ENGINES, engine_python
from tests.structure import ROOT

#: the version whose interface the backend uses
VERSION = next(iter(ENGINES["sglang"]))
#: packages that are not installed here, of which the tests need nothing but `orjson`
_PACKAGES = ("IPython", "orjson", "torchvision", "triton")
#: modules of SGLang that compile or load kernels
_KERNELS = ("sglang.kernels", "sglang.srt.layers")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        stands_in = name.partition(".")[0] in _PACKAGES or name.startswith(_KERNELS)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if stands_in else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = MagicMock(name=spec.name)
        module.__path__ = []
        if spec.name == "orjson":
            module.loads, module.dumps = json.loads, lambda value, *_, **__: json.dumps(value).encode()
        found: ModuleType = module
        return found

    def exec_module(self, module: ModuleType) -> None:
        pass


def import_sglang(folder: str, env: dict[str, str]) -> None:
    """Makes SGLang's modules importable, and has it load its plugins as each of its processes does.

    `folder`: for the metadata of a distribution with our entry points, as it is installed.
    """
    import torch._inductor.runtime.triton_compat
    import torch.utils._runtime_estimation
    import transformers

    os.environ.update(env)
    # these look for triton, which must be missing for them
    torch.compile(lambda x: x)
    _ = transformers.AutoProcessor
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = Path(folder, "aici_plugin-1.dist-info")
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: aici-plugin\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
            for group, names in groups.items()
            if group.startswith("sglang")
        )
    )
    sys.path[:0] = [folder, str(engine_python("sglang", VERSION))]
    sys.meta_path.insert(0, _Finder())
    logging.getLogger("sglang").setLevel(logging.CRITICAL)
    from sglang.srt.plugins import load_plugins

    load_plugins()


def run_case(name: str, *args: Any) -> Any:
    """Runs a function of the module `cases`."""
    return getattr(importlib.import_module("tests.pyaici.engines.vllm.sglang.cases"), name)(*args)
