"""aici.h, the table for checking modules, and docs/abi.md agree (numbers, structs: tests/aicirt/contract)."""

from __future__ import annotations

import re
from pathlib import Path

from aicirt.contract.abi import EXPORTS, IMPORTS
from aicirt.settings import Limits, RequestLimits
from aicirt.vocab import layout

ROOT = Path(__file__).resolve().parents[2]
HEADER = (ROOT / "controllers/sdk/include/aici.h").read_text()
PAGE = (ROOT / "docs/abi.md").read_text()


def constant(name: str) -> int:
    match = re.search(rf"\b{name}\b\s*(?:=\s*)?\(?(-?\w+)", HEADER)
    assert match, name
    return int(match[1].rstrip("u"), 0)


def fields(struct: str) -> list[str]:
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", HEADER, re.DOTALL)
    assert body, struct
    plain = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)
    found = []
    for kind, name, count in re.findall(r"(uint32_t|float) (\w+)(?:\[(\w+)\])?;", plain):
        found += [f"{kind} {name}"] * (constant(count) if count else 1)
    return found


def test_header_of_the_vocabulary_agrees_everywhere() -> None:
    """The host, controllers and the document use the same words."""
    assert fields("aici_vocabulary_header") == [f"uint32_t {name}" for name in layout.HEADER]
    assert constant("AICI_VOCABULARY_MAGIC") == layout.MAGIC
    assert constant("AICI_VOCABULARY_VERSION") == layout.VERSION
    page = (ROOT / "docs/vocabulary.md").read_text()
    words = re.findall(r"^\| (\d+) \| (\w+) \|", page, re.MULTILINE)
    assert words[: len(layout.HEADER)] == [(str(i), name) for i, name in enumerate(layout.HEADER)]


def test_imports_and_exports_are_declared_and_described() -> None:
    declared = set(re.findall(r"AICI_IMPORT\((\w+)\)", HEADER)) - {"name"}
    assert declared == set(IMPORTS)
    for name in IMPORTS:
        assert re.search(rf"`[^`]*\b{name}\b", PAGE), name
    for name, _ in EXPORTS.values():
        if name.startswith("aici_"):
            assert name in HEADER and name in PAGE, name


def test_limits_on_the_page_are_the_defaults() -> None:
    limits, request = Limits(), RequestLimits()
    assert (limits.init_ms, limits.pre_ms, limits.mid_ms, limits.post_ms) == (1000, 1, 20, 1)
    for callback, ms in [
        ("init(arg_len)", 1000),
        ("post_process()", 1),
        ("pre_process()", 1),
        ("mid_process()", 20),
    ]:
        assert re.search(rf"`aici_{re.escape(callback)} -> \w+` \|.*\| {ms} ms \|", PAGE), callback
    assert limits.memory_bytes == 64 << 20 and "memory 64 MiB" in PAGE
    assert request.log_bytes == 64 << 10 and "64 KiB of output" in PAGE
    assert (request.max_variables, request.max_variable_bytes) == (1024, 1 << 20)
    assert (
        request.max_suspended_steps == 1000
        and request.max_idle_steps == 10_000
        and request.max_late_steps == 10
        and request.max_ff_tokens == 4096
    )
