"""Schemas with valid and invalid texts, in the layout of MaskBench: a JSON file for each schema.

A file is an object with `schema` and `tests`, a list of objects with `data` (a value) and `valid`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from lab.inputs.instances import NoInstance, invalid_instance, valid_instance
from lab.inputs.own_schemas import OWN
from lab.inputs.schemas import real_schemas

#: bytes; the largest file of MaskBench has half a megabyte
_LARGEST = 16 << 20
#: generated values for each of our own schemas, valid and invalid
_TESTS = 2
#: seeds that are tried for them
_SEEDS = 6


class BrokenFile(ValueError):
    """A file that is not in MaskBench's layout. The message names it, what is wrong, and what is expected."""


class Case(NamedTuple):
    """A schema with texts that it allows and texts that it does not allow."""

    name: str
    schema: Any
    valid: list[str]
    invalid: list[str]


def read_case(path: Path) -> Case:
    """Reads a file. Raises BrokenFile."""

    def broken(problem: str) -> NoReturn:
        raise BrokenFile(f"{path.name}: {problem}")

    def no_number(name: str) -> NoReturn:
        broken(f"{name} is no number of JSON")

    try:
        if (size := path.stat().st_size) > _LARGEST:
            broken(f"the file has {size} bytes; at most {_LARGEST} are read")
        data = json.loads(path.read_bytes(), parse_constant=no_number)
    except BrokenFile:
        raise
    except (OSError, ValueError, RecursionError) as error:
        broken(f"the file cannot be read as JSON: {error}")
    if not isinstance(data, dict) or not isinstance(data.get("schema"), dict | bool):
        broken('an object with the member "schema", an object or a boolean, is expected')
    tests = data.get("tests")
    if not isinstance(tests, list):
        broken('the member "tests" must be a list')
    texts: dict[bool, list[str]] = {True: [], False: []}
    for number, test in enumerate(tests):
        if not isinstance(test, dict) or "data" not in test or not isinstance(test.get("valid"), bool):
            broken(f'test {number} must be an object with "data" and a boolean "valid"')
        text = text_of(test["data"])
        try:
            text.encode()
        except UnicodeEncodeError:
            broken(f"test {number} has half of a surrogate pair, which UTF-8 cannot encode")
        texts[test["valid"]].append(text)
    return Case(path.stem, data["schema"], texts[True], texts[False])


def text_of(value: Any) -> str:
    """Returns the text of a value as MaskBench writes it."""
    return json.dumps(value, ensure_ascii=False)


def write_own(folder: Path, every: int) -> None:
    """Writes our own schemas, and every `every`-th published one (0: none), with generated tests."""
    folder.mkdir(parents=True, exist_ok=True)
    samples: Iterator[tuple[str, Any]] = iter(OWN.items())
    if every:
        published = ((sample.name.replace("/", "---"), sample.schema) for sample in real_schemas(every))
        samples = chain(samples, published)
    for name, schema in samples:
        tests = [*_tests(schema, True, valid_instance), *_tests(schema, False, invalid_instance)]
        data = {"description": name, "schema": schema, "tests": tests}
        (folder / f"{name.removesuffix('.json')}.json").write_text(json.dumps(data))


def _tests(schema: Any, valid: bool, make: Callable[[Any, int], Any]) -> list[dict[str, Any]]:
    """Returns tests with different values, as far as any are found."""
    found: list[dict[str, Any]] = []
    for seed in range(_SEEDS):
        with suppress(NoInstance):
            test = {"valid": valid, "data": make(schema, seed)}
            found += [test] if test not in found else []
    return found[:_TESTS]


def more_texts(schema: Any, known: list[str], count: int) -> list[str]:
    """Returns up to `count` different texts: the known ones, then generated ones as far as any are found."""
    texts = list(dict.fromkeys(known))[:count]
    for seed in range(2 * count):
        if len(texts) == count:
            break
        try:
            text = text_of(valid_instance(schema, seed, attempts=2))
            text.encode()
        except Exception:  # a schema may have any flaw, and the validator meets it in its own way
            continue
        if text not in texts:
            texts.append(text)
    return texts


def choose(folder: Path, limit: int | None, seed: int) -> list[Path]:
    """Returns the folder's files in an order that depends on the seed only: all, or the first `limit`.

    So whatever part of a run is done, it is a random sample. Raises FileNotFoundError."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise FileNotFoundError(
            f"{folder} has no JSON files: give the folder maskbench/data of a checkout of jsonschemabench"
        )
    random.Random(seed).shuffle(paths)
    return paths[:limit]
