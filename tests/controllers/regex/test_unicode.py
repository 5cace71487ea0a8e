"""Unicode classes and case folding, complete: every property, for every code point."""

from __future__ import annotations

import re
import string
import unicodedata

import pytest
import regex

from pyaici.build import find_sdk
from tests.controllers.regex.engine import Engine, Refused

SURROGATES = range(0xD800, 0xE000)
SCALARS = [c for c in range(0x110000) if c not in SURROGATES]
EVERYTHING = "".join(map(chr, SCALARS))


def names(table: str) -> list[list[str]]:
    """The spellings of each entry of a table of names in unicode_data.cpp."""
    source = (find_sdk().root / "src" / "regex" / "unicode_data.cpp").read_text()
    body = source.split(f"const char {table}[] =")[1].split(";")[0]
    return [line.split() for line in re.findall(r'"(.*?)\\n"', body)]


def members(engine: Engine, pattern: str) -> set[str]:
    engine.compile(pattern)
    seen = engine.characters()
    assert not any(seen[c] for c in SURROGATES)
    return {chr(c) for c in SCALARS if seen[c]}


def expected(pattern: str) -> set[str]:
    """By the `regex` package, whose tables ours were made from: this tests packing and unpacking."""
    return set(regex.findall(pattern, EVERYTHING, regex.V0))


CATEGORIES, GROUPS = names("kCategoryNames"), names("kGroupNames")
SCRIPTS, PROPERTIES = names("kScriptNames"), names("kPropertyNames")


def test_tables_are_of_one_version(engine: Engine) -> None:
    assert engine.unicode_version() == "18.0.0"
    assert (len(CATEGORIES), len(GROUPS)) == (30, 8)
    assert len(SCRIPTS) >= 170
    assert len(PROPERTIES) >= 20


def test_categories(engine: Engine) -> None:
    union: set[str] = set()
    for spellings in CATEGORIES:
        if spellings[0] == "cs":  # surrogates are no characters
            continue
        found = members(engine, rf"\p{{{spellings[0]}}}")
        assert found == expected(rf"\p{{gc={spellings[0]}}}"), spellings
        assert not found & union
        union |= found
    assert len(union) == len(SCALARS)


def test_groups_of_categories(engine: Engine) -> None:
    for spellings in GROUPS:
        assert members(engine, rf"\p{{{spellings[0]}}}") == expected(rf"\p{{gc={spellings[0]}}}"), spellings


def test_scripts(engine: Engine) -> None:
    union: set[str] = set()
    for spellings in SCRIPTS:
        wanted = expected(rf"\p{{Script={spellings[-1]}}}")
        if not wanted:  # Katakana_Or_Hiragana and the like
            with pytest.raises(Refused, match="no text matches"):
                engine.compile(rf"\p{{sc={spellings[0]}}}")
            continue
        found = members(engine, rf"\p{{sc={spellings[0]}}}")
        assert found == wanted, spellings
        assert not found & union
        union |= found
    assert len(union) == len(SCALARS)


def test_properties(engine: Engine) -> None:
    for spellings in PROPERTIES:
        assert members(engine, rf"\p{{{spellings[0]}}}") == expected(rf"\p{{{spellings[0]}}}"), spellings


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
                # equal sets have an empty symmetric difference
                engine.compile(rf"[{one}~~{two}]|\n\n")
                assert not engine.alive("a"), spelling
                assert not any(engine.characters()), spelling


def test_perl_classes(engine: Engine) -> None:
    for pattern in (r"\d", r"\D", r"\s", r"\S"):
        assert members(engine, pattern) == expected(pattern)
    # UTS 18, annex C
    word = expected(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d]")
    assert members(engine, r"\w") == word
    assert members(engine, r"\W") == set(EVERYTHING) - word


def test_categories_as_in_the_standard_library(engine: Engine) -> None:
    """An independent source, of an older version: what was assigned then has moved in a few places only."""
    moved = 0
    for spellings in CATEGORIES:
        if spellings[0] == "cs":
            continue
        found = members(engine, rf"\p{{{spellings[0]}}}")
        moved += sum(
            unicodedata.category(c).lower() != spellings[0] for c in found if unicodedata.category(c) != "Cn"
        )
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
    for character, orbit in partners.items():
        engine.compile(f"(?i){character}")
        assert all(engine.matches(other) for other in orbit), character
    for character in [c for c in partners if len(partners[c]) > 2] + list(partners)[::50]:
        assert members(engine, f"(?i){character}") & set(known) == partners[character], character


def test_case_folding_as_in_the_regex_package(engine: Engine) -> None:
    """Of whole classes, with the characters that the standard library does not know yet."""
    for pattern in (r"[\p{Lu}\p{Greek}]", r"[a-z]", r"[\u0250-\u1fff]", r"[\U00010400-\U0001ffff]"):
        found = members(engine, f"(?i){pattern}")
        turkic = set("İı") & found - members(engine, pattern)
        assert not turkic
        assert found == expected(f"(?i){pattern}") - (set("İı") - members(engine, pattern)), pattern


def test_turkic_letters_are_their_own(engine: Engine) -> None:
    for letter in "İı":
        engine.compile(f"(?i){letter}")
        assert [c for c in "iIİı" if engine.matches(c)] == [letter]
    engine.compile("(?i)i")
    assert [c for c in "iIİı" if engine.matches(c)] == ["i", "I"]


@pytest.mark.parametrize("flags", ["", "-u"])
def test_ascii_folding(engine: Engine, flags: str) -> None:
    beyond = {"ſ", "\u212a"} if not flags else set()
    assert members(engine, f"(?i{flags}:[a-z])") == set(string.ascii_letters) | beyond
