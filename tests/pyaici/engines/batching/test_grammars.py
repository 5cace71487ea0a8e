"""The default model under each grammar controller. A regular expression checks each text independently."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import regex
import transformers

from pyaici import HfEngine, LlamaEngine, LlamaModel, load_library
from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import FinishReason, Request, Sampling
from pyaici.models import default_gguf_path, default_model_path
from pyaici.testing.playground import PATIENT
from tests.thorough import also

pytestmark = pytest.mark.slow

CONTROLLERS = Path(__file__).resolve().parents[4] / "controllers"
SONG = "The owl and the pussycat went to sea in a beautiful pea-green boat."
#: grammar controller: its argument, and an expression that all its texts match; None: a part of SONG
GRAMMARS = {
    "lr1": (
        '%% sum: N "+" N "=" N ";" ; N: "/[0-9]{1,3}/" ; SKIP: "/ /" ;',
        r" *\d{1,3} *\+ *\d{1,3} *= *\d{1,3} *; *",
    ),
    "kbnf": (
        """start ::= '{"name": ' name ', "tags": [' (name (', ' name)?)? ']}';
        name ::= #'"[A-Za-z ]{1,12}"';""",
        r'\{"name": "[A-Za-z ]{1,12}", "tags": \[("[A-Za-z ]{1,12}"(, "[A-Za-z ]{1,12}")?)?\]\}',
    ),
    "gbnf": (
        'root ::= "- " item ("\\n- " item){1,2} "."\nitem ::= [A-Z] [a-z]{2,9}\n',
        r"- [A-Z][a-z]{2,9}(\n- [A-Z][a-z]{2,9}){1,2}\.",
    ),
    "lark": (
        'start: "call" NAME "(" [NUMBER ("," NUMBER)?] ")" ";"\n'
        "NAME: /[a-z]{3,8}/\nNUMBER: /[0-9]{1,4}/\n%ignore / /\n",
        r" *call *[a-z]{3,8} *\( *(\d{1,4} *(, *\d{1,4} *)?)?\) *; *",
    ),
    "substring": ('{"text": "' + SONG + '", "end": "\\n"}', None),
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1, limits=PATIENT) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def default_engine(request: pytest.FixtureRequest, runtime: Runtime) -> Iterator[BatchingEngine]:
    """An engine with the default model."""
    if request.param == "llama":
        model = LlamaModel(load_library(), default_gguf_path())
        with model, LlamaEngine(model, runtime) as engine:
            yield engine
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(default_model_path()).eval()
        yield HfEngine(model, transformers.AutoTokenizer.from_pretrained(default_model_path()), runtime)


#: these grammars skip any number of blanks, so the model may reach `max_tokens` within a text
MAY_BE_CUT = ("lr1", "lark")


@pytest.mark.parametrize(
    ("default_engine", "temperature"),
    # the masks are the same for both engines and all temperatures
    [("llama", 0.0), *also(("hf", 1.5), ("hf", 0.0), ("llama", 1.5))],
    indirect=["default_engine"],
)
def test_texts_match_their_grammar(default_engine: BatchingEngine, temperature: float) -> None:
    """All controllers run in one batch, with greedy sampling and with a high temperature."""
    sampling = Sampling(temperature=temperature, seed=3)
    requests = [
        Request("Write something:\n", controller=name, arg=argument, max_tokens=60, sampling=sampling)
        for name, (argument, _) in GRAMMARS.items()
    ]
    for result, (name, (_, pattern)) in zip(default_engine.run(requests), GRAMMARS.items(), strict=True):
        cut = result.finish_reason == FinishReason.LENGTH and name in MAY_BE_CUT
        assert cut or result.finish_reason in (FinishReason.STOP, FinishReason.EOS), result
        assert result.text.strip(), result
        if pattern is None:
            assert result.text.removesuffix("\n") in SONG, result
        else:  # a text that was cut off is the beginning of a match
            assert regex.fullmatch(pattern, result.text, partial=cut), result
