"""Compares whole masks with those of llguidance, along valid texts and along random ones.

    python -m lab.oracles.json_schema.compare --schemas 5000 --seed 1

takes as many random schemas, and `--every 1` all published ones; what is of no known class is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
from referencing.exceptions import Unresolvable

from lab.inputs.schemas import real_schemas
from lab.oracles.json_schema.judge import Judge
from lab.oracles.json_schema.peer import pair
from lab.oracles.json_schema.schema_engine import Engine, build
from lab.oracles.json_schema.schemas import MoreSchemas, Schemas


def texts(source: Schemas, schema: Any) -> Iterator[str]:
    """Yields texts of some valid values."""
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    for _ in range(8):
        value = source.value(schema)
        try:
            if kind(schema).is_valid(value):
                yield json.dumps(value, ensure_ascii=False)
        except (RecursionError, Unresolvable):
            return


def walk_along(judge: Judge, rng: random.Random, source: Schemas, schema: Any) -> None:
    """Walks at random, along valid texts, and along deviations from them."""
    walks: list[tuple[list[int], int]] = [([], 25)]
    for text in list(texts(source, schema))[:3]:
        tokens = list(judge.pair.tokenize(text))
        walks += [(tokens, 0), (tokens[: rng.randint(0, len(tokens))], 12)]
    for tokens, further in walks:
        judge.walk(rng, tokens, further)


def compare_random(judge: Judge, seeds: range) -> Counter[str]:
    """Compares random schemas along valid texts and deviations from them. Returns counts of refusals."""
    refusals = Counter[str]()
    for seed in seeds:
        rng = random.Random(seed)
        source = (MoreSchemas if seed % 2 else Schemas)(rng)
        schema = source.schema()
        if isinstance(schema, bool):
            continue
        refused = judge.compile(schema)
        refusals[" and ".join(refused) or "nobody"] += 1
        if not refused:
            walk_along(judge, rng, source, schema)
    return refusals


def compare_published(judge: Judge, every: int) -> Counter[str]:
    """Compares every n-th published schema, along a valid text. Returns counts of refusals."""
    refusals = Counter[str]()
    for number, sample in enumerate(real_schemas(every)):
        refused = judge.compile(sample.schema)
        refusals[" and ".join(refused) or "nobody"] += 1
        if refused:
            continue
        text = json.dumps(json.loads(sample.text), ensure_ascii=False)
        judge.walk(random.Random(number), judge.pair.tokenize(text), 10)
    return refusals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--schemas", type=int, default=1000, help="random ones")
    parser.add_argument("--seed", type=int, default=1_000_000, help="the first")
    parser.add_argument("--every", type=int, default=4, help="of the published ones one of so many; 0: none")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, pair(Path(folder)) as both:
        judge = Judge(both, Engine(build(Path(folder))))
        refused = compare_random(judge, range(wanted.seed, wanted.seed + wanted.schemas))
        print(f"random schemas by who refuses them: {dict(refused)}", flush=True)
        if wanted.every:
            print(f"published ones: {dict(compare_published(judge, wanted.every))}")
    print(f"{judge.masks} masks, differences: {dict(judge.classes)}")
    print(*judge.unknown, sep="\n")
    return 1 if judge.unknown else 0


if __name__ == "__main__":
    sys.exit(main())
