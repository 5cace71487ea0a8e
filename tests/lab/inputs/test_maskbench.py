"""Files in MaskBench's layout: reading, choosing and writing them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from lab.inputs.instances import NoInstance, invalid_instance
from lab.inputs.maskbench import BrokenFile, choose, more_texts, read_case, write_own
from lab.inputs.own_schemas import OWN


def test_case_has_its_texts(tmp_path: Path) -> None:
    tests = [
        {"description": "one", "valid": True, "data": {"b": "é", "a": [1.5, None]}},
        {"valid": False, "data": "x", "rust_error": "no"},
    ]
    path = tmp_path / "a---b.json"
    path.write_text(json.dumps({"description": "", "meta": {}, "schema": {"type": "object"}, "tests": tests}))
    case = read_case(path)
    assert (case.name, case.schema) == ("a---b", {"type": "object"})
    assert (case.valid, case.invalid) == (['{"b": "é", "a": [1.5, null]}'], ['"x"'])


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"schema": {}', "the file cannot be read as JSON: Expecting"),
        (b"\xff\xfe\x00", "the file cannot be read as JSON: "),
        (b"[" * 100_000, "the file cannot be read as JSON: "),
        (b"[]", 'an object with the member "schema"'),
        (b'{"schema": 1, "tests": []}', 'an object with the member "schema"'),
        (b'{"schema": {}}', 'the member "tests" must be a list'),
        (b'{"schema": {}, "tests": [{"valid": true}]}', "test 0 must be an object"),
        (b'{"schema": {}, "tests": [{"valid": 1, "data": 1}]}', "test 0 must be an object"),
        (b'{"schema": {}, "tests": [{"valid": true, "data": NaN}]}', "NaN is no number of JSON"),
        (
            b'{"schema": {}, "tests": [{"valid": true, "data": "\\ud800"}]}',
            "test 0 has half of a surrogate pair",
        ),
    ],
)
def test_broken_file_is_named_with_its_problem(tmp_path: Path, text: bytes, problem: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text)
    with pytest.raises(BrokenFile) as error:
        read_case(path)
    assert str(error.value).startswith(f"bad.json: {problem}")


def test_choice_depends_on_the_seed_only(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.json").touch()
    whole = choose(tmp_path, None, 1)
    assert len(whole) == 20
    assert choose(tmp_path, 5, 1) == whole[:5], "a part is a random sample of the whole"
    assert choose(tmp_path, 5, 2) != whole[:5]


def test_own_schemas_have_valid_and_invalid_tests(tmp_path: Path) -> None:
    write_own(tmp_path, 0)
    cases = [read_case(path) for path in choose(tmp_path, None, 0)]
    assert {case.name for case in cases} == set(OWN) and len(OWN) == 12
    for case in cases:
        validator = jsonschema.Draft202012Validator(case.schema)
        assert case.valid and all(validator.is_valid(json.loads(text)) for text in case.valid)
        assert case.invalid and not any(validator.is_valid(json.loads(text)) for text in case.invalid)
        texts = more_texts(case.schema, case.valid, 4)
        assert texts[: len(case.valid)] == case.valid and len(texts) == len(set(texts)) == 4
        assert all(validator.is_valid(json.loads(text)) for text in texts)


def test_schema_that_allows_everything_has_no_invalid_instance() -> None:
    with pytest.raises(NoInstance):
        invalid_instance({}, 0)


def test_odd_schemas_have_no_further_texts() -> None:
    assert more_texts({"type": "no type", "pattern": 5}, ["1"], 3) == ["1"]
    assert more_texts(False, [], 3) == []
