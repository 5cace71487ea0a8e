"""The grammar of arithmetic against Python's parser."""

from __future__ import annotations

import ast
import random
import warnings

import pytest

from tests.controllers.lr1.conftest import Bundled
from tests.controllers.lr1.recognizer import Recognizer

PIECES = [*"+-*/%(),.0123ab \te", "**", "//", "12", "1.5", ".5", "1e3", "a1", "f(", "(1", "2)", " + "]
NODES = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Call, ast.Load, ast.operator)
SIGNS = (ast.UAdd, ast.USub)


@pytest.fixture(scope="module")
def grammar(bundled: Bundled) -> Recognizer:
    return bundled("arithmetic.y")


def is_arithmetic(text: str) -> bool:
    """Does Python read it as numbers, names, operators and plain calls?"""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError):
        return False
    return all(isinstance(node, (*NODES, *SIGNS)) for node in nodes)


def random_expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(["1", "23", "0.5", "1e-3", ".5", "7.", "a", "b1", "00"])
    inner = [random_expression(rng, depth - 1) for _ in range(3)]
    blank = rng.choice(["", " "])
    match rng.randrange(5):
        case 0:
            return f"({inner[0]}{blank})"
        case 1:
            return rng.choice("+-") + blank + inner[0]
        case 2:
            return f"f({', '.join(inner[: rng.randint(0, 3)])})"
        case _:
            return f"{inner[0]}{blank}{rng.choice(['+', '-', '*', '/', '//', '%', '**'])}{blank}{inner[1]}"


def test_random_expressions_and_mutations(grammar: Recognizer) -> None:
    rng, both = random.Random(6), [0, 0]
    for _ in range(1200):
        text = random_expression(rng, rng.randint(0, 5))
        assert is_arithmetic(text) and grammar.accepts(text), text
        begin = rng.randint(0, len(text))
        text = text[:begin] + rng.choice(["", *PIECES]) + text[begin + rng.randint(0, 2) :]
        expected = is_arithmetic(text)
        assert grammar.accepts(text) == expected, text
        both[expected] += 1
    assert min(both) > 200


def test_random_pieces(grammar: Recognizer) -> None:
    rng, both = random.Random(7), [0, 0]
    for _ in range(4_000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 5)))
        expected = is_arithmetic(text)
        assert grammar.accepts(text) == expected, text
        both[expected] += 1
    assert min(both) > 200
