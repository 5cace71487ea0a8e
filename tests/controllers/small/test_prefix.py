"""The prefix controller with the real runtime and a real engine: the distribution of its outputs."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aicirt.contract.abi import SAMPLE, SPLICE
from aicirt.contract.errors import ArgumentError
from aicirt.wasm import Program
from lab.measurement.chi_square import p_value
from lab.runners.host import ALL as ANYTHING
from lab.runners.host import TOKEN, Guest, Vocab
from pyaici import EngineModel, GenerationResult, HfEngine, Request, Sampling
from pyaici.client.arguments import ALL, Capabilities
from pyaici.client.runtime import Runtime
from pyaici.testing import Playground
from pyaici.testing.playground import PATIENT
from pyaici.tokens import Vocabulary
from pyaici.toolchain import build_controller
from tests.languages import compiler_or_skip
from tests.pyaici.cpc.tiny import VOCAB, History, brute, conditioned, vocabulary
from tests.pyaici.engines.batching.support import make_model
from tests.thorough import cases

CONTROLLER = Path(__file__).parents[3] / "controllers" / "prefix"
SAMPLES = cases(400, 900)
#: requests that run together, and copies of each: a client has 256 rows, and a sequence may hold two
TOGETHER = 10
#: after which the prefix is a fifth as likely as its first tokens, and masks at every step are far off
PROMPT = (VOCAB.index(b"private"), VOCAB.index(b"print"))
PREFIX = b"pri"
UNTOLD = Capabilities(logprobs=False)


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with compiler_or_skip():
        return build_controller(CONTROLLER, tmp_path_factory.mktemp("prefix") / "prefix.wasm").path


class Rows:
    """An engine's distributions, for brute force; `text_only`: where no text ends."""

    def __init__(self, engine: HfEngine, text_only: bool = False) -> None:
        self._model = EngineModel(engine)
        self._known: dict[History, NDArray[np.float64]] = {}
        self._text_only = text_only

    def row(self, history: History) -> NDArray[np.float64]:
        if history not in self._known:
            row = self._model.logprobs([history])[0]
            if self._text_only and len(history) > len(PROMPT):
                row[len(VOCAB) :] = -np.inf
                row -= np.log(np.exp(row).sum())
            self._known[history] = row
        return self._known[history]


@pytest.fixture(scope="module")
def engine() -> Iterator[tuple[HfEngine, Runtime, Vocabulary]]:
    vocab = vocabulary()
    end = vocab.eos[0]
    model = make_model(vocab_size=vocab.vocab_size, bos_token_id=end, eos_token_id=end, initializer_range=0.3)
    with Runtime(workers=1, limits=PATIENT) as runtime:
        yield HfEngine(model, None, runtime, vocabulary=vocab, keep=8), runtime, vocab


def run(
    engine: tuple[HfEngine, Runtime, Vocabulary],
    wasm: Path,
    argument: str | dict[str, object],
    count: int = SAMPLES,
    capabilities: Capabilities = ALL,
) -> list[GenerationResult]:
    hf, runtime, _ = engine
    arg = argument if isinstance(argument, str) else json.dumps(argument)
    module = runtime.upload(wasm).id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Request, "capabilities", capabilities)
        results: list[GenerationResult] = []
        while len(results) < count:
            results += hf.run(
                [
                    Request(
                        PROMPT,
                        controller=module,
                        arg=arg,
                        n=TOGETHER,
                        max_tokens=24,
                        # far apart: those of copies are near the request's
                        sampling=Sampling(0.6, seed=(len(results) + number) << 20),
                    )
                    for number in range(TOGETHER)
                ]
            )
        return results


def first_covers(results: list[GenerationResult], vocab: Vocabulary, prefix: bytes) -> Counter[History]:
    covers: Counter[History] = Counter()
    for result in results:
        tokens: History = ()
        for token in result.new_tokens:
            tokens += (token,)
            if len(vocab.decode(tokens)) >= len(prefix):
                break
        assert vocab.decode(tokens).startswith(prefix) and result.error is None, result
        covers[tokens] += 1
    return covers


@pytest.mark.parametrize("capabilities", [ALL, UNTOLD], ids=["told", "untold"])
def test_covers_have_the_exact_distribution(
    engine: tuple[HfEngine, Runtime, Vocabulary], wasm: Path, capabilities: Capabilities
) -> None:
    """The exact distribution with temperature. Without reported probabilities, it ignores ends of texts."""
    vocab = engine[2]
    results = run(engine, wasm, {"prefix": "pri", "max_trials": 1000}, capabilities=capabilities)
    found = first_covers(results, vocab, PREFIX)
    rows = Rows(engine[0], text_only=capabilities is UNTOLD)
    if capabilities is UNTOLD:
        exactly = conditioned(brute_text(rows, vocab))
    else:
        exactly = conditioned(brute(rows, vocab, PREFIX, PROMPT, 0.6))
    assert p_value(found, exactly) > 1e-4
    masked = brute(Rows(engine[0]), vocab, PREFIX, PROMPT, 0.6, masked=True)
    assert p_value(found, masked) < 1e-4, "masks at every step are something else"
    assert all('"approximate": false' in result.log for result in results)
    trials = [int(re.findall(r'"trials": (\d+)', result.log)[0]) for result in results]
    if capabilities is UNTOLD:
        assert max(trials) > 8
    else:
        assert max(trials) <= 1 + 4, "one for each history: none, p, pr, and p r"


def brute_text(rows: Rows, vocab: Vocabulary) -> dict[History, float]:
    """Tempered rows without ends of texts: the mass of the first token does not matter."""

    class Tempered:
        def row(self, history: History) -> NDArray[np.float64]:
            row = rows.row(history) / 0.6
            result: NDArray[np.float64] = row - np.log(np.exp(row).sum())
            return result

    return brute(Tempered(), vocab, PREFIX, PROMPT)


def test_it_masks_after_its_last_trial_and_logs_it(
    engine: tuple[HfEngine, Runtime, Vocabulary], wasm: Path
) -> None:
    vocab = engine[2]
    masked = brute(Rows(engine[0]), vocab, PREFIX, PROMPT, 0.6, masked=True)
    for argument, capabilities in (
        ({"prefix": "pri", "max_trials": 0}, ALL),
        ("pri", Capabilities(backtrack=False)),
    ):
        results = run(engine, wasm, argument, SAMPLES // 2, capabilities)
        assert p_value(first_covers(results, vocab, PREFIX), masked) > 1e-4
        assert all('"approximate": true' in result.log for result in results)
    some = run(engine, wasm, {"prefix": "pri", "max_trials": 1}, 100)
    said = [re.search(r'prefix: {"trials": (\d+), "approximate": (\w+)}', result.log) for result in some]
    assert {(int(match[1]) > 1, match[2]) for match in said if match} == {(False, "false"), (True, "true")}
    assert None not in said


def test_text_after_the_prefix_is_free(engine: tuple[HfEngine, Runtime, Vocabulary], wasm: Path) -> None:
    results = run(engine, wasm, "(", 60)
    assert all(result.text.startswith("(") for result in results)
    assert len({result.text for result in results}) > 20
    assert all(result.log.count("prefix:") == 1 for result in results)


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with Playground() as playground:
        yield playground


def test_the_variable(playground: Playground, wasm: Path) -> None:
    played = playground.play(wasm, "the trees", arg="the", seed=3)
    assert played.text == "the trees"
    assert played.log == 'prefix: {"trials": 1, "approximate": false}\n'


@pytest.mark.parametrize("prefix", ["é", "日本", "th\n{", "the " * 30, '{"'])
def test_any_text_can_be_the_prefix(playground: Playground, wasm: Path, prefix: str) -> None:
    played = playground.play(wasm, prefix + "!", arg=json.dumps({"prefix": prefix, "max_trials": 5}))
    assert played.text.startswith(prefix) and played.error is None


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("", "prefix needs the characters to begin with"),
        ("{}", "prefix needs the characters to begin with"),
        ('{"prefix": ""}', "prefix needs the characters to begin with"),
        ("a" * 1025, "has more than 1024 bytes"),
        ('{"prefix": "a", "trials": 3}', 'not "trials"'),
        ('{"prefix": "a", "prefix": "b"}', "each once"),
        ('{"prefix": "a", "max_trials": 01}', "a whole number up to 1000000 expected at byte 30"),
        ('{"prefix": "a", "max_trials": 1000001}', "a whole number up to 1000000 expected"),
        ('{"prefix": "a", "max_trials": -1}', "a whole number up to 1000000 expected"),
        ('{"prefix": "a", "max_trials": 9999999999999}', "a whole number up to 1000000 expected"),
        ('{"prefix": "a"', "`,` or `}` expected"),
    ],
)
def test_arguments_that_are_refused(playground: Playground, wasm: Path, argument: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        playground.play(wasm, "a", arg=argument)


def test_prefix_that_no_tokens_spell(engine: tuple[HfEngine, Runtime, Vocabulary], wasm: Path) -> None:
    for prefix in ("q", "prq", "</s>"):
        with pytest.raises(ArgumentError, match="no tokens of this model spell the prefix"):
            run(engine, wasm, prefix, 20)


WORDS = Vocab([b"p", b"r", b"i", b"ri", b"pri", b"print", b"x", b"<eos>"], eos=[7])
P, R, _, RI, PRI, PRINT, X, _ = range(8)


def test_a_trial_excludes_what_it_has_refuted(program: Callable[[str], Program]) -> None:
    guest = Guest(program("prefix"), WORDS, "pri")
    first = guest.step().row
    assert (first.verb, first.allowed, first.top_logprobs) == (SAMPLE, [P, PRI, PRINT], 1)
    assert guest.step([P], logprob=math.log(0.1), mass=0.4).row.allowed == [R, RI]
    back = guest.step([RI], logprob=-1.0, mass=0.0).row
    assert (back.verb, back.backtrack, back.tokens) == (SPLICE, 2, [])
    for _ in range(20):
        assert guest.step([], backtrack=2).row.allowed == [PRI, PRINT], "p leads nowhere"
    assert guest.step([PRINT], logprob=-1.0, mass=0.3).row.kind == ANYTHING
    assert guest.take_log() == 'prefix: {"trials": 2, "approximate": false}\n'
    assert guest.variables[b"prefix"][1] == b'{"trials": 2, "approximate": false}'
    assert guest.step([X]).row.kind == ANYTHING


def test_a_known_token_is_forced_as_often_as_it_should_be(program: Callable[[str], Program]) -> None:
    """Half of the first mass leads to `p`, after which the prefix has a half at most."""
    forced = 0
    failed = False
    while not failed:
        guest = Guest(program("prefix"), WORDS, "pri")
        guest.instance.seed = forced = forced + 1
        guest.step()
        guest.step([P], logprob=math.log(0.2), mass=0.4)
        failed = guest.step([RI], logprob=-1.0, mass=0.5).row.verb == SPLICE
    rows = [guest.step([], backtrack=2).row for _ in range(900)]
    forced = sum(row.kind == TOKEN and row.token == P for row in rows)
    assert all(row.kind == TOKEN or row.allowed == [PRI, PRINT] for row in rows)
    assert abs(forced - 300) < 70, "0.2 times 0.5, of that and 0.2"


def test_engine_without_the_log_probabilities_it_promised(program: Callable[[str], Program]) -> None:
    guest = Guest(program("prefix"), WORDS, "pri")
    guest.step()
    assert guest.step([P]).row.allowed == [R, RI]
    assert guest.step([RI]).row.kind == ANYTHING
    assert '"approximate": true' in guest.take_log()


def test_prefix_to_which_the_model_gives_no_probability(program: Callable[[str], Program]) -> None:
    guest = Guest(program("prefix"), WORDS, "pri")
    guest.step()
    guest.step([P], logprob=0.0, mass=1.0)
    assert guest.step([RI], logprob=-1.0, mass=0.0).row.verb == SPLICE
    assert guest.step([], backtrack=2).row.allowed == [P, PRI, PRINT]
    assert guest.step([P], logprob=0.0, mass=1.0).row.allowed == [R, RI]
    assert guest.step([RI], logprob=-1.0, mass=0.0).row.kind == ANYTHING
    assert '"approximate": true' in guest.take_log()


def test_dead_ends_are_not_entered(tmp_path: Path, wasm: Path) -> None:
    """After `a` alone the prefix cannot be completed: masks at every step would reach a dead end."""
    vocab = Vocabulary([b"a", b"ab", b"b", b"c", b""], {4: "</s>"}, eos=(4,))
    small = Vocabulary([b"a", b"ab", b"ca", b""], {3: "</s>"}, eos=(3,))
    for words, prefix, spelled in ((vocab, "ab", {"ab"}), (small, "ab", {"ab"})):
        with Playground(words) as playground:
            for seed in range(8):
                played = playground.play(
                    wasm,
                    "",
                    arg=json.dumps({"prefix": prefix, "max_trials": 0}),
                    prompt=[0],
                    seed=seed,
                    temperature=1.0,
                    max_tokens=4,
                )
                assert played.error is None and played.text[:2] in spelled
