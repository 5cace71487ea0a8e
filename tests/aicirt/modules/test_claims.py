from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicirt.contract.errors import ModuleError
from aicirt.modules.ownership import Claim, Claims

_OWNERS = st.sampled_from(["ann", "bob", "cleo"])
_MODULES = st.sampled_from(["1" * 64, "a" * 64])
_CHANGES = st.tuples(st.sampled_from(["add", "drop", "forget"]), _MODULES, _OWNERS)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(_CHANGES, max_size=8))
def test_claims_equal_those_added_and_not_removed(
    tmp_path: Path, changes: list[tuple[str, str, str]]
) -> None:
    claims = Claims(tmp_path)
    with claims.changing() as change:
        for module in list(claims.read()):
            change.forget(module)
    expected: dict[str, set[str]] = {}
    created: dict[str, float] = {}
    for verb, module, owner in changes:
        with claims.changing() as change:
            if verb == "add":
                change.add(module, owner)
                expected.setdefault(module, set()).add(owner)
            elif verb == "drop":
                change.drop(module, owner)
                expected.get(module, set()).discard(owner)
            else:
                change.forget(module)
                expected.pop(module, None)
                created.pop(module, None)
            assert change.owners(module) == expected.get(module, set())
        found = claims.read()
        assert {module: set(claim.owners) for module, claim in found.items()} == expected
        for module, claim in found.items():
            assert claim.created == created.setdefault(module, claim.created) > 0


def test_failed_change_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    with claims.changing() as change:
        change.add("m", "ann")
    before = claims.read()
    with pytest.raises(ModuleError, match="owner 'bob' has not uploaded module m; 1 other owners have"):
        with claims.changing() as change:
            change.add("other", "bob")
            change.require("m", "bob")
    assert claims.read() == before and before["m"] == Claim(before["m"].created, {"ann": before["m"].created})


def test_concurrent_processes_lose_no_claims(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from aicirt.modules.ownership import Claims
claims = Claims(Path(sys.argv[1]))
for number in range(20):
    with claims.changing() as change:
        change.add("shared", f"{sys.argv[2]}-{number}")
"""
    words = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen([*words, str(number)]) for number in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len(Claims(tmp_path).read()["shared"].owners) == 60
