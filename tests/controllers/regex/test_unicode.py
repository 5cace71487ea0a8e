"""Unicode classes and case folding, complete: every property, for every code point."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable

import numpy as np
import pytest
import regex
from numpy.typing import NDArray

from pyaici.toolchain import find_sdk
from tests.controllers.regex.engine import Engine, Refused
from tests.thorough import cases, thorough

#: for each code point whether it belongs to a set
Flags = NDArray[np.bool_]

SCALAR = np.ones(0x110000, np.bool_)
SCALAR[0xD800:0xE000] = False
EVERYTHING = "".join(map(chr, np.flatnonzero(SCALAR)))


def names(table: str) -> list[list[str]]:
    """The spellings of each entry of a table of names in unicode_data.cpp."""
    source = (find_sdk().root / "src" / "regex" / "unicode_data.cpp").read_text()
    body = source.split(f"const char {table}[] =")[1].split(";")[0]
    return [line.split() for line in re.findall(r'"(.*?)\\n"', body)]


def flags(characters: Iterable[str]) -> Flags:
    found = np.zeros(0x110000, np.bool_)
    found[np.frombuffer("".join(characters).encode("utf-32-le"), np.uint32)] = True
    return found


def members(engine: Engine, pattern: str) -> Flags:
    engine.compile(pattern)
    found = np.frombuffer(engine.characters(), np.uint8) != 0
    assert not (found & ~SCALAR).any()
    return found


def expected(pattern: str) -> Flags:
    """By the `regex` package, whose tables ours were made from: this tests packing and unpacking."""
    return flags(regex.findall(pattern, EVERYTHING, regex.V0))


def same(one: Flags, two: Flags) -> bool:
    return np.array_equal(one, two)


CATEGORIES, GROUPS = names("kCategoryNames"), names("kGroupNames")
SCRIPTS, PROPERTIES = names("kScriptNames"), names("kPropertyNames")


def test_tables_are_of_one_version(engine: Engine) -> None:
    assert engine.unicode_version() == "18.0.0"
    assert (len(CATEGORIES), len(GROUPS)) == (30, 8)
    assert len(SCRIPTS) >= 170
    assert len(PROPERTIES) >= 20


def test_categories(engine: Engine) -> None:
    times = np.zeros(0x110000, np.uint8)
    for spellings in CATEGORIES:
        if spellings[0] == "cs":  # surrogates are no characters
            continue
        found = members(engine, rf"\p{{{spellings[0]}}}")
        assert same(found, expected(rf"\p{{gc={spellings[0]}}}")), spellings
        times += found
    assert same(times == 1, SCALAR)


def test_groups_of_categories(engine: Engine) -> None:
    for spellings in GROUPS:
        assert same(members(engine, rf"\p{{{spellings[0]}}}"), expected(rf"\p{{gc={spellings[0]}}}")), (
            spellings
        )


def test_scripts(engine: Engine) -> None:
    """By default, every eighth: those of other tables are complete, and all are packed alike."""
    times = np.zeros(0x110000, np.uint8)
    for spellings in SCRIPTS[:: cases(8, 1)]:
        wanted = expected(rf"\p{{Script={spellings[-1]}}}")
        if not wanted.any():  # Katakana_Or_Hiragana and the like
            with pytest.raises(Refused, match="no text matches"):
                engine.compile(rf"\p{{sc={spellings[0]}}}")
            continue
        found = members(engine, rf"\p{{sc={spellings[0]}}}")
        assert same(found, wanted), spellings
        times += found
    assert same(times == 1, SCALAR) if thorough() else times.max() == 1


def test_properties(engine: Engine) -> None:
    for spellings in PROPERTIES:
        assert same(members(engine, rf"\p{{{spellings[0]}}}"), expected(rf"\p{{{spellings[0]}}}")), spellings


def test_all_spellings_are_known_and_mean_the_same(engine: Engine) -> None:
    for table, key in (
        (CATEGORIES, "gc="),
        (GROUPS, "General_Category: "),
        (SCRIPTS, "sc="),
        (PROPERTIES, ""),
    ):
        for spellings in table:
            for spelling in spellings:
                if spellings[0] == "cs":
                    continue
                loud = f"{spelling[:1].upper()}{spelling[1:2]}-_ {spelling[2:].upper()}"
                one, two = rf"\p{{{key}{spellings[0]}}}", rf"\p{{{key}{loud}}}"
                with pytest.raises(Refused, match="no text matches"):  # the symmetric difference is empty
                    engine.compile(rf"[{one}~~{two}]")


def test_perl_classes(engine: Engine) -> None:
    for pattern in (r"\d", r"\D", r"\s", r"\S"):
        assert same(members(engine, pattern), expected(pattern))
    # UTS 18, annex C
    word = expected(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d]")
    assert same(members(engine, r"\w"), word)
    assert same(members(engine, r"\W"), SCALAR & ~word)


def test_categories_as_in_the_standard_library(engine: Engine) -> None:
    """An independent source, of an older version: what was assigned then has moved in a few places only."""
    theirs = np.array([unicodedata.category(chr(c)).lower() for c in range(0x110000)])
    moved = 0
    for spellings in CATEGORIES:
        if spellings[0] != "cs":
            found = members(engine, rf"\p{{{spellings[0]}}}")
            moved += int((found & (theirs != "cn") & (theirs != spellings[0])).sum())
    assert moved <= 60


#: simple foldings of characters whose full folding is a text of several characters, since Unicode 15.1
NEW_FOLDINGS = {"\ufb05": "\ufb06", "\u1fd3": "\u0390", "\u1fe3": "\u03b0"}


def simple_fold(character: str) -> str:
    """Simple case folding by the standard library, which offers only the full one."""
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return NEW_FOLDINGS.get(character, character)


def test_case_folding_as_in_the_standard_library(engine: Engine) -> None:
    """For every character with a case partner; newer characters, which the library lacks, are left out."""
    known = [c for c in EVERYTHING if unicodedata.category(c) != "Cn"]
    orbits: dict[str, set[str]] = {}
    for character in known:
        orbits.setdefault(simple_fold(character), set()).add(character)
    partners = {c: orbit for orbit in orbits.values() if len(orbit) > 1 for c in orbit}
    assert len(partners) > 2700
    for character, orbit in [*partners.items()][:: cases(4, 1)]:
        engine.compile(f"(?i){character}")
        assert all(engine.accepts(other) for other in orbit), character
    old = flags(known)
    for character in [c for c in partners if len(partners[c]) > 2] + list(partners)[:: cases(200, 50)]:
        assert same(members(engine, f"(?i){character}") & old, flags(partners[character])), character


def test_case_folding_as_in_the_regex_package(engine: Engine) -> None:
    """Whole classes, with characters that the standard library does not know yet."""
    for pattern in (r"[\p{Lu}\p{Greek}]", r"[a-z]", r"[\u0250-\u1fff]", r"[\U00010400-\U0001ffff]"):
        found, turkic = members(engine, f"(?i){pattern}"), flags("İı") & ~members(engine, pattern)
        assert not (found & turkic).any()
        assert same(found, expected(f"(?i){pattern}") & ~turkic), pattern


def test_turkic_letters_do_not_fold_to_ascii(engine: Engine) -> None:
    for letter in "İı":
        engine.compile(f"(?i){letter}")
        assert [c for c in "iIİı" if engine.accepts(c)] == [letter]
    engine.compile("(?i)i")
    assert [c for c in "iIİı" if engine.accepts(c)] == ["i", "I"]


def test_ascii_folding(engine: Engine) -> None:
    assert same(members(engine, "(?i:[a-z])"), flags(string.ascii_letters + "ſ\u212a"))
    assert same(members(engine, "(?i-u:[a-z])"), flags(string.ascii_letters))
