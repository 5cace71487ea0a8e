"""Random schemas, and values that are valid or nearly valid."""

from __future__ import annotations

import random
from typing import Any, ClassVar

NAMES = ["a", "b", "c", "x-1", 'q"']
WORDS = ["", "a", "b", "ab", "abc", "é", "a\nb", '"', "12", "x-y"]
NUMBERS: list[Any] = [0, 1, -1, 2, 3, 5, 10, 12, 99, 100, -7, 0.5, 1.5, -0.25, 2.75]
#: expressions that mean the same to Python
PATTERNS = ["^a", "b", "^[a-c]*$", "^.{2}$", "[0-9]", "^x-", "^(a|ab|é)$"]


class Schemas:
    """A source of schemas that get smaller with their depth."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def schema(self, depth: int = 3) -> Any:
        rng = self.rng
        if rng.random() < 0.08:
            return rng.choice([True, {}, {}])
        made: dict[str, Any] = {}
        if rng.random() < 0.7:
            kinds = ["null", "boolean", "integer", "number", "string", "array", "object", "object"]
            made["type"] = rng.choice(kinds) if rng.random() < 0.8 else rng.sample(kinds[:-1], 2)
        groups = [self.numbers, self.strings]
        if depth > 0:
            groups += [self.arrays, self.objects, self.objects, self.logic, self.logic]
        kind = made.get("type")
        fitting = {
            "array": self.arrays,
            "object": self.objects,
            "string": self.strings,
            "integer": self.numbers,
        }
        if isinstance(kind, str) and kind in fitting and (depth > 0 or kind in ("string", "integer")):
            fitting[kind](made, depth)
        if rng.random() < 0.4:
            rng.choice(groups)(made, depth)
        if rng.random() < 0.12:
            made["enum"] = rng.sample([None, True, *WORDS, *NUMBERS, {"a": 1}, [1]], 4)
        return made

    def numbers(self, made: dict[str, Any], _: int) -> None:
        rng = self.rng
        for name in rng.sample(
            ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], rng.randint(0, 2)
        ):
            made[name] = rng.choice(NUMBERS)
        if rng.random() < 0.2:
            made["multipleOf"] = rng.choice([1, 2, 3, 5, 0.5])

    def strings(self, made: dict[str, Any], _: int) -> None:
        rng = self.rng
        if rng.random() < 0.4:
            made["minLength"] = rng.randint(0, 3)
        if rng.random() < 0.4:
            made["maxLength"] = rng.randint(0, 4)
        if rng.random() < 0.4:
            made["pattern"] = rng.choice(PATTERNS)

    def arrays(self, made: dict[str, Any], depth: int) -> None:
        rng = self.rng
        if rng.random() < 0.6:
            made["items"] = self.schema(depth - 1)
        if rng.random() < 0.3:
            made["prefixItems"] = [self.schema(depth - 1) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.3:
            made["minItems"] = rng.randint(0, 2)
        if rng.random() < 0.3:
            made["maxItems"] = rng.randint(0, 3)
        if rng.random() < 0.2:
            made["contains"] = self.schema(depth - 1)
            if rng.random() < 0.5:
                made["minContains"] = rng.randint(0, 2)
            if rng.random() < 0.5:
                made["maxContains"] = rng.randint(1, 2)
        if rng.random() < 0.15:
            made["unevaluatedItems"] = False

    def objects(self, made: dict[str, Any], depth: int) -> None:
        rng = self.rng
        made["properties"] = {name: self.schema(depth - 1) for name in rng.sample(NAMES, rng.randint(0, 3))}
        if rng.random() < 0.5:
            made["required"] = rng.sample(NAMES, rng.randint(0, 2))
        if rng.random() < 0.4:
            made["additionalProperties"] = rng.choice([False, self.schema(depth - 1)])
        if rng.random() < 0.2:
            made["patternProperties"] = {rng.choice(PATTERNS): self.schema(depth - 1)}
        if rng.random() < 0.15:
            made["propertyNames"] = {"pattern": rng.choice(PATTERNS)}
        if rng.random() < 0.15:
            made["minProperties"] = rng.randint(0, 2)
        if rng.random() < 0.15:
            made["maxProperties"] = rng.randint(0, 3)
        if rng.random() < 0.15:
            made["dependentRequired"] = {rng.choice(NAMES): rng.sample(NAMES, 1)}
        if rng.random() < 0.1:
            made["unevaluatedProperties"] = False

    def logic(self, made: dict[str, Any], depth: int) -> None:
        rng = self.rng
        name = rng.choice(["anyOf", "oneOf", "allOf", "not", "if"])
        if name in ("anyOf", "oneOf", "allOf"):
            made[name] = [self.schema(depth - 1) for _ in range(rng.randint(1, 3))]
        elif name == "not":
            made["not"] = self.schema(depth - 1)
        else:
            made["if"], made["then"] = self.schema(depth - 1), self.schema(depth - 1)
            made["else"] = self.schema(depth - 1)

    def value(self, schema: Any, depth: int = 4) -> Any:
        """Often valid, sometimes not."""
        rng = self.rng
        if not isinstance(schema, dict) or depth == 0 or rng.random() < 0.05:
            return self.anything(min(depth, 2))
        if "enum" in schema and rng.random() < 0.9:
            return rng.choice(schema["enum"])
        for name in ("anyOf", "oneOf", "allOf"):
            if name in schema and rng.random() < 0.5:
                one = rng.choice(schema[name])
                both = isinstance(one, dict) and rng.random() < 0.5
                return self.value({**schema, **one} if both else one, depth - 1)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = rng.choice(kind)
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else None
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            return self.array(schema, depth)
        by_kind: dict[Any, list[Any]] = {
            "null": [None],
            "boolean": [True, False],
            "integer": [n for n in NUMBERS if isinstance(n, int)],
            "number": NUMBERS,
            "string": WORDS,
        }
        return rng.choice(by_kind[kind]) if kind in by_kind else self.anything(2)

    def object(self, schema: Any, depth: int) -> dict[str, Any]:
        rng = self.rng
        known = schema.get("properties", {})
        names = [name for name in known if rng.random() < 0.7] + list(schema.get("required", []))
        if rng.random() < 0.3:
            names.append(rng.choice([*NAMES, "z", "ab", "x-2"]))
        rest = schema.get("additionalProperties", True)
        return {name: self.value(known.get(name, rest), depth - 1) for name in dict.fromkeys(names)}

    def array(self, schema: Any, depth: int) -> list[Any]:
        prefix = schema.get("prefixItems", [])
        size = self.rng.randint(0, 3)
        return [
            self.value(
                prefix[i] if i < len(prefix) else schema.get("items", schema.get("contains", True)), depth - 1
            )
            for i in range(size)
        ]

    def anything(self, depth: int) -> Any:
        rng = self.rng
        kind = rng.randrange(7 if depth > 0 else 4)
        if kind == 4:
            return [self.anything(depth - 1) for _ in range(rng.randint(0, 2))]
        if kind > 4:
            return {name: self.anything(depth - 1) for name in rng.sample(NAMES, rng.randint(0, 2))}
        return [rng.choice([None, True, False]), rng.choice(WORDS), rng.choice(NUMBERS), rng.choice(WORDS)][
            kind
        ]


class ObjectSchemas(Schemas):
    """With more alternatives and negations of objects, whose names and other properties differ."""

    def logic(self, made: dict[str, Any], depth: int) -> None:
        rng = self.rng
        kind = rng.choice(["oneOf", "not", "if", "other"])
        if kind == "other":
            super().logic(made, depth)
        elif kind == "oneOf":
            made["oneOf"] = [self._object() for _ in range(rng.randint(2, 3))]
        else:
            made[kind] = self._object()
            if kind == "if":
                made["then"], made["else"] = self.schema(depth - 1), self.schema(depth - 1)

    def _object(self) -> dict[str, Any]:
        rng = self.rng
        made: dict[str, Any] = {"type": "object"} if rng.random() < 0.5 else {}
        self.objects(made, 1)
        for name in ("properties", "patternProperties", "propertyNames"):
            if rng.random() < 0.3:
                made.pop(name, None)
        if rng.random() < 0.4:
            made["additionalProperties"] = rng.choice([False, {"type": "integer"}, {"type": "string"}])
        if rng.random() < 0.3:
            made["patternProperties"] = {rng.choice(["^a", "b", "^x-"]): rng.choice([False, self.schema(0)])}
        if rng.random() < 0.3:
            made["propertyNames"] = {"pattern": rng.choice(["^a", "b", "^x-"])}
        return made


class MoreSchemas(Schemas):
    """With references, formats, longer strings, more expressions and odder numbers."""

    FORMATS: ClassVar[dict[str, list[str]]] = {
        "date": ["2024-02-29", "1999-12-31"],
        "time": ["23:59:59Z", "01:02:03.25+05:30"],
        "date-time": ["2024-02-29T00:00:00Z", "2001-01-01T12:30:00.5-08:00"],
        "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
        "ipv4": ["192.0.2.1", "0.0.0.0"],
        "ipv6": ["::1", "2001:db8::ff00:42:8329"],
        "email": ["a.b@example.org"],
        "hostname": ["www.example.org", "a"],
        "uri": ["https://example.org/a?b=c#d", "urn:a:b"],
        "duration": ["P1Y2M3DT4H5M6S", "P3W"],
    }
    #: each with texts that it matches
    MATCHED: ClassVar[dict[str, list[str]]] = {
        r"^\d{3}-\d{4}$": ["555-0199", "000-0000"],
        r"^[A-Z][a-z]+(?: [A-Z][a-z]+)*$": ["Ada", "Grace Hopper"],
        r"^(?:[a-z0-9]+\.)+[a-z]{2,3}$": ["a.bc", "x1.y2.org"],
        r"^\S+@\S+$": ["a@b", "é@ü"],
        r'^[^\\/:*?"<>|]{1,12}$': ["name", "é è"],
        r"^.{2,5}$": ["ab", "é\tü"],
        r"^[\w-]{1,20}$": ["a-b_c", "0"],
        r"^(a|b)*c?$": ["", "abac"],
        r"x.*y": ["xy", "a x b y c"],
        r"^\s*$": ["", " \t"],
    }
    BOUNDS: ClassVar[list[Any]] = [0, 1, -1, 0.001, -12.75, 7.5, 99, 1000, 1e3, -100, 0.1, 123456789]

    def schema(self, depth: int = 3) -> Any:
        rng = self.rng
        if depth == 3:
            made = super().schema(depth)
            if isinstance(made, dict):
                made["$defs"] = {name: super(MoreSchemas, self).schema(2) for name in ("one", "two")}
            return made
        if rng.random() < 0.15:
            return {"$ref": rng.choice(["#", "#/$defs/one", "#/$defs/two"])}
        return super().schema(depth)

    def numbers(self, made: dict[str, Any], _: int) -> None:
        rng = self.rng
        for name in rng.sample(
            ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], rng.randint(0, 2)
        ):
            made[name] = rng.choice(self.BOUNDS)
        if rng.random() < 0.2:
            made["multipleOf"] = rng.choice([1, 2, 3, 5, 7, 10, 25, 0.5, 0.1, 0.01, 0.25, 1.5])

    def strings(self, made: dict[str, Any], depth: int) -> None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.3:
            made["format"] = rng.choice(list(self.FORMATS))
        elif kind < 0.6:
            made["pattern"] = rng.choice(list(self.MATCHED))
        elif kind < 0.8:
            made["minLength"], made["maxLength"] = rng.choice([(0, 8), (2, 30), (3, 3), (0, 200)])
        else:
            super().strings(made, depth)

    def value(self, schema: Any, depth: int = 4) -> Any:
        rng = self.rng
        if depth == 4:
            self._whole = schema
        if isinstance(schema, dict) and "$ref" in schema and depth > 0:
            name = schema["$ref"].rpartition("/")[2]
            return self.value(self._whole if name == "#" else self._whole["$defs"][name], min(depth, 3) - 1)
        if isinstance(schema, dict) and rng.random() < 0.9 and schema.get("type", "string") == "string":
            if "format" in schema:
                return rng.choice(self.FORMATS[schema["format"]])
            if schema.get("pattern") in self.MATCHED:
                return rng.choice(self.MATCHED[schema["pattern"]])
        return super().value(schema, depth)
