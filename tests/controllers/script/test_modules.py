"""Modules of Python's library in scripts: what they answer is what Python's own answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.controllers.script.conftest import Scripts, check


def run(python: Scripts, body: str) -> list[Any]:
    """The `answers` of these lines in the controller, by way of JSON."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    source = (
        "import json\nfrom aici import *\nasync def main():\n    answers = []\n    await gen(regex='x')\n"
        f"{lines}    print(json.dumps(answers))\n"
    )
    found = json.loads(check(python.play(source, "x")).log)
    assert isinstance(found, list)
    return found


BODIES = {
    "defaultdict": """
from collections import defaultdict
d = defaultdict(list, {"z": [0]})
for i, word in enumerate("b a b".split()):
    d[word].append(i)
answers += [list(d.items()), d.get("c"), "c" in d, len(d), sorted(d)]
try:
    defaultdict()["x"]
except KeyError as error:
    answers.append(list(error.args))
answers.append(json.dumps(d))
""",
    "counter": """
from collections import Counter
c = Counter("abracadabra")
answers += [c.most_common(2), c["x"], "x" in c, c["a"], sum(c.values()), list(c.elements()), c.total()]
c.update("xx")
c.subtract({"a": 4, "y": 1})
answers += [sorted(c.items()), c.most_common(), sorted((c + Counter(a=2)).items())]
answers += [sorted((c - Counter(b=1)).items()), sorted((c & Counter(b=1)).items())]
answers += [sorted((Counter(x=2) | Counter("xy")).items())]
""",
    "functools": """
from functools import cache, cmp_to_key, lru_cache, partial, reduce, wraps
answers += [partial(sorted, reverse=True)([1, 2]), partial(max, 3)(1, 5)]
answers += [reduce(lambda a, b: a * b, [2, 3, 4])]
answers += [reduce(lambda a, b: a + b, [], "e"), sorted([3, 1, 2], key=cmp_to_key(lambda a, b: b - a))]
calls = []
@lru_cache(maxsize=2)
def square(x):
    calls.append(x)
    return x * x
answers += [[square(x) for x in (1, 2, 1, 3, 2, 1)], calls]
@cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
answers.append(fib(60))
try:
    reduce(max, [])
except TypeError as error:
    answers.append("no initial value" in str(error))
""",
    "itertools": """
from itertools import accumulate, chain, combinations, count, cycle, dropwhile, filterfalse, groupby, islice
from itertools import pairwise, permutations, product, repeat, starmap, takewhile, zip_longest
answers += [list(product("ab", [1, 2])), list(product([0, 1], repeat=2)), list(product("a", []))]
answers += [list(product())]
answers += [list(combinations("abcd", 2)), list(combinations("ab", 3)), list(permutations("abc"))]
answers += [list(permutations("abc", 2)), list(chain("ab", [1])), list(chain.from_iterable([[1], [2, 3]]))]
answers += [list(islice(count(5, 2), 3)), list(islice("abcdef", 1, 5, 2)), list(islice("abc", 1, None))]
answers += [list(accumulate([1, 2, 3])), list(accumulate([1, 2, 3], max, initial=2)), list(accumulate([]))]
answers += [list(zip_longest("ab", [1], fillvalue="-")), list(zip_longest()), list(repeat("x", 3))]
answers += [list(pairwise("abcd")), list(combinations("a", 0))]
answers += [list(islice(cycle("ab"), 5)), list(takewhile(lambda x: x < 3, [1, 3, 2]))]
answers += [list(starmap(pow, [(2, 3)]))]
answers += [list(dropwhile(lambda x: x < 3, [1, 3, 2])), list(filterfalse(None, [0, 1, ""]))]
answers += [[k, list(g)] for k, g in groupby("aabca")]
answers += [[k, list(g)] for k, g in groupby([1, 3, 2], key=lambda x: x % 2)]
items = iter("abcd")
answers += [list(islice(items, 2)), next(items)]
""",
    "string": """
import string
answers += [string.ascii_letters, string.digits, string.hexdigits, string.punctuation]
answers += [sorted(string.printable)]
""",
    "textwrap": r"""
from textwrap import dedent, indent
answers += [dedent("\n    a\n      b\n  \n    c\n"), dedent("  a\n\tb"), dedent("a\n  b"), dedent("  x\n y")]
answers += [indent("a\n\nb\n", "> "), indent("a\n\n", "-", lambda line: True)]
""",
    "random after a seed, what does not depend on the numbers": """
import random
random.seed(7)
x = list(range(10))
random.shuffle(x)
answers += [sorted(x), sorted(random.sample(range(5), 5)), random.choice("a")]
answers += [random.choices("ab", weights=[0, 1], k=3)]
answers += [random.randint(3, 3), random.randrange(1), 0 <= random.random() < 1]
answers += [2 <= random.uniform(2, 3) <= 3]
answers += [sorted({random.randrange(1, 8, 3) for _ in range(200)})]
answers += [sorted({random.randint(-1, 1) for _ in range(200)})]
for wrong in (lambda: random.choice([]), lambda: random.randrange(3, 3), lambda: random.sample([1], 2)):
    try:
        wrong()
    except (IndexError, ValueError) as error:
        answers.append(type(error).__name__)
""",
}


@pytest.mark.parametrize("name", BODIES)
def test_modules_answer_as_in_python(python: Scripts, name: str) -> None:
    here: dict[str, Any] = {"answers": [], "json": json}
    exec(BODIES[name], here)
    assert run(python, BODIES[name]) == json.loads(json.dumps(here["answers"]))


def test_random_numbers_are_uniform(python: Scripts) -> None:
    counts = run(
        python,
        "import random\nfrom collections import Counter\n"
        "c = Counter(random.randrange(5) for _ in range(5000))\n"
        "answers += [c[i] for i in range(5)] + [sum(random.random() for _ in range(1000))]",
    )
    assert all(800 < count < 1200 for count in counts[:5]) and 430 < counts[5] < 570


FORKS = """
import random
from aici import *
async def main():
    await gen(regex="x")
    {seed}
    await fork(3)
    print(random.getrandbits(100))
"""


def test_forks_draw_different_numbers_unless_seeded(python: Scripts) -> None:
    def drawn(seed: str) -> set[str]:
        first = check(python.play(FORKS.format(seed=seed), "x"))
        assert len(first.all) == 3
        return {check(one).log.split()[-1] for one in first.all}

    assert len(drawn("pass")) == 3
    assert len(drawn("random.seed(1)")) == 1
    assert drawn("random.seed(1)") == drawn("random.seed(1)") != drawn("random.seed('1')")
