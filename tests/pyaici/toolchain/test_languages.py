"""The generated headers of MicroPython: they contain the glue's names and do not depend on the folder."""

from __future__ import annotations

from pathlib import Path

from pyaici.toolchain import Toolchain, find_sdk
from pyaici.toolchain.languages import MicroPython

PORT = find_sdk().root.parent / "pyctrl" / "port"
GLUE = """
#include "py/runtime.h"
static const mp_obj_module_t module;
MP_REGISTER_ROOT_POINTER(mp_obj_t something_of_the_glue);
MP_REGISTER_MODULE(MP_QSTR_a_module_of_the_glue, module);
qstr name(void) { return MP_QSTR_only_the_glue_says_so; }
"""


def test_generated_headers_contain_the_names_of_the_glue(tmp_path: Path, network: Path) -> None:
    tools = Toolchain(network)
    made = []
    for place in ("one", "much/longer/two"):
        folder = tmp_path / place
        tree = MicroPython.sdist.unpack(tools, MicroPython.prefix, folder / "tree")
        glue = folder / "glue.c"
        glue.write_text(GLUE)
        MicroPython().generate(tree, [glue], (PORT, tree, folder / "out"), folder / "out", tools)
        headers = sorted((folder / "out" / "genhdr").iterdir())
        made.append({header.name: header.read_text() for header in headers})
    assert made[0] == made[1]
    assert sorted(made[0]) == [
        "moduledefs.h",
        "mpversion.h",
        "qstrdefs.generated.h",
        "root_pointers.h",
    ]
    assert "MP_QSTR_only_the_glue_says_so" in made[0]["qstrdefs.generated.h"]
    assert "MP_QSTR_ZeroDivisionError" in made[0]["qstrdefs.generated.h"]
    assert "something_of_the_glue" in made[0]["root_pointers.h"]
    assert "MP_QSTR_a_module_of_the_glue" in made[0]["moduledefs.h"]
    assert "MP_QSTR_math" in made[0]["moduledefs.h"]
