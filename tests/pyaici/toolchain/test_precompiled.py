"""Controllers that include the SDK's C++ headers: precompiled once, with the same modules and messages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyaici.toolchain import BuildError, Sdk, build_controller

from .conftest import MINIMAL, CountingToolchain

MAIN = MINIMAL.replace('#include "aici.h"', '#include "aici/sdk.hpp"').replace(
    "AICI_EXPORT", 'extern "C" AICI_EXPORT'
)
HEADER = """
#pragma once
#include <cstddef>
#include "aici.h"
#ifdef OURS
inline const char *mark() { return "with the macro"; }
#else
inline const char *mark() { return __FILE__; }
#endif
"""


@pytest.fixture
def sdk(sdk: Sdk) -> Sdk:
    (sdk.include / "aici").mkdir()
    (sdk.include / "aici" / "sdk.hpp").write_text(HEADER)
    for source in sdk.cxx_sources():
        source.unlink()
    return sdk


class Builder:
    """Builds sources in one folder, with one cache."""

    def __init__(self, folder: Path, sdk: Sdk, tools: CountingToolchain) -> None:
        self.folder, self.sdk, self.tools = folder, sdk, tools

    def build(self, text: str) -> bytes:
        self.tools.commands.clear()
        (self.folder / "main.cpp").write_text(text)
        out = self.folder / "main.wasm"
        return build_controller(
            self.folder / "main.cpp", out, sdk=self.sdk, tools=self.tools
        ).path.read_bytes()

    def refusal(self, text: str) -> str:
        with pytest.raises(BuildError) as caught:
            self.build(text)
        return str(caught.value)

    def precompiled(self) -> int:
        """Returns how many headers the last build has precompiled."""
        return len([command for command in self.tools.commands if "precompiling" in command])


@pytest.fixture
def builder(tmp_path: Path, sdk: Sdk, tools: CountingToolchain) -> Builder:
    return Builder(tmp_path, sdk, tools)


#: makes the source define a macro before the SDK's headers, which then have to be read again
OWN = "#define UNUSED\n"
MARK = MAIN + 'extern "C" AICI_EXPORT(mark) const char *which(void) { return mark(); }\n'


def test_headers_are_precompiled_once(builder: Builder) -> None:
    builder.build(MAIN)
    assert builder.precompiled() == 1
    builder.build(MAIN + "// changed\n")
    assert builder.precompiled() == 0
    header = builder.sdk.include / "aici" / "sdk.hpp"
    os.utime(header, (1, 1))  # as a new checkout of the same file
    builder.build(MAIN + "// changed again\n")
    assert builder.precompiled() == 0
    header.write_text(HEADER + "inline int more() { return 1; }\n")
    builder.build(MAIN + "int use() { return more(); }\n")
    assert builder.precompiled() == 1


def test_module_is_the_same_without_the_precompiled_header(builder: Builder) -> None:
    module = builder.build("// A controller.\n#include <cstdint>\n" + MARK)
    assert builder.precompiled() == 1
    assert b"aici/include/aici/sdk.hpp" in module and str(builder.sdk.root).encode() not in module
    (next(builder.tools.cache.glob("build/*.pch"))).unlink()
    assert builder.build(OWN + MARK) == module
    assert builder.precompiled() == 0


def test_macro_before_the_include_has_its_effect(builder: Builder) -> None:
    assert b"with the macro" not in builder.build(MARK)
    assert b"with the macro" in builder.build("#define OURS\n" + MARK)


def test_messages_are_the_same(builder: Builder) -> None:
    wrong = MAIN + "int wrong() { return unknown_name; }\n"
    shown = builder.refusal("\n" + wrong)
    assert builder.precompiled() == 1
    line = wrong.count("\n") + 1
    assert f"main.cpp:{line}:" in shown and "unknown_name" in shown
    assert shown == builder.refusal(OWN + wrong)
    missing = "int early = sizeof(std::size_t);\n"
    assert builder.refusal("\n" + missing + MAIN) == builder.refusal(OWN + missing + MAIN)
