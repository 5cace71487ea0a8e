"""Floats in scripts in Python: text, parsing and rounding are those of CPython, to the last digit."""

from __future__ import annotations

import json
import math
import random
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyaici.testing import Playground
from tests.controllers.script.conftest import Scripts, check

#: runs in the controller, and here for the expected answers
ANSWER = """
def answer(texts, places):
    found = []
    for text in texts:
        try:
            x = float(text)
        except ValueError:
            found.append("ValueError")
            continue
        found += [repr(x), str(-x), repr(complex(abs(x), 1 - x))]
        found += ["%.3f" % x, "%g" % x, "%8.2e|" % x, "%-9.1f|" % x]
        found += [f"{x}", f"{x:12}", f"{x:<9.4}", f"{x:.1}", f"{x:.0f}", f"{x:.25f}", f"{x:+.17g}", f"{x:%}"]
        found += [f"{x:,}", f"{x:+017,.2f}", f"{x:^20,.1f}", f"{x:#.3g}", f"{x:E}", f"{x:G}", f"{x:*>9.1F}"]
        if x - x == 0:
            found.append(json.dumps([x, {"x": x}]))
        for n in places:
            try:
                found.append(repr(round(x, n)))
            except OverflowError:
                found.append("OverflowError")
    return found
"""
SOURCE = f"""
import json
from aici import *
{ANSWER}
async def main():
    await gen(regex="x")
    for text in answer(arg["texts"], arg["places"]):
        print(text)
"""
PLACES = [0, 1, 2, 3, -1, -2, 15, 22, 320, 400, -308, -309, -400]
HERE: dict[str, Any] = {"json": json}
exec(ANSWER, HERE)


def compare(python: Scripts, texts: list[str], places: list[int]) -> None:
    for at in range(0, len(texts), 8):  # the log keeps 64 KiB
        part = texts[at : at + 8]
        played = check(python.play(SOURCE, "x", arg={"texts": part, "places": places}))
        assert played.log.splitlines() == HERE["answer"](part, places)


def bits(value: int) -> float:
    found: float = struct.unpack("<d", struct.pack("<Q", value))[0]
    return found


def test_floats_with_random_bits(python: Scripts) -> None:
    pick = random.Random(1)
    compare(python, [repr(bits(pick.getrandbits(64))) for _ in range(200)], PLACES)


def test_powers_of_two_whose_neighbours_are_at_different_distances(python: Scripts) -> None:
    """For 2**-44 the nearest decimal of 16 digits is another number, and the second nearest is this one."""
    compare(python, [repr(math.ldexp(1, power)) for power in (-44, *range(-1074, 1024, 17))], [3])


def test_long_texts_and_ties(python: Scripts) -> None:
    half = f"{2**53 + 1}"
    ties = [
        "0.5",
        "1.5",
        "2.5",
        "0.125",
        "2.675",
        "25",
        "35",
        "250",
        "2500000001",
        "5e22",
        "9.5",
        "99.5",
        "950",
    ]
    long = [
        half,
        half + ".0" + "0" * 800 + "1",
        "0" * 900 + "1.5",
        "1" + "0" * 400 + "e-400",
        f"{bits(1):.1074f}",
    ]
    compare(
        python,
        [*ties, *long, "1e22", "1e23", "1e16", "1e-5", "5e-324", "2e-324", "1.7976931348623157e308"],
        PLACES,
    )


def test_valid_and_invalid_texts(python: Scripts) -> None:
    valid = [
        "inf",
        "-Infinity",
        "nan",
        "-nan",
        "0",
        "-0.0",
        " 1_0.5_0\n",
        "+.5",
        "5.",
        "1e1_0",
        "1e99999",
        "1e-99999",
    ]
    invalid = [
        "",
        " ",
        ".",
        "e5",
        "1e",
        "1e+",
        "1__0",
        "_1",
        "1_",
        "1_.5",
        "1._5",
        "1e_5",
        "0x10",
        "infinit",
        "1 2",
        "--1",
    ]
    compare(python, [*valid, *invalid, "nan(1)", "1j", "1,5"], PLACES)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=20), st.integers(-30, 30))
@example([0.1 + 0.2, 1 / 3, 100.0, 1e21], 3)
def test_any_floats(playground: Playground, values: list[float], places: int) -> None:
    compare(Scripts(playground, "python"), [repr(value) for value in values], [places])


COMPLEX = [
    *("1", "1+2j", "j", "-j", "+2.5j", "1-j", "1e5-1e-5j", "nan+infj", "inf", "3-2.675J", " 1j\t"),
    *("", "1 + 2j", "1j2", "1+2", "+", "1+", "1jj", "j1"),
]
BODY = """
for text in {texts}:
    try:
        print(complex(text))
    except ValueError:
        print("invalid")
print(round(5), round(25, -1), round(2.5), round(2.5, None), 1_0.5e-1_0, .5, 5., 2.5j, 0.1 + 0.2)
for value, places in (("1", 1), (1.5, "1"), (1.5, 1.5)):
    try:
        round(value, places)
    except TypeError:
        print("TypeError")
"""


def test_literals_and_complex_numbers(python: Scripts, capsys: pytest.CaptureFixture[str]) -> None:
    body = BODY.format(texts=COMPLEX)
    played = check(python.play(f"async def main():\n{'    '.join(['', *body.splitlines(True)])}", ""))
    exec(body, {})
    assert played.log == capsys.readouterr().out
