"""All configurations of engines in these tests, and the order of tests: each engine is made once in a run.

A test names its configuration with the marker `configuration` or with a parameter of that name; the fixture
`llm` is the engine. Tests of a configuration run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.vllm.engines import Engines
from lab.vllm.shallow_model import make_shallow_model
from lab.vllm.simulated import is_simulated
from lab.vllm.simulated.model import make_tiny_model
from pyaici.models import default_model_path
from tests.pyaici.engines.vllm.cache_models import KINDS, make_cache_model
from tests.pyaici.engines.vllm.random_model import make_random_model
from tests.thorough import is_named, thorough

DRAFTS = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
_ASYNC = {"async_scheduling": True}
#: blocks for five of the sequences that these tests run at a time: others are preempted
_FEW = {"num_gpu_blocks_override": 18, "max_model_len": 256, "max_num_seqs": 32}
#: see `reasoning.py`
_REASONING = {"reasoning_parser": "marker"}
#: vLLM's CPU build fails with prefix caching for such models, when a step has to keep a state inside a prompt
_WITHOUT_PREFIX_CACHE = ("states", "states and full attention")


@dataclass(frozen=True)
class Configuration:
    """An engine: its options in addition to `engines.OPTIONS`, its model, where it runs, its daemon."""

    options: dict[str, Any] = field(default_factory=dict)
    #: a name of `Models`
    model: str = "shallow"
    #: in processes of its own
    multiprocess: bool = False
    #: "shared" by all engines, "private" to this one, or "changing": those of the fixture `change_daemon`
    daemon: str = "shared"


#: by name, in the order of their tests. The first is the default: vLLM schedules asynchronously on GPUs.
#: Options that do not concern each other share an engine
CONFIGURATIONS: dict[str, Configuration] = {
    "async": Configuration({**_ASYNC, "max_num_seqs": 64, "max_logprobs": -1}),
    "sync": Configuration({"max_num_seqs": 64}),
    "async-preempted": Configuration({**_ASYNC, **_FEW}),
    "sync-preempted": Configuration(_FEW),
    "async-no-prefix-cache": Configuration(
        {**_ASYNC, "enable_prefix_caching": False, "max_num_seqs": 32, **_REASONING}
    ),
    # fewer seats than a request has copies
    "processes": Configuration({**_ASYNC, "max_num_seqs": 2}, multiprocess=True),
    "adapter": Configuration({**_ASYNC, "enable_lora": True, "max_lora_rank": 8}),
    "private-daemon": Configuration(_ASYNC, daemon="private"),
    "changing-daemon": Configuration(_ASYNC, daemon="changing"),
    "drafts": Configuration({"speculative_config": DRAFTS, **_REASONING}),
    # the draft model is the model itself; see `engine_options`
    "draft-model": Configuration({**_ASYNC, "speculative_config": {"num_speculative_tokens": 3}}),
    # two workers in processes of their own
    "ranks": Configuration(
        {**_ASYNC, "tensor_parallel_size": 2, "speculative_config": {"num_speculative_tokens": 3}}
    ),
    "stages": Configuration({"pipeline_parallel_size": 2}),
    # a shallow model is not predictable enough for most drafts
    "whole": Configuration(model="whole"),
    "whole-drafts": Configuration({"speculative_config": DRAFTS}, "whole"),
    # three blocks of 32 tokens and an unused one: two requests are too many as soon as each has 33 tokens
    "whole-drafts-preempted": Configuration(
        {"speculative_config": DRAFTS, **_FEW, "num_gpu_blocks_override": 4, "max_model_len": 96}, "whole"
    ),
    **{
        f"{kind}-{'async' if asynchronous else 'sync'}": Configuration(
            {"async_scheduling": asynchronous, "enable_prefix_caching": kind not in _WITHOUT_PREFIX_CACHE},
            kind,
        )
        for kind in KINDS
        for asynchronous in (True, False)
    },
    "random": Configuration(model="random"),
    "v2-async": Configuration(_ASYNC),
    "v2-sync": Configuration(),
    "v2-reasoning": Configuration({**_ASYNC, **_REASONING}),
    "v2-drafts": Configuration({**_ASYNC, "speculative_config": DRAFTS | {"method": "ngram_gpu"}}),
    # only with AICI_THOROUGH=1
    "sync-draft-model": Configuration({"speculative_config": {"num_speculative_tokens": 3}}),
    "sync-changing-daemon": Configuration(daemon="changing"),
    "sync-private-daemon": Configuration(daemon="private"),
    "sync-reasoning": Configuration(_REASONING),
    "sync-processes": Configuration({"max_num_seqs": 2}, multiprocess=True),
}
_DEFAULT = next(iter(CONFIGURATIONS))
_PLAIN = Configuration()
#: Configurations that differ by what the scheduler does, which is the same with any worker. With vLLM's own
#: worker, tests take them only with AICI_THOROUGH=1
SIMULATED_ONLY = {
    "sync",
    "sync-preempted",
    "async-no-prefix-cache",
    "private-daemon",
    "changing-daemon",
    "whole-drafts-preempted",
}


class Models:
    """Folders of models, which are made when they are needed."""

    def __init__(self, new_folder: Callable[[str], Path]) -> None:
        self._new_folder = new_folder
        self._made: dict[str, Path] = {}

    def __call__(self, name: str) -> Path:
        """Returns the folder of a model: "shallow", "whole", "random", or a kind of `cache_models.py`."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Path:
        if name == "whole" and not is_simulated():
            return default_model_path("float32")
        folder = self._new_folder("model")
        if is_simulated():
            return make_tiny_model(folder)
        if name == "shallow":
            return make_shallow_model(folder)
        return make_random_model(folder) if name == "random" else make_cache_model(name, folder)


def engine_options(name: str, models: Models, sockets: dict[str, str]) -> dict[str, Any]:
    """Returns the options of `Engines` for a configuration. `sockets`: of daemons that are not private."""
    found = CONFIGURATIONS[name]
    options = dict(found.options)
    guess = options.get("speculative_config")
    if guess is not None and "method" not in guess:
        options["speculative_config"] = guess | {"method": "draft_model", "model": str(models(found.model))}
    env = {"AICI_SOCKET": sockets.get(found.daemon)}
    return {"model": models(found.model), "multiprocess": found.multiprocess, "env": env, **options}


class ConfiguredEngines:
    """Engines by the name of their configuration, one at a time: another one is closed first."""

    def __init__(self, models: Models, sockets: dict[str, str]) -> None:
        self._models = models
        self._sockets = sockets
        self._engines = Engines(models("shallow"))

    def __call__(self, name: str) -> Any:
        """Returns the engine, in this process or in its own ones."""
        return self._engines(**engine_options(name, self._models, self._sockets))

    def close(self) -> None:
        """Ends the engine, if there is one."""
        self._engines.close()


def configuration_of(item: pytest.Item) -> str:
    """Returns the name of the configuration whose engine a test uses, or an empty text."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if "configuration" in parameters:
        return str(parameters["configuration"])
    marker = item.get_closest_marker("configuration")
    if marker is not None:
        return str(marker.args[0])
    return _DEFAULT if "llm" in getattr(item, "fixturenames", ()) else ""


def is_run(item: pytest.Item) -> bool:
    """Returns whether a test runs with the simulated worker, or with vLLM's own one."""
    name = configuration_of(item)
    if is_simulated():
        if item.path.parent.name == "sglang":
            return False
        own = name.startswith("v2-") or CONFIGURATIONS.get(name, _PLAIN).model in KINDS
        return not own and item.get_closest_marker("real_worker") is None
    if item.get_closest_marker("simulated_worker") is not None:
        return False
    if thorough():
        return True
    # --quick runs no simulated worker
    chosen = item.config.getoption("quick") or is_named(item)
    return name not in SIMULATED_ONLY and (chosen or item.get_closest_marker("any_worker") is None)


def kept_for(item: pytest.Item) -> str:
    """Returns what a test shares with its neighbours: engines of a model runner, or the server of a file."""
    name = configuration_of(item)
    if not name:
        return item.path.stem
    return "runner v2" if name.startswith("v2-") else "runner v1"


def place_of(item: pytest.Item) -> int:
    """Returns the place of a test's group. Files without an engine in the tests' process come last."""
    name = configuration_of(item)
    return list(CONFIGURATIONS).index(name) if name else len(CONFIGURATIONS)
