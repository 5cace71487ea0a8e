"""vLLM has the names that AICI relies on; with another vLLM, requests with a controller are refused."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from pyaici.engines.vllm.versions.compatibility import Sources, differences
from tests.docs.blocks import ROOT
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR
from tests.pyaici.engines.vllm.server import MODEL, Servers
from tests.pyaici.engines.vllm.shims.other_vllm import make_other_vllm

pytestmark = pytest.mark.slow


def test_the_source_has_all_names() -> None:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None
    assert differences(Sources(Path(spec.origin).parent).find) == []


def test_places_that_the_page_names_are_in_the_source() -> None:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parents[1]
    places = re.findall(r"\(`(\w+)` in `(vllm/[^`]+)`\)", (ROOT / "docs" / "vllm.md").read_text())
    assert (
        places
        and [place for place in places if not re.search(rf"\b{place[0]}\b", (folder / place[1]).read_text())]
        == []
    )


def test_the_imported_modules_have_all_names() -> None:
    """In another process, because the modules of runner V2 need Triton."""
    code = (
        "from tests.pyaici.engines.vllm.shims import triton_interpreter\n"
        "triton_interpreter.install()\n"
        "from pyaici.engines.vllm.versions.compatibility import differences, find_by_import\n"
        "print(differences(find_by_import))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.stdout.splitlines()[-1:] == ["[]"], ran.stdout[-3000:] + ran.stderr[-3000:]


def test_another_version_runs_free_requests_and_refuses_others(
    model_path: Path, tmp_path: Path, reference: Callable[..., list[list[int]]]
) -> None:
    path = make_other_vllm(tmp_path, version="0.99.0")
    command = [sys.executable, "-m", "tests.pyaici.engines.vllm.shims.other_vllm", str(model_path)]
    ran = subprocess.run(
        ["env", f"PYTHONPATH={path}", *command], capture_output=True, text=True, timeout=400, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert not found["scheduler"].startswith("Aici") and [found["free"]] == reference([FRANCE], 10)
    assert found["why"].startswith("controllers cannot be used: this is vLLM 0.99.0, and AICI supports ")


def test_a_missing_name_is_reported_once_and_refuses_requests_with_a_controller(
    servers: Servers, tmp_path: Path, reference: Callable[..., list[list[int]]]
) -> None:
    path = make_other_vllm(tmp_path, renamed={"_enqueue_waiting_request": "_enqueue_again"})
    server = servers(PYTHONPATH=path, VLLM_LOGGING_LEVEL="WARNING")
    settings: Any = {"model": MODEL, "prompt": FRANCE, "temperature": 0, "max_tokens": 10}
    extra: Any = {"vllm_xargs": {"aici_controller": "regex", "aici_arg": YEAR}}
    why = r"Scheduler\._enqueue_waiting_request is missing"
    create = server.client.completions.create
    with pytest.raises(openai.BadRequestError, match=why):
        create(**settings, extra_body=extra)
    with pytest.raises(openai.APIError, match=why):
        list(create(**settings, extra_body=extra, stream=True))
    free: Any = create(**settings, extra_body={"return_token_ids": True})
    assert [free.choices[0].token_ids] == reference([FRANCE], 10)
    log = server.log.read_text(errors="replace")
    assert log.count("requests without a controller run as usual") == 1, log[-3000:]
