"""Garbage of Python scripts within one callback: it goes where that is safe, and nothing else does."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import pytest

from pyaici.testing import Playground
from tests.controllers.script.conftest import PATIENT, Scripts, check
from tests.thorough import also, thorough


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with Playground(limits=PATIENT) as playground:
        yield playground


#: makes more garbage than the heap of 32 MiB holds: 200 000 rounds of about 300 bytes
WORK = """
def work():
    kept = 0
    for i in range(200000):
        made = {"number": i, "list": [i, i + 1, str(i)], "text": "x" * 20 + str(i)}
        kept += len(made["list"])
    return kept
"""
#: all the places from which garbage goes
PLACES = {
    "the top level": "found = work()\nasync def main():\n    print(found)",
    "main": "async def main():\n    print(work())",
    "a coroutine": """
async def inner(count):
    return work() if count == 0 else await inner(count - 1)
async def main():
    print(await inner(3))
""",
    "a function in a function": """
async def main():
    a, b, c, d, e, f = 1, 2, 3, 4, 5, 0
    def inner(x, *, y):
        return work() + a + b + c + d + e + x + y - 15 + f
    print(inner(-1, y=1))
""",
    "a method": """
class Worker:
    def run(self):
        return work()
async def main():
    print(Worker().run())
""",
    "a comprehension": """
async def main():
    n = 3
    print(sum([0 * len([str(i), i]) + n for i in range(200000)]))
""",
    "an error": """
async def main():
    try:
        [][work()]
    except IndexError:
        print(600000)
""",
}


@pytest.mark.parametrize("place", PLACES if thorough() else ["a function in a function"])
def test_a_callback_may_allocate_more_garbage_than_the_heap_holds(python: Scripts, place: str) -> None:
    assert check(python.play(WORK + PLACES[place])).log == "600000\n"


def test_step_callbacks_collect_garbage(python: Scripts) -> None:
    script = "from aici import *\n" + WORK + "def mid_process(step):\n    print(work())\n    return Stop()"
    assert check(python.play(script)).log == "600000\n"


def test_live_objects_count_toward_the_heap_limit(python: Scripts) -> None:
    script = """
async def main():
    kept = []
    try:
        while True:
            kept.append([len(kept)] * 8)
    except MemoryError:
        print(len(kept) > 200000, kept[100000] == [100000] * 8)
"""
    assert check(python.play(script)).log == "True True\n"


def test_an_object_alone_in_a_part_of_the_heap_stays(python: Scripts) -> None:
    """The allocation that adds a part to the heap requests a collection, which finds nothing else in it.

    Its address is far from the one before. Later objects would overwrite it if the part were given back.
    """
    script = """
async def main():
    kept = []
    before = 0
    for i in range(100000):
        new = (i, i)
        if abs(id(new) - before) > 10000:
            kept.append((i, new))
        before = id(new)
    print(len(kept) > 10, [i for i, new in kept if new != (i, i)])
"""
    assert check(python.play(script)).log == "True []\n"


def test_collections_do_not_scan_the_heap_for_each_of_nested_lists() -> None:
    """Marking such a chain took a scan per list, a minute in all; now it takes one per 4096 objects."""
    script = """
import gc
gc.disable()
chain = []
for i in range(1000):
    chain = [[j] for j in range(70)] + [chain]
gc.enable()
for i in range(20):
    gc.collect()
async def main():
    print(len(chain))
"""
    with Playground(limits={"init_ms": 10_000}) as playground:
        assert check(Scripts(playground, "python").play(script)).log == "71\n"


#: each collects at every jump; all that is in use lies in as many kinds of places as the language has
PROGRAM = """
class Box:
    def __init__(self, value):
        self.value = [value, {"value": str(value) * 3}]
        for i in range(3):
            self.value.append("item %d" % i)
    def __enter__(self):
        churn()
        return self
    def __exit__(self, *error):
        churn()
        return False
    def __add__(self, other):
        churn()
        return Box((self.value[0], other.value[0]))
    def __getitem__(self, i):
        churn()
        return self.value[i]
    def __eq__(self, other):
        churn()
        return self.value == other.value
    def __lt__(self, other):
        churn()
        return repr(self.value) < repr(other.value)
    def __repr__(self):
        churn()
        return "Box(" + repr(self.value[0]) + ")"
    @property
    def half(self):
        churn()
        return [self.value[0]] * 2
    def __iter__(self):
        for each in self.value:
            churn()
            yield [each]

def churn():
    # what was freed is written over at once
    for i in range(6):
        [str(i) * 7, {i: i}, (i, i), [i] * 9, "%d" % i]

def through(value):
    with Box(value) as box:
        with Box(value * 2):
            return ["made here"] + [str(value) + "!", box.half]

def leaves():
    for i in range(3):
        try:
            churn()
            if i == 1:
                return ["out", str(i) * 4]
        finally:
            churn()

def fails(value):
    try:
        churn()
        raise ValueError("number " + str(value))
    except ValueError as error:
        churn()
        try:
            raise KeyError(str(error) + "?")
        except KeyError as other:
            churn()
            return [str(error), other.args[0]]
        finally:
            churn()

def takes(a, b=["b"], *args, c="c" * 5, **kwargs):
    churn()
    return [a, b, args, c, sorted(kwargs.items())]

def closes(n):
    one, two, three, four, five = [[n + i] for i in range(5)]
    def add(x, y="y" * 3):
        churn()
        return [one, two, three, four, five, x, y]
    return add

def yields(n):
    for i in range(n):
        churn()
        got = yield [str(i)]
        churn()
        if got:
            yield got
    return "returned" * 2

def delegates(n):
    churn()
    result = yield from yields(n)
    churn()
    yield result

def deep(n):
    kept = [str(n)] * 3
    churn()
    return kept + (deep(n - 1) if n else [])

def ladder(n):
    # the state of this function is too large for the stack
    a0, a1, a2, a3, a4, a5, a6, a7, a8, a9 = [[n, i] for i in range(10)]
    churn()
    b = [a0, a1, a2, a3, a4, [a5, a6, a7, [a8, a9, [n, [n, [n, str(n), (n, [n, churn(), [a9, (a8, a7)]])]]]]]]
    churn()
    return b

for turn in range(3):
    print(through(turn), leaves(), fails(turn))
    print(takes(turn), takes(str(turn), [turn], "more", ["even"], c=["c"], d="d" * 4, e=[turn]))
    print(takes(*[str(turn), [turn]], **{"k": [turn], "l": "l" * 3}))
    add = closes(turn)
    print(add(["x"]), add(*["x"], y=[turn]))
    print(list(yields(2)), [each for each in delegates(2)])
    print([[str(i) + str(turn)] for i in range(4)], {str(i): [i] for i in range(4)})
    print(sorted([Box(i) for i in (3, 1, 2)]), sorted([3, 1, 2], key=lambda i: [churn(), -i][1]))
    print(Box(1) + Box(2), Box("a")[1], Box(3) == Box(3), Box(3).half, list(Box(4)))
    print(list(map(lambda x: [churn(), str(x)], range(3))), sum((i for i in range(5))), max("a", "b" * 2))
    print(deep(5), ladder(turn), ", ".join(str(i) for i in range(4)))
    print(f"{str(turn):>5}{[turn]!r}", dict(a=[turn], **{"b": [str(turn)]}))
    x = [1, 2, [3]]
    x[0], (x[1], *rest) = [str(turn)], ["r", ["s"], turn]
    print(x, rest)
"""


def by_cpython(program: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, {"__name__": "program"})
    return out.getvalue()


def indented(program: str) -> str:
    return "".join(f"    {line}\n" for line in program.splitlines())


@pytest.mark.parametrize("where", ["in a coroutine", *also("at the top level", "in main")])
def test_live_objects_are_not_collected(python: Scripts, where: str) -> None:
    """With a collection at every jump, whatever was collected too early is written over by the next lines."""
    often = "import gc\ngc.threshold(0)\n"
    script = {
        "at the top level": often + PROGRAM + "async def main(): pass\n",
        "in main": often + "async def main():\n" + indented(PROGRAM),
        "in a coroutine": often
        + "async def inner():\n"
        + indented(PROGRAM)
        + "async def outer(kept):\n    await inner()\n    return kept\n"
        + "async def main():\n    if await outer(['k' * 5]) != ['kkkkk']:\n        print('lost')\n",
    }[where]
    assert check(python.play(script)).log == by_cpython(PROGRAM)


def test_actions_between_collections(python: Scripts) -> None:
    script = """
import gc
gc.threshold(0)
from aici import *
async def ask(i):
    start = label()
    await force(str(i) + ":")
    one = await generate(regex="[a-z]", max_tokens=1, top_logprobs=2)
    return [start.text, one.text, len(one.details[0].top_logprobs)]
async def main():
    answers = []
    for i in range(5):
        answers.append(await ask(i))
        gc.collect()
    print(answers)
"""
    log = check(python.play(script, "0:a1:b2:c3:d4:e")).log
    assert log == repr([[f"{i}:{'abcde'[i]}", "abcde"[i], 2] for i in range(5)]) + "\n"
