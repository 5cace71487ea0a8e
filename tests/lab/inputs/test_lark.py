"""Yacc grammars translated for llguidance accept the same texts."""

from __future__ import annotations

import llguidance
import pytest

from lab.inputs.lark import lark_of_yacc
from pyaici.bundled import bundled_grammars

EOS = 256


class ByteTokens:
    """A tokenizer with a token for each byte."""

    eos_token_id = EOS
    bos_token_id = None
    unk_token_id = None
    tokens: list[bytes] = [bytes([b]) for b in range(256)] + [b"<eos>"]
    special_token_ids: list[int] = [EOS]  # noqa: RUF012

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(ByteTokens()), n_vocab=257)


def accepts(grammar: str, text: str) -> bool:
    matcher = llguidance.LLMatcher(TOKENIZER, llguidance.LLMatcher.grammar_from_lark(lark_of_yacc(grammar)))
    assert not matcher.is_error(), matcher.get_error()
    data = list(text.encode())
    return bool(matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting())


@pytest.mark.parametrize(
    ("grammar", "texts", "no_texts"),
    [
        (
            r"""%left "+"  // adds
            %% SKIP: "/[ \n]+/" | "/#.*/" ;
            e: e "+" e | "(" e ")" | NUMBER ; NUMBER: "/[0-9]+(\.[0-9]+)?/" ;""",
            ["1", "1+2 + 3", "(1.5 # half\n)"],
            ["", "1+", "(1"],
        ),
        (
            r"""%start b
            %% a: %empty | "x" a %prec "y" ; b: "[" a "]" | 'c' ; unused: "/z/" ;""",
            ["[]", "[xx]", "c"],
            ["", "xx", "z", "[y]"],
        ),
        (
            r"""%% a: "//" PATH | '"' QUOTED '"' | "\\\n\x41" ;
            PATH: "//[a-z]+/" | '/\/"\'/' ; QUOTED: '/[^"\/]*/' ;""",
            ["///abc", "///\"'", '"q"', "\\\nA"],
            ["//abc", '"/"', "\\\nB"],
        ),
        ('%% a: KEY | Key ; KEY: "k" | "/[0-9]/" ; Key: "m" KEY "n" ;', ["k", "7", "mkn"], ["m", "kk"]),
        ("%% a: b 'x' ; b: 'y' | ; %% int main() { return 0; }", ["x", "yx"], ["y", "yyx"]),
    ],
)
def test_translated_grammar_accepts_the_same_texts(
    grammar: str, texts: list[str], no_texts: list[str]
) -> None:
    assert [text for text in texts if not accepts(grammar, text)] == []
    assert [text for text in no_texts if accepts(grammar, text)] == []


def test_bundled_grammars_are_translated() -> None:
    found = {name: path.read_text() for name, path in bundled_grammars().items() if name.endswith(".y")}
    assert {"c.y", "json.y"} <= set(found)
    c, json = found["c.y"], found["json.y"]
    assert accepts(c, "#include <a.h>\n/* one */ int main(void) { return 07 + sizeof(int); } // end")
    assert not accepts(c, "int main(void) { return }")
    assert accepts(json, '{"a": [1, -2.5e3, true, null], "b\\n\\u00e9": {}}')
    assert not accepts(json, '{"a": [1,]}')


def test_invalid_grammar_raises_an_error() -> None:
    with pytest.raises(ValueError, match="line 2: not a word of a grammar"):
        lark_of_yacc("%% a:\n { x } ;")
    with pytest.raises(ValueError, match="no rules"):
        lark_of_yacc("%%")
