"""A schema counts in a race if every engine accepts it and its instance."""

from __future__ import annotations

from typing import Any

from lab.contestants import Contestant, Refused
from lab.contestants.schema_race import race_schemas
from lab.inputs.schemas import Sample


class Fake(Contestant):
    """Allows tokens up to `most`. Refuses the schema if `most` is None."""

    def __init__(self, name: str, most: int | None) -> None:
        self.name = name
        self._most = most

    def compile(self) -> None:
        if self._most is None:
            raise Refused("no")

    def reset(self) -> None:
        pass

    def mask(self) -> None:
        pass

    def accept(self, token: int) -> None:
        pass

    def row(self) -> bytes:
        assert self._most is not None
        return ((1 << (self._most + 1)) - 1).to_bytes(32, "little")


def engines(schema: Any) -> list[Contestant]:
    return [Fake("aici", schema.get("aici")), Fake("llguidance", schema.get("llguidance"))]


def tokens(text: str) -> list[int]:
    return list(text.encode())


def test_only_schemas_that_every_engine_accepts_count() -> None:
    samples = [
        Sample("both", {"aici": 200, "llguidance": 200}, "abc"),
        Sample("ours", {"aici": 200}, "abc"),
        Sample("theirs", {"llguidance": 200}, "abc"),
        Sample("not the instance", {"aici": 200, "llguidance": 98}, "abc"),
        Sample("nor ours", {"aici": 98, "llguidance": 200}, "abc"),
        Sample("both again", {"aici": 200, "llguidance": 99}, "abcabc"),
    ]
    pool = race_schemas(tokens, samples, engines, 2)
    assert [sample.name for sample in pool.taken] == ["both", "both again"]
    assert pool.refused == {"aici": 1, "llguidance": 1}
    assert pool.stricter == {"llguidance": ["not the instance"], "aici": ["nor ours"]}
    assert {name: len(times) for name, times in pool.mask_us.items()} == {"aici": 9, "llguidance": 9}
    assert {name: len(times) for name, times in pool.compile_ms.items()} == {"aici": 2, "llguidance": 2}
