"""vLLM has the names that AICI relies on; with another vLLM, requests with a controller are refused."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from lab.system.forked import VLLM, run_forked
from lab.vllm.server import MODEL, Servers
from lab.vllm.shims.other_vllm import make_other_vllm
from pyaici.engines.vllm.plugin import Sources, differences, find_by_import
from tests.docs.blocks import ROOT
from tests.pyaici.engines.vllm.requests import FRANCE, YEAR

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


def missing(_: Any) -> list[str]:
    return differences(find_by_import)


@pytest.mark.configuration("v2-async")
def test_the_imported_modules_have_all_names(on_v2: Callable[..., Any]) -> None:
    """In the process of engines with runner V2, because its modules need Triton."""
    assert on_v2(missing) == []


#: runs a request without and one with a controller in this process, and prints what happened as JSON
_OTHER_VERSION = """
import json
import sys
from pathlib import Path

import vllm
from vllm.exceptions import VLLMValidationError

from lab.vllm.engines import Engines
from tests.pyaici.engines.vllm.requests import FRANCE, generate, parameters

vllm.__version__ = "0.99.0"
engines = Engines(Path(sys.argv[1]))
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
"""


@pytest.mark.real_worker
def test_another_version_runs_free_requests_and_refuses_others(
    model_path: Path, tmp_path: Path, reference: Callable[..., list[list[int]]]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_OTHER_VERSION)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    ran = run_forked(str(program), str(model_path), imports=VLLM, env={**os.environ, "PYTHONPATH": path})
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert not found["scheduler"].startswith("Aici") and [found["free"]] == reference([FRANCE], 10)
    assert found["why"].startswith("controllers cannot be used: this is vLLM 0.99.0, and AICI supports ")


# the test before this one proves most of it, and test_vllm_compatibility.py how missing names are found
@pytest.mark.thorough
@pytest.mark.real_worker
def test_a_missing_name_is_reported_once_and_refuses_requests_with_a_controller(
    servers: Servers, tmp_path: Path, reference: Callable[..., list[list[int]]]
) -> None:
    path = make_other_vllm(tmp_path, {"_enqueue_waiting_request": "_enqueue_again"})
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
