"""The default model under each controller for grammars: what it writes is checked by something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import transformers

from pyaici.build import build_controller
from pyaici.client.runtime import Runtime
from pyaici.engines.hf import FinishReason, HfEngine, Request, Sampling
from pyaici.models import default_model_path

pytestmark = pytest.mark.slow

CONTROLLERS = Path(__file__).resolve().parents[4] / "controllers"
SONG = "The owl and the pussycat went to sea in a beautiful pea-green boat."
#: controller: its argument, and what its texts look like
GRAMMARS = {
    "lr1": (
        '%% sum: N "+" N "=" N ";" ; N: "/[0-9]{1,3}/" ; SKIP: "/ /" ;',
        r" *\d{1,3} *\+ *\d{1,3} *= *\d{1,3} *;",
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
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HfEngine]:
    folder = tmp_path_factory.mktemp("controllers")
    model = transformers.AutoModelForCausalLM.from_pretrained(default_model_path()).eval()
    with Runtime() as runtime:
        for name in GRAMMARS:
            module = runtime.upload(build_controller(CONTROLLERS / name, folder / f"{name}.wasm").path)
            runtime.tag(module.id, name)
        yield HfEngine(model, transformers.AutoTokenizer.from_pretrained(default_model_path()), runtime)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_texts_are_those_of_the_grammar(engine: HfEngine, temperature: float) -> None:
    """All controllers in one batch, greedily and from a flat distribution."""
    sampling = Sampling(temperature=temperature, seed=3)
    requests = [
        Request("Write something:\n", module=name, arg=argument, max_tokens=60, sampling=sampling)
        for name, (argument, _) in GRAMMARS.items()
    ]
    for result, (name, (_, pattern)) in zip(engine.run(requests), GRAMMARS.items(), strict=True):
        if result.reason == FinishReason.LENGTH:  # blanks may come in any number
            assert name in ("lr1", "lark"), result
            continue
        assert result.reason in (FinishReason.STOP, FinishReason.EOS), result
        if pattern is None:
            assert result.text.removesuffix("\n") in SONG and result.text, result
        else:
            assert re.fullmatch(pattern, result.text), result
