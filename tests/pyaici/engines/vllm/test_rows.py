"""Biases, temperatures and the allowed mass of controllers, compared with the engine on Transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.vllm.engines import OPTIONS
from pyaici import VllmEngine
from pyaici.engines.engine import Request, Sampling
from pyaici.engines.vllm.frontend import rows_refusal
from tests.pyaici.engines.vllm.configurations import ConfiguredEngines
from tests.pyaici.engines.vllm.requests import FRANCE, counter, generate, parameters
from tests.thorough import also, cases

pytestmark = pytest.mark.slow

STORY = "Once upon a time"
TOKENS = 16
#: arguments of the controller `tilt`, {} for a token of the model's own text. None has a temperature above 0,
#: so texts of all engines are equal
GREEDY = [
    "sparse - {0} -30 {1} -30",
    "sparse - {0} -30 700 60 700 -20",
    "only - {0} 0 {1} 3.5 300 1 450 1.5",
    "dense - {0} -2.5 {2} -30 900 1.25",
    "say - 701 500 702 500 703 500",
    "all g",
    "sparse g {0} -30",
    "only 0.7 420 -5",
]


@pytest.fixture(scope="session", autouse=True)
def uploaded(guests: Callable[..., None]) -> None:
    guests("tilt", "tilt_mass")


@dataclass
class Expected:
    """The results of the engine on Transformers."""

    #: arguments of `tilt`, and the tokens under each
    args: list[str]
    tokens: list[list[int]]
    #: tokens without a controller
    free: list[int]
    #: tokens under each argument, and the masses that `tilt_mass` has printed
    measured: list[tuple[list[int], list[float]]]


def masses(results: list[Any]) -> list[tuple[list[int], list[float]]]:
    assert [result.error for result in results] == [None] * len(results)
    return [(result.new_tokens, [float(line) for line in result.log.split()]) for result in results]


def measuring(args: list[str], count: int = TOKENS) -> list[Request]:
    return [Request(FRANCE, controller="tilt_mass", arg=arg, max_tokens=count) for arg in args]


@pytest.fixture(scope="session")
def expected(hf: Any, uploaded: None) -> Expected:
    (free,) = hf.run([Request(FRANCE, max_tokens=TOKENS)])
    own = list(dict.fromkeys(free.new_tokens))
    args = [arg.format(*own) for arg in GREEDY]
    requests = [Request(FRANCE, controller="tilt", arg=arg, max_tokens=TOKENS) for arg in args]
    tokens = [result.new_tokens for result in hf.run(requests)]
    measured = masses(hf.run(measuring(args)))
    assert tokens == [each for each, _ in measured]
    assert [each == free.new_tokens for each in tokens] == [arg == "all g" for arg in args]
    assert tokens[4][:3] == [701, 702, 703]
    return Expected(args, tokens, free.new_tokens, measured)


def write(llm: Any, args: list[str], count: int = TOKENS) -> tuple[list[list[int]], bool]:
    """Returns the tokens under `tilt`, and whether requests without a controller were not affected."""
    others = [
        (STORY, parameters(max_tokens=count)),
        (STORY, hot(seed=5, max_tokens=count)),
        (FRANCE, hot(seed=6, max_tokens=count)),
    ]
    alone = [list(choice.token_ids) for choice in generate(llm, others)]
    requests = [(FRANCE, parameters("tilt", arg, max_tokens=count)) for arg in args]
    # the second half has no greedy neighbour without a controller
    half = len(args) // 2
    first = generate(llm, [*requests[:half], *others])
    second = generate(llm, [others[1], *requests[half:], others[2]])
    made = [list(choice.token_ids) for choice in [*first[:half], *second[1:-1]]]
    beside = [list(choice.token_ids) for choice in [*first[half:], second[0], second[-1]]]
    return made, beside == [*alone, alone[1], alone[2]]


def hot(arg: str = "", temperature: float = 2.0, seed: int = 7, **options: Any) -> Any:
    """Returns parameters for sampling with a seed, under `tilt` if there is an argument."""
    settings = {"temperature": temperature, "seed": seed, "max_tokens": TOKENS, **options}
    return parameters("tilt" if arg else "", arg, **settings)


def write_hot(llm: Any, count: int = TOKENS) -> dict[str, list[int]]:
    """Returns the tokens of requests whose controllers set temperatures, alone and together."""
    requests = {
        "free": hot(max_tokens=count),
        "controlled, colder request": hot("all 2", 0.3, max_tokens=count),
        "controlled, greedy request": hot("all 2", 0.0, max_tokens=count),
        "another seed": hot("all 2", 0.0, seed=8, max_tokens=count),
        "colder": hot("all 0.0001", max_tokens=count),
        "greedy": hot("all g", max_tokens=count),
        "alternating": hot("all h", 0.0, max_tokens=count),
    }
    alone = {name: list(generate(llm, [(FRANCE, each)])[0].token_ids) for name, each in requests.items()}
    together = generate(llm, [(FRANCE, each) for each in requests.values()])
    assert [list(choice.token_ids) for choice in together] == list(alone.values())
    return alone


def check_hot(tokens: dict[str, list[int]], expected: Expected) -> None:
    assert tokens["controlled, colder request"] == tokens["controlled, greedy request"] == tokens["free"]
    greedy = expected.free[: len(tokens["free"])]
    assert tokens["free"] not in (tokens["another seed"], greedy)
    assert tokens["greedy"] == tokens["colder"] == greedy
    assert tokens["alternating"][0] == greedy[0] and tokens["alternating"] != greedy


def cut(llm: Any, count: int = TOKENS, *more: Any) -> dict[str, list[int]]:
    """Returns the tokens of requests whose controllers leave out tokens, beside others (`more`)."""
    requests = {
        "free": hot(max_tokens=count),
        "none left out": hot("all -/min_p=1e-30", min_p=1.0, max_tokens=count),
        "wider": hot("all -/top_k=1000000", top_k=1, max_tokens=count),
        "wide": hot("all -/top_p=1", top_p=0.000001, max_tokens=count),
        **{option: hot(f"all -/{option}", max_tokens=count) for option in NARROW},
        "greedy request": hot("all 2/min_p=1", 0.0, max_tokens=count),
        "beside min_p of the request": hot("all -/top_p=0.9", min_p=1.0, max_tokens=count),
    }
    requests |= {f"beside {number}": each for number, each in enumerate(more)}
    together = generate(llm, [(FRANCE, each) for each in requests.values()])
    return {name: list(each.token_ids) for name, each in zip(requests, together, strict=True)}


#: options with which only the most likely token is left
NARROW = ["top_p=0.000001", "top_k=1", "min_p=1", "top_n_sigma=0.00001"]


def check_cut(tokens: dict[str, list[int]], expected: Expected) -> None:
    free = tokens.pop("free")
    greedy = expected.free[: len(free)]
    everything = [tokens.pop(name) for name in ("none left out", "wider", "wide")]
    assert everything == [free] * 3 and free != greedy
    assert tokens == dict.fromkeys(tokens, greedy)


def measure(llm: Any, args: list[str], count: int = TOKENS) -> list[tuple[list[int], list[float]]]:
    return masses(VllmEngine(llm).run(measuring(args, count)))


def check_measured(found: list[tuple[list[int], list[float]]], expected: Expected) -> None:
    for (tokens, values), (wanted_tokens, wanted) in zip(found, expected.measured, strict=True):
        assert tokens == wanted_tokens[: len(tokens)]
        assert values == pytest.approx(wanted[: len(tokens)], abs=2e-4)


@pytest.mark.parametrize("configuration", ["async", "sync", *also("processes", "sync-processes")])
def test_results_equal_transformers(llm: Any, expected: Expected, configuration: str) -> None:
    """With fewer tokens in the engine with two seats."""
    count = TOKENS if configuration == "async" else cases(4, TOKENS)
    assert write(llm, expected.args, count) == ([tokens[:count] for tokens in expected.tokens], True)
    check_hot(write_hot(llm, count), expected)
    check_measured(measure(llm, expected.args, count), expected)
    check_cut(cut(llm, count, hot(top_k=1, top_p=0.9, max_tokens=count)), expected)


def test_the_engine_with_forks_uses_temperatures_of_greedy_requests(llm: Any, expected: Expected) -> None:
    engine = VllmEngine(llm)
    greedy, seeded = Sampling(), Sampling(temperature=2.0, seed=7)
    requests = [
        Request(FRANCE, sampling=seeded, max_tokens=TOKENS),
        Request(FRANCE, "tilt", "all 2", Sampling(seed=7), max_tokens=TOKENS),
        Request(FRANCE, "tilt", "all g", seeded, max_tokens=TOKENS),
        Request(FRANCE, "tilt", "all -", greedy, max_tokens=TOKENS),
    ]
    free, hot, cold, same = (result.new_tokens for result in engine.run(requests))
    assert hot == free != expected.free
    assert cold == same == expected.free


def test_a_row_that_no_worker_applies_fails_its_request(
    llm: Any, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    monkeypatch.setattr(runner, "sample_tokens", type(runner).sample_tokens.__get__(runner))
    arguments = [expected.args[0], "all 2", "all -"]
    requests = [(FRANCE, parameters("tilt", arg, max_tokens=TOKENS)) for arg in arguments]
    *failed, good = generate(llm, requests)
    for choice in failed:
        assert choice.finish_reason == "error" and "model runner does not support" in str(choice.stop_reason)
        assert not choice.token_ids
    assert list(good.token_ids) == expected.free


def test_an_error_in_a_worker_fails_only_requests_with_rows(
    llm: Any, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("pyaici.engines.vllm.workers.runners.add_biases", fail)
    requests = [
        (FRANCE, parameters("tilt", expected.args[0], max_tokens=TOKENS)),
        (FRANCE, parameters(max_tokens=TOKENS)),
    ]
    failed, free = generate(llm, requests)
    assert failed.finish_reason == "error" and list(free.token_ids) == expected.free


def test_engines_whose_workers_cannot_apply_rows_are_named(model_path: Path) -> None:
    from vllm.engine.arg_utils import EngineArgs

    config = EngineArgs(model=str(model_path), **OPTIONS).create_engine_config()
    assert rows_refusal(config) is None
    config.parallel_config.enable_batch_sharded_sampling = True
    assert "enable_batch_sharded_sampling: start the engine without it" in str(rows_refusal(config))


@pytest.mark.parametrize("configuration", ["v2-async", *also("v2-sync")])
def test_runner_v2_equals_transformers(on_v2: Callable[..., Any], expected: Expected) -> None:
    """With fewer tokens: an interpreter runs the kernels of this model runner."""
    count = 3
    few = [tokens[:count] for tokens in expected.tokens]
    assert on_v2(write, expected.args, count) == (few, True)
    check_hot(on_v2(write_hot, count), expected)
    check_measured(on_v2(measure, expected.args, count), expected)
    # this interpreter cannot run the kernel for a request's own top_k
    check_cut(on_v2(cut, count), expected)


COUNT = "one two three one two three one two three one two"


def count(llm: Any) -> tuple[list[list[int]], int]:
    """Returns the tokens of requests that go on counting, and the number of accepted drafts.

    Each step has a bias for another token. The temperature is the request's, greedy in each step, or both in
    turn. None is above 0: vLLM's CPU build does not verify drafts of model runner V1 correctly then.
    """
    tokens = llm.get_tokenizer().encode(" three one two" * 6, add_special_tokens=False)
    biases = " ".join(f"{token} 500" for token in tokens)
    before = counter(llm, "spec_decode_num_accepted_tokens")
    requests = [
        (COUNT, parameters("tilt", f"say - {biases}", max_tokens=18)),
        (COUNT, parameters("tilt", f"say g {biases}", max_tokens=18, temperature=1.0, seed=3)),
        (COUNT, parameters("tilt", f"say x {biases}", max_tokens=18)),
        (COUNT, parameters("tilt", f"sparse g {tokens[0]} -30", max_tokens=18, temperature=1.0, seed=3)),
    ]
    written = [list(choice.token_ids) for choice in generate(llm, requests)]
    assert written[:3] == [tokens] * 3
    return written, counter(llm, "spec_decode_num_accepted_tokens") - before


@pytest.fixture(scope="session")
def counted(engines: ConfiguredEngines, uploaded: None) -> tuple[list[list[int]], int]:
    """The result of `count` without drafts."""
    return count(engines("async"))


@pytest.mark.configuration("async")
def test_an_engine_without_drafts_accepts_none(counted: tuple[list[list[int]], int]) -> None:
    assert counted[1] == 0


@pytest.mark.configuration("drafts")
def test_drafts_change_no_text(counted: tuple[list[list[int]], int], llm: Any) -> None:
    found, accepted = count(llm)
    assert found == counted[0] and accepted > 0


@pytest.mark.configuration("v2-drafts")
def test_drafts_with_the_v2_runner_change_no_text(
    counted: tuple[list[list[int]], int], on_v2: Callable[..., Any]
) -> None:
    found, accepted = on_v2(count)
    assert found == counted[0] and accepted > 0
